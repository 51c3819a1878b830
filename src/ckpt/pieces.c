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

int tri_ckpt_compare_starts(const tri_box *a, const tri_box *b)
{
  for (int i = 0; i < a->n_axes && i < b->n_axes; i++)
    if (a->start[i] != b->start[i]) return a->start[i] < b->start[i] ? -1 : 1;
  return 0;
}

static int compare_names(const void *a, const void *b)
{
  const tri_ckpt_array *p = *(const tri_ckpt_array *const *)a;
  const tri_ckpt_array *q = *(const tri_ckpt_array *const *)b;
  return strcmp(p->name, q->name);
}

tri_status tri_ckpt_check_state(const tri_ckpt_state *state)
{
  const tri_ckpt_array **sorted = NULL;
  for (int i = 0; i < state->n_arrays; i++)
    TRI_CALL(check_array(&state->arrays[i]));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, state->n_arrays, &sorted));
  for (int i = 0; i < state->n_arrays; i++)
    sorted[i] = &state->arrays[i];
  qsort(sorted, (size_t)state->n_arrays, sizeof sorted[0], compare_names);
  tri_status status = TRI_OK;
  for (int i = 1; i < state->n_arrays && status == TRI_OK; i++) {
    const tri_ckpt_array *before = sorted[i - 1], *array = sorted[i];
    if (strcmp(before->name, array->name) == 0 &&
        (before->dtype != array->dtype || !tri_shape_equal(&before->shape, &array->shape)))
      status = TRI_ERROR(TRI_ERR_ARGUMENT,
                         "array %s is given twice on one rank, with different types or shapes",
                         array->name);
  }
  tri_free(sorted);
  return status;
}

void tri_ckpt_span(const tri_shape *shape, const tri_box *box, int64_t *first, int64_t *last)
{
  *first = *last = 0;
  for (int a = 0; a < shape->n_axes; a++) {
    *first = *first * shape->extent[a] + box->start[a];
    *last = *last * shape->extent[a] + box->start[a] + box->count[a] - 1;
  }
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
  // The first cut goes to the replica that is drawn, the next to the one after it, and so on. The
  // place of the box is drawn with, lest one replica gets all the small boxes of an array.
  int64_t begin, end;
  tri_ckpt_span(&array->shape, &array->box, &begin, &end);
  const uint64_t key = tri_random_key((uint64_t)begin, array->name);
  const int first = (int)(key % (uint64_t)array->n_replicas);
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
