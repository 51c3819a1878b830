#include "device/check.h"
#include "device/cpu/dropout.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

static tri_status check(const char *kernel, int64_t B, int64_t T, int64_t C, tri_dtype dtype,
                        const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, 3, (int64_t[]){B, T, C}));
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  TRI_CALL(tri_kernel_check_dropout(kernel, dropout));
  return TRI_OK;
}

tri_status tri_cpu_residual_forward(struct tri_stream *stream, void *out, const void *x,
                                    const void *delta, int64_t B, int64_t T, int64_t C,
                                    tri_dtype dtype, const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(check("residual_forward", B, T, C, dtype, dropout));
  for (int64_t b = 0; b < B; b++) {
#pragma omp parallel for
    for (int64_t e = 0; e < T * C; e++) {
      const int64_t i = b * T * C + e;
      const double branch = tri_cpu_dropout_factor(dropout, b, e) * tri_cpu_load(delta, dtype, i);
      tri_cpu_store(out, dtype, i, tri_cpu_load(x, dtype, i) + branch);
    }
  }
  return TRI_OK;
}

tri_status tri_cpu_residual_backward(struct tri_stream *stream, void *ddelta, const void *dout,
                                     int64_t B, int64_t T, int64_t C, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(check("residual_backward", B, T, C, dtype, dropout));
  for (int64_t b = 0; b < B; b++) {
#pragma omp parallel for
    for (int64_t e = 0; e < T * C; e++) {
      const int64_t i = b * T * C + e;
      const double factor = tri_cpu_dropout_factor(dropout, b, e);
      tri_cpu_store(ddelta, dtype, i, factor * tri_cpu_load(dout, dtype, i));
    }
  }
  return TRI_OK;
}

tri_status tri_cpu_residual_layernorm_forward(struct tri_stream *stream, void *residual, void *out,
                                              float *mean, float *rstd, const void *x,
                                              const void *delta, const void *w, const void *b,
                                              int64_t B, int64_t T, int64_t C, float eps,
                                              tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(check("residual_layernorm_forward", B, T, C, dtype, dropout));
  TRI_CALL(tri_cpu_residual_forward(stream, residual, x, delta, B, T, C, dtype, dropout));
  TRI_CALL(
      tri_cpu_layernorm_forward(stream, out, mean, rstd, residual, w, b, B * T, C, eps, dtype));
  return TRI_OK;
}
