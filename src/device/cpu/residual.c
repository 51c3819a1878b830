#include "device/check.h"
#include "device/cpu/dropout.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

tri_status tri_cpu_residual_forward(struct tri_stream *stream, void *out, const void *x,
                                    const void *delta, int64_t N, int64_t T, int64_t C,
                                    tri_dtype dtype, const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_rows("residual_forward", N, T, C, dtype, dropout));
#pragma omp parallel for
  for (int64_t i = 0; i < N * C; i++) {
    const double factor = tri_cpu_dropout_row_factor(dropout, i / C, T, C, i % C);
    const double branch = factor * tri_cpu_load(delta, dtype, i);
    tri_cpu_store(out, dtype, i, tri_cpu_load(x, dtype, i) + branch);
  }
  return TRI_OK;
}

tri_status tri_cpu_residual_backward(struct tri_stream *stream, void *ddelta, const void *dout,
                                     int64_t N, int64_t T, int64_t C, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_rows("residual_backward", N, T, C, dtype, dropout));
#pragma omp parallel for
  for (int64_t i = 0; i < N * C; i++) {
    const double factor = tri_cpu_dropout_row_factor(dropout, i / C, T, C, i % C);
    tri_cpu_store(ddelta, dtype, i, factor * tri_cpu_load(dout, dtype, i));
  }
  return TRI_OK;
}

tri_status tri_cpu_residual_layernorm_forward(struct tri_stream *stream, void *residual, void *out,
                                              float *mean, float *rstd, const void *x,
                                              const void *delta, const void *w, const void *b,
                                              int64_t N, int64_t T, int64_t C, float eps,
                                              tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("residual_layernorm_forward", N, T, C, dtype, dropout));
  TRI_CALL(tri_cpu_residual_forward(stream, residual, x, delta, N, T, C, dtype, dropout));
  TRI_CALL(tri_cpu_layernorm_forward(stream, out, mean, rstd, residual, w, b, N, C, eps, dtype));
  return TRI_OK;
}
