#include "ckpt/cover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/pieces.h"
#include "trireme/base/memory.h"

// --- the message: slow, but it is the last thing that is done

static bool lies_in(const tri_box *box, int n_axes, const int64_t *at)
{
  for (int a = 0; a < n_axes; a++)
    if (at[a] < box->start[a] || at[a] >= box->start[a] + box->count[a]) return false;
  return true;
}

static bool is_whole_after(const tri_box *box, const tri_shape *shape, int axis)
{
  for (int a = axis + 1; a < shape->n_axes; a++)
    if (box->count[a] < shape->extent[a]) return false;
  return true;
}

// Indices of `axis` from at[axis] on in which every box lies alike, wholly or not at all; 0 when
// some box holds only a part of the first. Position `at` is 0 on the axes after it.
static int64_t equal_indices(const tri_cover *cover, const int64_t *at, int axis)
{
  int64_t end = cover->shape->extent[axis];
  for (int64_t i = 0; i < cover->n_boxes; i++) {
    const tri_box *box = &cover->boxes[i];
    if (!lies_in(box, axis, at)) continue;
    const int64_t from = box->start[axis], to = from + box->count[axis];
    const bool inside = lies_in(box, axis + 1, at);
    if (inside && !is_whole_after(box, cover->shape, axis)) return 0;
    if (inside && to < end) end = to;
    if (from > at[axis] && from < end) end = from;
  }
  return end - at[axis];
}

// Elements from `index` on, in row-major order, that the same boxes hold: some of them, not fewer
// than one. Boxes that hold the first are marked.
static int64_t equal_elements(const tri_cover *cover, int64_t index, bool *marks)
{
  const tri_shape *shape = cover->shape;
  int64_t at[TRI_MAX_AXES], rest = index, n = 0, stride = 1;
  for (int a = shape->n_axes - 1; a >= 0; a--) {
    at[a] = rest % shape->extent[a];
    rest /= shape->extent[a];
  }
  for (int64_t i = 0; i < cover->n_boxes; i++)
    marks[i] = lies_in(&cover->boxes[i], shape->n_axes, at);
  int axis = shape->n_axes - 1;
  if (axis < 0) return 1;
  for (; axis >= 0; stride *= shape->extent[axis--]) {
    const int64_t indices = equal_indices(cover, at, axis);
    if (indices > 0) n = indices * stride;
    if (indices == 0 || at[axis] != 0) break;
  }
  return n;
}

// The holders of the marked boxes as text: the same text for all elements that the same ranks hold,
// whichever of their boxes it is.
static void holders_text(const tri_cover *cover, const bool *marks, char *out, size_t size)
{
  size_t used = 0;
  int64_t times = 0;
  out[0] = '\0';
  for (int64_t i = 0; i < cover->n_boxes; i++)
    times += marks[i] ? 1 : 0;
  if (times == 0) {
    snprintf(out, size, "held by no %s", cover->holder);
    return;
  }
  used = (size_t)snprintf(out, size, "held %lld times:", (long long)times);
  int64_t named = 0;
  for (int64_t i = 0; i < cover->n_boxes && named < 8; i++) {
    if (!marks[i]) continue;
    used += (size_t)snprintf(out + used, size - used, "%s %s %d", named > 0 ? "," : " by",
                             cover->holder, cover->holders[i]);
    named++;
  }
  if (times > named) snprintf(out + used, size - used, ", ...");
}

// At most STEPS equal stretches are joined: what is said is true of the range in any case.
static tri_status cover_error(const tri_cover *cover, const int64_t *at)
{
  enum { STEPS = 1000 };
  char place[128], held[256], next[256];
  bool *marks;
  int64_t first = 0;
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, cover->n_boxes, &marks));
  for (int a = 0; a < cover->shape->n_axes; a++)
    first = first * cover->shape->extent[a] + at[a];
  int64_t end = first + equal_elements(cover, first, marks);
  holders_text(cover, marks, held, sizeof held);
  for (int step = 0; step < STEPS && end < tri_shape_elements(cover->shape); step++) {
    const int64_t more = equal_elements(cover, end, marks);
    holders_text(cover, marks, next, sizeof next);
    if (strcmp(held, next) != 0) break;
    end += more;
  }
  tri_free(marks);
  tri_ckpt_numbers_text(cover->shape->n_axes, at, place, sizeof place);
  return TRI_ERROR(TRI_ERR_FORMAT, "array %s: elements [%lld, %lld), the first at %s, are %s",
                   cover->name, (long long)first, (long long)end, place, held);
}

// --- the check

// A corner of a box with the sign it has in the mixed difference of the box's indicator function.
typedef struct corner {
  int64_t at[TRI_MAX_AXES];
  int64_t sign;
} corner;

static int compare_corners(const void *a, const void *b)
{
  const corner *p = a, *q = b;
  for (int i = 0; i < TRI_MAX_AXES; i++) {
    if (p->at[i] != q->at[i]) return p->at[i] < q->at[i] ? -1 : 1;
  }
  return 0;
}

static corner *add_corners(corner *next, const tri_box *box, int64_t sign)
{
  for (int which = 0; which < 1 << box->n_axes; which++) {
    *next = (corner){.sign = sign};
    for (int a = 0; a < box->n_axes; a++) {
      const bool end = (which >> a & 1) != 0;
      next->at[a] = box->start[a] + (end ? box->count[a] : 0);
      if (end) next->sign = -next->sign;
    }
    next++;
  }
  return next;
}

// Boxes cover the array exactly once when the sum of their indicator functions is that of the whole
// array. The mixed difference along all axes tells functions of bounded support apart, and that of
// a box is 2^n signed corners: so it is enough that all corners cancel those of the whole. The
// first that does not, in lexicographic order, has nothing before it, so its sum is the error
// there. O(n log n), whatever the boxes are.
tri_status tri_ckpt_check_cover(const tri_cover *cover)
{
  const tri_shape *shape = cover->shape;
  if (tri_shape_elements(shape) == 0) return TRI_OK; // no non-empty box fits into it
  corner *corners;
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, ((size_t)cover->n_boxes + 1) << shape->n_axes, &corners));
  const tri_box all = tri_box_all(shape);
  corner *end = add_corners(corners, &all, -1);
  for (int64_t i = 0; i < cover->n_boxes; i++)
    end = add_corners(end, &cover->boxes[i], 1);
  qsort(corners, (size_t)(end - corners), sizeof corners[0], compare_corners);
  tri_status status = TRI_OK;
  for (corner *first = corners, *next; first < end && status == TRI_OK; first = next) {
    for (next = first + 1; next < end && compare_corners(first, next) == 0; next++)
      first->sign += next->sign;
    if (first->sign != 0) status = cover_error(cover, first->at);
  }
  tri_free(corners);
  return status;
}
