#include "device/kernel_arrays.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { GUARD_BYTES = 256, READ_GUARD = 0xff, WRITE_GUARD = 0x3d };

double kernel_ulp(tri_dtype dtype)
{
  switch (dtype) {
  case TRI_DTYPE_F32: return 0x1p-23;
  case TRI_DTYPE_BF16: return 0x1p-7;
  case TRI_DTYPE_F64: return 0x1p-52;
  default: return 0.0;
  }
}

void kernel_run_begin(kernel_run *run, const kernel_comparison *comparison, const char *format, ...)
{
  memset(run, 0, sizeof *run);
  run->comparison = comparison;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(run->label, sizeof run->label, format, arguments);
  va_end(arguments);
  run->key = tri_random_key(0, run->label);
}

void *kernel_host(const kernel_array *array)
{
  return array->before + GUARD_BYTES;
}

static double get(const void *x, tri_dtype dtype, int64_t i)
{
  switch (dtype) {
  case TRI_DTYPE_F32: return (double)((const float *)x)[i];
  case TRI_DTYPE_BF16: return (double)tri_bf16_to_float(((const tri_bf16 *)x)[i]);
  case TRI_DTYPE_F64: return ((const double *)x)[i];
  case TRI_DTYPE_I32: return (double)((const int32_t *)x)[i];
  case TRI_DTYPE_U16: return (double)((const uint16_t *)x)[i];
  }
  return NAN;
}

double kernel_array_get(const kernel_array *array, int64_t i)
{
  return get(kernel_host(array), array->dtype, i);
}

void kernel_array_set(kernel_array *array, int64_t i, double value)
{
  void *x = kernel_host(array);
  switch (array->dtype) {
  case TRI_DTYPE_F32: ((float *)x)[i] = (float)value; break;
  case TRI_DTYPE_BF16: ((tri_bf16 *)x)[i] = tri_bf16_from_float((float)value); break;
  case TRI_DTYPE_F64: ((double *)x)[i] = value; break;
  case TRI_DTYPE_I32: ((int32_t *)x)[i] = (int32_t)value; break;
  case TRI_DTYPE_U16: ((uint16_t *)x)[i] = (uint16_t)value; break;
  }
}

static size_t data_bytes(const kernel_array *array)
{
  return (size_t)array->n * tri_dtype_size(array->dtype);
}

static size_t block_bytes(const kernel_array *array)
{
  return data_bytes(array) + 2 * GUARD_BYTES;
}

// The host's side is memory that both devices can copy from and to.
static tri_status allocate(const kernel_comparison *comparison, kernel_array *array)
{
  tri_device *pinning = comparison->sides[1].device;
  TRI_CALL(tri_device_alloc_host(pinning, block_bytes(array), (void **)&array->before));
  for (int side = 0; side < 2; side++) {
    TRI_CALL(tri_device_alloc_host(pinning, block_bytes(array), (void **)&array->after[side]));
    TRI_CALL(
        tri_device_alloc(comparison->sides[side].device, block_bytes(array), &array->device[side]));
  }
  return TRI_OK;
}

kernel_array *kernel_run_add(kernel_run *run, const char *name, kernel_role role, tri_dtype dtype,
                             int64_t n, double amplitude, double offset)
{
  if (run->status == TRI_OK && run->n_arrays == KERNEL_ARRAYS)
    run->status = TRI_ERROR(TRI_ERR_INTERNAL, "%s: more than %d arrays", run->label, KERNEL_ARRAYS);
  if (run->status != TRI_OK) return NULL;
  kernel_array *array = &run->arrays[run->n_arrays++];
  *array = (kernel_array){.name = name, .role = role, .dtype = dtype, .n = n};
  run->status = allocate(run->comparison, array);
  if (run->status != TRI_OK) return NULL;

  memset(array->before, role == KERNEL_INPUT ? READ_GUARD : WRITE_GUARD, block_bytes(array));
  const uint64_t key = tri_random_key(run->key, name);
  for (int64_t i = 0; i < n && role != KERNEL_OUTPUT; i++) {
    const double uniform = tri_random_uniform(key, (uint64_t)i);
    kernel_array_set(array, i,
                     offset + amplitude * (dtype == TRI_DTYPE_I32 ? uniform : 2 * uniform - 1));
  }
  return array;
}

kernel_array *kernel_run_output(kernel_run *run, const char *name, tri_dtype dtype, int64_t n,
                                double absolute)
{
  kernel_array *array = kernel_run_add(run, name, KERNEL_OUTPUT, dtype, n, 0.0, 0.0);
  if (array == NULL) return NULL;
  array->absolute = absolute;
  array->relative = kernel_ulp(dtype);
  return array;
}

void kernel_array_take_result(kernel_run *run, kernel_array *to, const kernel_array *from)
{
  if (run->status != TRI_OK) return;
  memcpy(kernel_host(to), from->after[0] + GUARD_BYTES, data_bytes(to));
}

bool kernel_run_start(kernel_run *run, int side)
{
  const kernel_side *s = &run->comparison->sides[side];
  for (int a = 0; run->status == TRI_OK && a < run->n_arrays; a++) {
    const kernel_array *array = &run->arrays[a];
    run->status = tri_stream_copy_to_device(s->stream, array->device[side], array->before,
                                            block_bytes(array));
  }
  if (run->status == TRI_OK) run->status = tri_stream_synchronize(s->stream);
  if (s->n_threads > 0) omp_set_num_threads(s->n_threads);
  return run->status == TRI_OK;
}

void *kernel_at(const kernel_array *array, int side)
{
  return array == NULL ? NULL : (char *)array->device[side] + GUARD_BYTES;
}

void kernel_run_finish(kernel_run *run, int side, tri_status status)
{
  const kernel_side *s = &run->comparison->sides[side];
  if (run->status != TRI_OK) return;
  if (status != TRI_OK)
    run->status = TRI_ERROR(status, "%s on %s: %s", run->label, s->name, tri_error_message());
  for (int a = 0; run->status == TRI_OK && a < run->n_arrays; a++) {
    const kernel_array *array = &run->arrays[a];
    run->status = tri_stream_copy_to_host(s->stream, array->after[side], array->device[side],
                                          block_bytes(array));
  }
  if (run->status == TRI_OK) run->status = tri_stream_synchronize(s->stream);
}

// No byte outside the array has changed, and none at all of an input.
static tri_status check_untouched(const kernel_run *run, const kernel_array *array, int side)
{
  const size_t end = GUARD_BYTES + data_bytes(array);
  for (size_t i = 0; i < block_bytes(array); i++) {
    const bool guarded = array->role == KERNEL_INPUT || i < GUARD_BYTES || i >= end;
    TRI_CHECK(!guarded || array->after[side][i] == array->before[i], TRI_ERR_NUMERIC,
              "%s: %s writes at byte %lld of %s, which has %zu bytes%s", run->label,
              run->comparison->sides[side].name, (long long)i - GUARD_BYTES, array->name,
              data_bytes(array), array->role == KERNEL_INPUT ? " and is an input" : "");
  }
  return TRI_OK;
}

static tri_status check_equal(const kernel_run *run, const kernel_array *array)
{
  const void *want_all = array->after[0] + GUARD_BYTES, *got_all = array->after[1] + GUARD_BYTES;
  const size_t size = tri_dtype_size(array->dtype);
  const bool same_bits = run->comparison->same_bits;
  for (int64_t i = 0; i < array->n; i++) {
    const size_t at = (size_t)i * size;
    if (memcmp((const char *)want_all + at, (const char *)got_all + at, size) == 0) continue;
    const double want = get(want_all, array->dtype, i), got = get(got_all, array->dtype, i);
    // An infinity is nothing but itself.
    const double finite = isfinite(want) ? fabs(want) : 0.0;
    const double allowed = same_bits ? 0.0 : array->absolute + array->relative * finite;
    TRI_CHECK(!same_bits && fabs(got - want) <= allowed, TRI_ERR_NUMERIC,
              "%s: %s[%lld] is %.9g on %s, %.9g on %s: apart by %.3g, allowed %.3g", run->label,
              array->name, (long long)i, got, run->comparison->sides[1].name, want,
              run->comparison->sides[0].name, fabs(got - want), allowed);
  }
  return TRI_OK;
}

static tri_status check_all(const kernel_run *run)
{
  for (int a = 0; a < run->n_arrays; a++) {
    for (int side = 0; side < 2; side++)
      TRI_CALL(check_untouched(run, &run->arrays[a], side));
    if (run->arrays[a].role != KERNEL_INPUT) TRI_CALL(check_equal(run, &run->arrays[a]));
  }
  return TRI_OK;
}

tri_status kernel_run_end(kernel_run *run)
{
  if (run->status == TRI_OK) run->status = check_all(run);
  for (int a = 0; a < run->n_arrays; a++) {
    kernel_array *array = &run->arrays[a];
    for (int side = 0; side < 2; side++) {
      tri_device_free_host(run->comparison->sides[1].device, (void **)&array->after[side]);
      tri_device_free(run->comparison->sides[side].device, &array->device[side]);
    }
    tri_device_free_host(run->comparison->sides[1].device, (void **)&array->before);
  }
  return run->status;
}
