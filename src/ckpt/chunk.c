#include "ckpt/chunk.h"

#include <string.h>

#include "trireme/base/memory.h"

tri_status tri_chunk_list_add(tri_chunk_list *list, const tri_ckpt_array *array, int64_t chunk,
                              const tri_digest *digest)
{
  if (list->n == list->room) {
    tri_chunk *more;
    const int64_t room = 2 * list->room + 64;
    TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, room, &more));
    if (list->n > 0) memcpy(more, list->chunks, (size_t)list->n * sizeof *more);
    tri_free(list->chunks);
    list->chunks = more;
    list->room = room;
  }
  tri_chunk *added = &list->chunks[list->n++];
  memcpy(added->name, array->name, sizeof added->name);
  added->dtype = array->dtype;
  added->shape = array->shape;
  added->chunk = digest == NULL ? -1 : chunk;
  if (digest != NULL) added->digest = *digest;
  return TRI_OK;
}

int64_t tri_chunk_count(const tri_shape *shape)
{
  const int64_t elements = tri_shape_elements(shape);
  return elements / TRI_CHUNK_ELEMENTS + (elements % TRI_CHUNK_ELEMENTS != 0 ? 1 : 0);
}

int64_t tri_chunk_elements(const tri_shape *shape, int64_t chunk)
{
  const int64_t left = tri_shape_elements(shape) - chunk * TRI_CHUNK_ELEMENTS;
  return left < TRI_CHUNK_ELEMENTS ? left : TRI_CHUNK_ELEMENTS;
}

int tri_chunk_boxes(const tri_shape *shape, int64_t chunk, tri_box out[TRI_RANGE_BOXES])
{
  const tri_box all = tri_box_all(shape);
  return tri_box_cut_range(&all, chunk * TRI_CHUNK_ELEMENTS, tri_chunk_elements(shape, chunk), out);
}

int64_t tri_chunk_common(const tri_shape *shape, int64_t chunk, const tri_box *box)
{
  tri_box boxes[TRI_RANGE_BOXES], common;
  const int n = tri_chunk_boxes(shape, chunk, boxes);
  int64_t elements = 0;
  for (int i = 0; i < n; i++)
    if (tri_box_intersect(&boxes[i], box, &common)) elements += tri_box_elements(&common);
  return elements;
}

void tri_chunk_range(const tri_shape *shape, const tri_box *box, int64_t *first, int64_t *last)
{
  tri_ckpt_span(shape, box, first, last);
  *first /= TRI_CHUNK_ELEMENTS;
  *last /= TRI_CHUNK_ELEMENTS;
}
