#include "ckpt/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base/memory.h"
#include "trireme/base/random.h"

bool tri_ckpt_name_is_plain(const char *name)
{
  const size_t n = strnlen(name, sizeof((tri_ckpt_array *)NULL)->name);
  if (n == 0 || n >= sizeof((tri_ckpt_array *)NULL)->name) return false;
  size_t part = 0; // first byte of the part between slashes
  for (size_t i = 0; i <= n; i++) {
    const char c = name[i];
    if (c != '/' && c != '\0') {
      if (c <= ' ' || c > '~' || c == '\\' || c == '"') return false;
      continue;
    }
    const size_t length = i - part;
    if (length == 0 || (length == 1 && name[part] == '.')) return false;
    if (length == 2 && name[part] == '.' && name[part + 1] == '.') return false;
    part = i + 1;
  }
  return true;
}

void tri_ckpt_numbers_text(int n, const int64_t *numbers, char *out, size_t size)
{
  size_t used = (size_t)snprintf(out, size, "(");
  for (int i = 0; i < n && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "%s%lld", i > 0 ? ", " : "",
                             (long long)numbers[i]);
  if (used < size) snprintf(out + used, size - used, ")");
}

static tri_status check_array(const tri_ckpt_array *array)
{
  TRI_CHECK(tri_ckpt_name_is_plain(array->name), TRI_ERR_ARGUMENT,
            "'%.96s' is no name for an array of a checkpoint", array->name);
  TRI_CHECK(tri_dtype_size(array->dtype) != 0, TRI_ERR_ARGUMENT, "array %s: no such type %d",
            array->name, (int)array->dtype);
  TRI_CHECK(array->n_replicas >= 1 && array->replica >= 0 && array->replica < array->n_replicas,
            TRI_ERR_ARGUMENT, "array %s: replica %d of %d", array->name, array->replica,
            array->n_replicas);
  if (tri_box_check(&array->box, &array->shape, tri_dtype_size(array->dtype)) == TRI_OK)
    return TRI_OK;
  return TRI_ERROR(TRI_ERR_ARGUMENT, "array %s: %s", array->name, tri_error_message());
}

static int compare_names(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

tri_status tri_ckpt_check_state(const tri_ckpt_state *state)
{
  const char **names = NULL;
  for (int i = 0; i < state->n_arrays; i++)
    TRI_CALL(check_array(&state->arrays[i]));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, state->n_arrays, &names));
  for (int i = 0; i < state->n_arrays; i++)
    names[i] = state->arrays[i].name;
  qsort(names, (size_t)state->n_arrays, sizeof names[0], compare_names);
  tri_status status = TRI_OK;
  for (int i = 1; i < state->n_arrays && status == TRI_OK; i++) {
    if (strcmp(names[i - 1], names[i]) == 0)
      status = TRI_ERROR(TRI_ERR_ARGUMENT, "array %s is given twice on one rank", names[i]);
  }
  tri_free(names);
  return status;
}

int tri_ckpt_turn(const char *name, int64_t chunk, int n_replicas)
{
  return (int)((tri_random_key(0, name) + (uint64_t)chunk) % (uint64_t)n_replicas);
}

bool tri_ckpt_piece(const tri_ckpt_array *array, tri_box *out)
{
  const int64_t elements = tri_box_elements(&array->box);
  if (elements == 0) return false;
  const int64_t bytes = elements * (int64_t)tri_dtype_size(array->dtype);
  const int64_t rows = array->box.n_axes > 0 ? array->box.count[0] : 1;
  int64_t cuts = (bytes + TRI_PIECE_BYTES - 1) / TRI_PIECE_BYTES;
  if (cuts > rows) cuts = rows;
  if (cuts > array->n_replicas) cuts = array->n_replicas;
  // The first cut goes to the replica whose turn it is, the next to the one after it, and so on.
  const int first = tri_ckpt_turn(array->name, 0, array->n_replicas);
  const int64_t cut = (array->replica - first + array->n_replicas) % array->n_replicas;
  if (cut >= cuts) return false;
  *out = array->box;
  if (cuts == 1) return true;
  const int64_t each = rows / cuts, rest = rows % cuts;
  out->start[0] += cut * each + (cut < rest ? cut : rest);
  out->count[0] = each + (cut < rest ? 1 : 0);
  return true;
}

void tri_slabs_begin(tri_slabs *slabs, const tri_box *box, size_t element_bytes, size_t limit_bytes)
{
  *slabs = (tri_slabs){.box = *box, .done = tri_box_elements(box) == 0};
  memcpy(slabs->next, box->start, sizeof slabs->next);
  int64_t row = (int64_t)element_bytes; // bytes of one index of the axis looked at
  int axis = box->n_axes - 1;
  while (axis > 0 && row * box->count[axis] <= (int64_t)limit_bytes)
    row *= box->count[axis--];
  slabs->axis = axis;
  slabs->rows = (int64_t)limit_bytes / row > 0 ? (int64_t)limit_bytes / row : 1;
}

bool tri_slabs_next(tri_slabs *slabs, tri_box *out)
{
  if (slabs->done) return false;
  const tri_box *box = &slabs->box;
  *out = *box;
  if (box->n_axes == 0) {
    slabs->done = true;
    return true;
  }
  for (int a = 0; a < slabs->axis; a++) {
    out->start[a] = slabs->next[a];
    out->count[a] = 1;
  }
  const int64_t left = box->start[slabs->axis] + box->count[slabs->axis] - slabs->next[slabs->axis];
  out->start[slabs->axis] = slabs->next[slabs->axis];
  out->count[slabs->axis] = left < slabs->rows ? left : slabs->rows;
  int axis = slabs->axis;
  slabs->next[axis] += out->count[axis];
  while (slabs->next[axis] == box->start[axis] + box->count[axis]) {
    if (axis == 0) {
      slabs->done = true;
      break;
    }
    slabs->next[axis] = box->start[axis];
    slabs->next[--axis]++;
  }
  return true;
}

int tri_flat_boxes(const tri_shape *shape, int64_t first, int64_t n, tri_box out[TRI_FLAT_BOXES])
{
  int n_boxes = 0;
  while (n > 0) {
    // The coarsest axis at which `first` begins a whole index that still fits the range.
    int axis = shape->n_axes;
    int64_t stride = 1; // elements of one index of axis - 1
    while (axis > 1 && first % (stride * shape->extent[axis - 1]) == 0 &&
           stride * shape->extent[axis - 1] <= n)
      stride *= shape->extent[--axis];
    tri_box *box = &out[n_boxes++];
    *box = tri_box_all(shape);
    if (axis == 0) return n_boxes; // a scalar
    int64_t index = first / stride;
    int64_t rows = n / stride;
    const int64_t left = shape->extent[axis - 1] - index % shape->extent[axis - 1];
    if (rows > left) rows = left;
    for (int a = axis - 1; a >= 0; a--) {
      box->start[a] = index % shape->extent[a];
      box->count[a] = a == axis - 1 ? rows : 1;
      index /= shape->extent[a];
    }
    first += rows * stride;
    n -= rows * stride;
  }
  return n_boxes;
}

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

static tri_status cover_error(const char *name, const tri_shape *shape, const corner *at)
{
  char place[128];
  tri_ckpt_numbers_text(shape->n_axes, at->at, place, sizeof place);
  return TRI_ERROR(TRI_ERR_FORMAT, "array %s: element %s is held %lld times, not once", name, place,
                   (long long)(1 + at->sign));
}

// Boxes cover the array exactly once when the sum of their indicator functions is that of the whole
// array. The mixed difference along all axes tells functions of bounded support apart, and that of
// a box is 2^n signed corners: so it is enough that all corners cancel those of the whole. The
// first that does not, in lexicographic order, has nothing before it, so its sum is the error
// there. O(n log n), whatever the boxes are.
tri_status tri_ckpt_check_cover(const char *name, const tri_shape *shape, const tri_box *boxes,
                                int n_boxes)
{
  if (tri_shape_elements(shape) == 0) return TRI_OK; // no non-empty box fits into it
  corner *corners;
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, ((size_t)n_boxes + 1) << shape->n_axes, &corners));
  const tri_box all = tri_box_all(shape);
  corner *end = add_corners(corners, &all, -1);
  for (int i = 0; i < n_boxes; i++)
    end = add_corners(end, &boxes[i], 1);
  qsort(corners, (size_t)(end - corners), sizeof corners[0], compare_corners);
  tri_status status = TRI_OK;
  for (corner *first = corners, *next; first < end && status == TRI_OK; first = next) {
    for (next = first + 1; next < end && compare_corners(first, next) == 0; next++)
      first->sign += next->sign;
    if (first->sign != 0) status = cover_error(name, shape, first);
  }
  tri_free(corners);
  return status;
}
