#include "ckpt/read_plan.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/pieces.h"
#include "trireme/base/memory.h"

// First and last row-major index of a piece. Pieces that are ranges of the index have spans that do
// not overlap; those of columns and blocks do.
typedef struct span {
  int64_t first, last;
  int64_t latest; // the greatest `last` of this span and of those sorted before it
  int64_t piece;
} span;

typedef struct plan {
  const char *path;
  const tri_manifest *manifest;
  const tri_ckpt_state *state;
  const tri_manifest_array *array; // whose spans these are
  span *spans;                     // by first index; as many as the array has pieces
  tri_read *reads;                 // owned
  int64_t n, room;
} plan;

static tri_status match(const plan *p, const tri_ckpt_array *array, const tri_manifest_array **out)
{
  const tri_manifest_array *stored = tri_manifest_find(p->manifest, array->name);
  TRI_CHECK(stored != NULL, TRI_ERR_CONFIG, "%s: holds no array %s: it is of another model",
            p->path, array->name);
  TRI_CHECK(stored->dtype == array->dtype, TRI_ERR_CONFIG, "%s: array %s is %s there, %s here",
            p->path, array->name, tri_dtype_name(stored->dtype), tri_dtype_name(array->dtype));
  if (tri_shape_equal(&stored->shape, &array->shape)) {
    *out = stored;
    return TRI_OK;
  }
  char there[128], here[128];
  tri_ckpt_numbers_text(stored->shape.n_axes, stored->shape.extent, there, sizeof there);
  tri_ckpt_numbers_text(array->shape.n_axes, array->shape.extent, here, sizeof here);
  return TRI_ERROR(TRI_ERR_CONFIG, "%s: array %s has shape %s there, %s here", p->path, array->name,
                   there, here);
}

static tri_status add_read(plan *p, tri_read read)
{
  if (p->n == p->room) {
    tri_read *more;
    const int64_t room = 2 * p->room + 64;
    TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, room, &more));
    if (p->n > 0) memcpy(more, p->reads, (size_t)p->n * sizeof *more);
    tri_free(p->reads);
    p->reads = more;
    p->room = room;
  }
  p->reads[p->n++] = read;
  return TRI_OK;
}

static int by_first(const void *a, const void *b)
{
  const span *p = a, *q = b;
  if (p->first != q->first) return p->first < q->first ? -1 : 1;
  return p->piece < q->piece ? -1 : p->piece > q->piece ? 1 : 0;
}

static tri_status take_array(plan *p, const tri_manifest_array *array)
{
  if (p->array == array) return TRI_OK;
  tri_free(p->spans);
  p->spans = NULL;
  p->array = array;
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, array->n_pieces, &p->spans));
  for (int i = 0; i < array->n_pieces; i++) {
    span *s = &p->spans[i];
    s->piece = array->first_piece + i;
    tri_ckpt_span(&array->shape, &p->manifest->pieces[s->piece].box, &s->first, &s->last);
  }
  qsort(p->spans, (size_t)array->n_pieces, sizeof *p->spans, by_first);
  for (int i = 0; i < array->n_pieces; i++) {
    const int64_t before = i > 0 ? p->spans[i - 1].latest : -1;
    p->spans[i].latest = p->spans[i].last > before ? p->spans[i].last : before;
  }
  return TRI_OK;
}

// Spans that begin at `index` or before it.
static int count_begun(const plan *p, int64_t index)
{
  int low = 0, high = p->array->n_pieces;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (p->spans[middle].first <= index)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Looks at the pieces that begin before the box ends, from the last one back to where all those
// before end before the box begins.
static tri_status plan_box(plan *p, int index)
{
  const tri_box *box = &p->state->arrays[index].box;
  int64_t first, last;
  if (tri_box_elements(box) == 0) return TRI_OK;
  tri_ckpt_span(&p->array->shape, box, &first, &last);
  for (int i = count_begun(p, last) - 1; i >= 0 && p->spans[i].latest >= first; i--) {
    const tri_manifest_piece *piece = &p->manifest->pieces[p->spans[i].piece];
    tri_box common;
    if (!tri_box_intersect(&piece->box, box, &common)) continue;
    const tri_read read = {.file = piece->file, .index = index, .piece = p->spans[i].piece};
    TRI_CALL(add_read(p, read));
  }
  return TRI_OK;
}

typedef struct match_order {
  const tri_manifest_array *stored;
  int index;
} match_order;

static int by_array(const void *a, const void *b)
{
  const match_order *p = a, *q = b;
  if (p->stored != q->stored) return p->stored < q->stored ? -1 : 1;
  return p->index < q->index ? -1 : p->index > q->index ? 1 : 0;
}

static int by_file(const void *a, const void *b)
{
  const tri_read *p = a, *q = b;
  if (p->file != q->file) return p->file < q->file ? -1 : 1;
  if (p->piece != q->piece) return p->piece < q->piece ? -1 : 1;
  return p->index < q->index ? -1 : p->index > q->index ? 1 : 0;
}

static tri_status plan_all(plan *p, match_order *order)
{
  const int n = p->state->n_arrays;
  for (int i = 0; i < n; i++) {
    order[i].index = i;
    TRI_CALL(match(p, &p->state->arrays[i], &order[i].stored));
  }
  qsort(order, (size_t)n, sizeof order[0], by_array);
  for (int i = 0; i < n; i++) {
    TRI_CALL(take_array(p, order[i].stored));
    TRI_CALL(plan_box(p, order[i].index));
  }
  if (p->n > 0) qsort(p->reads, (size_t)p->n, sizeof *p->reads, by_file);
  return TRI_OK;
}

tri_status tri_read_plan(const char *path, const tri_manifest *manifest,
                         const tri_ckpt_state *state, tri_read **out, int64_t *n)
{
  plan p = {.path = path, .manifest = manifest, .state = state};
  match_order *order = NULL;
  tri_status status = TRI_NEW(TRI_MODULE_CKPT, state->n_arrays, &order);
  if (status == TRI_OK) status = plan_all(&p, order);
  tri_free(order);
  tri_free(p.spans);
  if (status != TRI_OK) {
    tri_error_trace(__func__, __FILE__, __LINE__);
    tri_free(p.reads);
    return status;
  }
  *out = p.reads;
  *n = p.n;
  return TRI_OK;
}
