// The state digest: BLAKE2b over a text line for every array (name, type, shape) in the order of
// names, each followed by the digests of its chunks, and over the attributes (docs/
// checkpoint-format.md). A chunk is digested by whoever holds all of it, replicas in turn; a chunk
// that nobody holds alone is put together first. Which rank does what cannot change the result.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/agree.h"
#include "ckpt/chunk.h"
#include "ckpt/pieces.h"
#include "ckpt/split_chunks.h"
#include "trireme/base/digest.h"
#include "trireme/base/memory.h"
#include "trireme/ckpt/ckpt.h"

// The chunk's boxes follow one another in the order of the index, so fetching each behind the other
// packs the chunk.
static tri_status digest_chunk(const tri_ckpt_state *state, int index, int64_t chunk, char *staging,
                               tri_digest *out)
{
  const tri_ckpt_array *array = &state->arrays[index];
  tri_box boxes[TRI_RANGE_BOXES];
  const int n = tri_chunk_boxes(&array->shape, chunk, boxes);
  size_t used = 0;
  for (int i = 0; i < n; i++) {
    TRI_CALL(state->fetch(state->user, index, &boxes[i], staging + used));
    used += (size_t)tri_box_elements(&boxes[i]) * tri_dtype_size(array->dtype);
  }
  tri_digest_of(staging, used, out);
  return TRI_OK;
}

static tri_status digest_array(const tri_ckpt_state *state, int index, char *staging,
                               tri_chunk_list *list)
{
  const tri_ckpt_array *array = &state->arrays[index];
  if (tri_box_elements(&array->box) == 0)
    return array->replica == 0 ? tri_chunk_list_add(list, array, -1, NULL) : TRI_OK;
  int64_t first, last;
  tri_chunk_range(&array->shape, &array->box, &first, &last);
  for (int64_t c = first; c <= last; c++) {
    if (tri_ckpt_turn(array->name, c, array->n_replicas) != array->replica) continue;
    if (tri_chunk_common(&array->shape, c, &array->box) != tri_chunk_elements(&array->shape, c))
      continue;
    tri_digest digest;
    TRI_CALL(digest_chunk(state, index, c, staging, &digest));
    TRI_CALL(tri_chunk_list_add(list, array, c, &digest));
  }
  return TRI_OK;
}

static tri_status digest_whole_chunks(const tri_ckpt_state *state, tri_chunk_list *list)
{
  char *staging = tri_calloc(TRI_MODULE_CKPT, TRI_CHUNK_ELEMENTS, 8);
  tri_status status = staging == NULL ? TRI_ERR_MEMORY : TRI_OK;
  for (int i = 0; i < state->n_arrays && status == TRI_OK; i++)
    status = digest_array(state, i, staging, list);
  tri_free(staging);
  return status;
}

static int compare_chunks(const void *a, const void *b)
{
  const tri_chunk *p = a, *q = b;
  const int order = strcmp(p->name, q->name);
  if (order != 0) return order;
  return p->chunk < q->chunk ? -1 : p->chunk > q->chunk ? 1 : 0;
}

static void add_heading(tri_digest_state *digest, const tri_chunk *array)
{
  char text[256], shape[128];
  tri_ckpt_numbers_text(array->shape.n_axes, array->shape.extent, shape, sizeof shape);
  const int n = snprintf(text, sizeof text, "%s %s %s\n", array->name,
                         tri_dtype_name((tri_dtype)array->dtype), shape);
  tri_digest_add(digest, text, (size_t)n);
}

// Takes one array from the front of the sorted chunks: its mentions, then every chunk once.
static tri_status add_array(tri_digest_state *digest, const tri_chunk *chunks, int64_t n,
                            int64_t *used)
{
  int64_t next = 0, i = 0;
  add_heading(digest, &chunks[0]);
  for (; i < n && strcmp(chunks[i].name, chunks[0].name) == 0; i++) {
    const tri_chunk *c = &chunks[i];
    TRI_CHECK(c->dtype == chunks[0].dtype && tri_shape_equal(&c->shape, &chunks[0].shape),
              TRI_ERR_ARGUMENT, "array %s has another type or shape on another rank", c->name);
    if (c->chunk < 0) continue;
    TRI_CHECK(c->chunk == next, TRI_ERR_ARGUMENT, "array %s: elements from %lld on are held %s",
              c->name, (long long)(next * TRI_CHUNK_ELEMENTS),
              c->chunk < next ? "twice" : "by no rank");
    tri_digest_add(digest, c->digest.bytes, sizeof c->digest.bytes);
    next++;
  }
  TRI_CHECK(next == tri_chunk_count(&chunks[0].shape), TRI_ERR_ARGUMENT,
            "array %s: elements from %lld on are held by no rank", chunks[0].name,
            (long long)(next * TRI_CHUNK_ELEMENTS));
  *used = i;
  return TRI_OK;
}

static tri_status combine(tri_chunk *chunks, int64_t n, const char *attributes, tri_digest *out)
{
  static const char title[] = "trireme state 1\n", end[] = "attributes ";
  tri_digest_state digest;
  tri_digest_begin(&digest);
  tri_digest_add(&digest, title, sizeof title - 1);
  if (n > 0) qsort(chunks, (size_t)n, sizeof chunks[0], compare_chunks);
  for (int64_t first = 0, used = 0; first < n; first += used)
    TRI_CALL(add_array(&digest, chunks + first, n - first, &used));
  tri_digest_add(&digest, end, sizeof end - 1);
  tri_digest_add(&digest, attributes, strlen(attributes));
  tri_digest_end(&digest, out);
  return TRI_OK;
}

static tri_status gather_and_combine(tri_comm *comm, const tri_chunk_list *list,
                                     const char *attributes, tri_digest *out)
{
  tri_status status = TRI_OK;
  int64_t *sizes = NULL;
  void *all = NULL;
  tri_status combined = TRI_OK;
  TRI_CALL_GOTO(done, tri_comm_gather(comm, "state digest", list->chunks,
                                      (size_t)list->n * sizeof(tri_chunk), 0, &sizes, &all));
  if (tri_comm_rank(comm) == 0) {
    int64_t bytes = 0;
    for (int i = 0; i < tri_comm_size(comm); i++)
      bytes += sizes[i];
    combined = combine(all, bytes / (int64_t)sizeof(tri_chunk), attributes, out);
  }
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "state digest", combined));
  TRI_CALL_GOTO(done, tri_comm_broadcast(comm, "state digest", out, sizeof *out, 0));

done:
  tri_free(all);
  tri_free(sizes);
  return status;
}

tri_status tri_ckpt_digest(tri_comm *comm, const tri_ckpt_state *state, const char *attributes,
                           tri_digest *out)
{
  tri_status status = TRI_OK;
  char *text = NULL;
  tri_chunk_list list = {0};
  tri_digest digest = {{0}};
  TRI_CALL(tri_ckpt_agree_on_state(comm, state, attributes, &text));
  TRI_CALL_GOTO(done,
                tri_comm_agree(comm, "state digest arrays", digest_whole_chunks(state, &list)));
  TRI_CALL_GOTO(done, tri_split_chunks_digest(comm, state, &list));
  TRI_CALL_GOTO(done, gather_and_combine(comm, &list, text, &digest));
  *out = digest;

done:
  tri_free(list.chunks);
  tri_free(text);
  return status;
}
