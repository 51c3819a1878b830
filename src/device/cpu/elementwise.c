#include "device/check.h"
#include "device/cpu/reference.h"

tri_status tri_cpu_fill(struct tri_stream *stream, float *out, float value, int64_t n)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("fill", 1, &n));
  for (int64_t i = 0; i < n; i++)
    out[i] = value;
  return TRI_OK;
}

tri_status tri_cpu_convert(struct tri_stream *stream, void *out, tri_dtype out_dtype, const void *x,
                           tri_dtype x_dtype, int64_t n)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("convert", 1, &n));
  TRI_CALL(tri_kernel_check_dtype("convert", out_dtype));
  TRI_CALL(tri_kernel_check_dtype("convert", x_dtype));
  for (int64_t i = 0; i < n; i++) {
    // In float, not double: a NaN keeps its bits where no rounding is due.
    const float value = x_dtype == TRI_DTYPE_BF16 ? tri_bf16_to_float(((const tri_bf16 *)x)[i])
                                                  : ((const float *)x)[i];
    if (out_dtype == TRI_DTYPE_BF16) {
      ((tri_bf16 *)out)[i] = tri_bf16_from_float(value);
    } else {
      ((float *)out)[i] = value;
    }
  }
  return TRI_OK;
}

tri_status tri_cpu_add(struct tri_stream *stream, float *out, const float *a, const float *b,
                       int64_t n)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("add", 1, &n));
  for (int64_t i = 0; i < n; i++)
    out[i] = a[i] + b[i];
  return TRI_OK;
}

tri_status tri_cpu_sum_squares(struct tri_stream *stream, double *out, const float *x, int64_t n)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("sum_squares", 1, &n));
#pragma omp parallel for
  for (int64_t k = 0; k < (n + TRI_NORM_CHUNK - 1) / TRI_NORM_CHUNK; k++) {
    const int64_t begin = k * TRI_NORM_CHUNK;
    const int64_t end = begin + TRI_NORM_CHUNK < n ? begin + TRI_NORM_CHUNK : n;
    double sum = 0.0;
    for (int64_t i = begin; i < end; i++)
      sum += (double)x[i] * (double)x[i];
    out[k] = sum;
  }
  return TRI_OK;
}

tri_status tri_cpu_sum(struct tri_stream *stream, double *out, const float *x, int64_t n)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("sum", 1, &n));
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)x[i];
  out[0] = sum;
  return TRI_OK;
}
