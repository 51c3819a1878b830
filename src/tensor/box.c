#include "trireme/tensor/box.h"

#include <string.h>

tri_shape tri_shape_1d(int64_t n)
{
  return (tri_shape){.n_axes = 1, .extent = {n}};
}

tri_shape tri_shape_2d(int64_t rows, int64_t columns)
{
  return (tri_shape){.n_axes = 2, .extent = {rows, columns}};
}

static int64_t product(int n, const int64_t *extents)
{
  int64_t elements = 1;
  for (int a = 0; a < n; a++)
    elements *= extents[a];
  return elements;
}

int64_t tri_shape_elements(const tri_shape *shape)
{
  return product(shape->n_axes, shape->extent);
}

bool tri_shape_equal(const tri_shape *a, const tri_shape *b)
{
  return a->n_axes == b->n_axes &&
         memcmp(a->extent, b->extent, (size_t)a->n_axes * sizeof a->extent[0]) == 0;
}

tri_box tri_box_all(const tri_shape *shape)
{
  tri_box box = {.n_axes = shape->n_axes};
  for (int a = 0; a < shape->n_axes; a++)
    box.count[a] = shape->extent[a];
  return box;
}

int64_t tri_box_elements(const tri_box *box)
{
  return product(box->n_axes, box->count);
}

bool tri_box_intersect(const tri_box *a, const tri_box *b, tri_box *out)
{
  tri_box common = {.n_axes = a->n_axes};
  bool some = a->n_axes == b->n_axes;
  for (int i = 0; some && i < a->n_axes; i++) {
    const int64_t start = a->start[i] > b->start[i] ? a->start[i] : b->start[i];
    const int64_t a_end = a->start[i] + a->count[i], b_end = b->start[i] + b->count[i];
    const int64_t end = a_end < b_end ? a_end : b_end;
    common.start[i] = start;
    common.count[i] = end > start ? end - start : 0;
    some = end > start;
  }
  *out = some ? common : (tri_box){.n_axes = a->n_axes};
  return some;
}

// Every step takes as many whole indices as it can of the coarsest axis that it can: first ever
// coarser axes, each up to the end of the one before it, then ever finer ones. Only the coarsest is
// not used twice, hence 2 * n_axes - 1.
int tri_box_cut_range(const tri_box *box, int64_t first, int64_t n, tri_box out[TRI_RANGE_BOXES])
{
  int n_boxes = 0;
  while (n > 0) {
    int axis = box->n_axes - 1;
    int64_t stride = 1; // elements of one index of `axis`
    while (axis > 0 && first % (stride * box->count[axis]) == 0 && stride * box->count[axis] <= n)
      stride *= box->count[axis--];
    tri_box *part = &out[n_boxes++];
    *part = *box;
    if (axis < 0) return n_boxes; // a scalar
    int64_t index = first / stride;
    const int64_t left = box->count[axis] - index % box->count[axis];
    const int64_t rows = n / stride < left ? n / stride : left;
    for (int a = axis; a >= 0; a--) {
      part->start[a] = box->start[a] + index % box->count[a];
      part->count[a] = a == axis ? rows : 1;
      index /= box->count[a];
    }
    first += rows * stride;
    n -= rows * stride;
  }
  return n_boxes;
}

// Offset in elements of a global position inside a packed box.
static int64_t offset_in(const tri_box *box, const int64_t *position)
{
  int64_t offset = 0;
  for (int a = 0; a < box->n_axes; a++)
    offset = offset * box->count[a] + (position[a] - box->start[a]);
  return offset;
}

void tri_box_copy(void *to, const tri_box *to_box, const void *from, const tri_box *from_box,
                  const tri_box *part, size_t size_bytes)
{
  if (tri_box_elements(part) == 0) return;
  const int n = part->n_axes;
  const int64_t run = n == 0 ? 1 : part->count[n - 1];
  int64_t position[TRI_MAX_AXES];
  memcpy(position, part->start, sizeof position);
  for (;;) {
    memcpy((char *)to + (size_t)offset_in(to_box, position) * size_bytes,
           (const char *)from + (size_t)offset_in(from_box, position) * size_bytes,
           (size_t)run * size_bytes);
    int axis = n - 2;
    while (axis >= 0 && ++position[axis] == part->start[axis] + part->count[axis]) {
      position[axis] = part->start[axis];
      axis--;
    }
    if (axis < 0) return;
  }
}

tri_status tri_box_check(const tri_box *box, const tri_shape *shape, size_t size_bytes)
{
  TRI_CHECK(box->n_axes == shape->n_axes && box->n_axes >= 0 && box->n_axes <= TRI_MAX_AXES,
            TRI_ERR_FORMAT, "a box of %d axes does not fit an array of %d axes", box->n_axes,
            shape->n_axes);
  int64_t bytes = (int64_t)size_bytes;
  for (int a = 0; a < box->n_axes; a++) {
    int64_t end;
    TRI_CHECK(box->start[a] >= 0 && box->count[a] >= 0 &&
                  !__builtin_add_overflow(box->start[a], box->count[a], &end) &&
                  end <= shape->extent[a],
              TRI_ERR_FORMAT, "axis %d: the box [%lld, +%lld) leaves the extent %lld", a,
              (long long)box->start[a], (long long)box->count[a], (long long)shape->extent[a]);
    TRI_CHECK(!__builtin_mul_overflow(bytes, shape->extent[a] > 0 ? shape->extent[a] : 1, &bytes),
              TRI_ERR_FORMAT, "an array of more bytes than 64 bits can count");
  }
  return TRI_OK;
}
