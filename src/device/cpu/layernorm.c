#include <math.h>

#include "device/check.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

// One row: Ba et al. 2016, equations 3 and 4, with the biased variance in two passes.
static void norm_row(void *out, float *mean, float *rstd, const void *x, const void *w,
                     const void *b, int64_t n, int64_t C, float eps, tri_dtype dtype)
{
  double m = 0.0;
  for (int64_t c = 0; c < C; c++)
    m += tri_cpu_load(x, dtype, n * C + c);
  m /= (double)C;

  double variance = 0.0;
  for (int64_t c = 0; c < C; c++) {
    const double shifted = tri_cpu_load(x, dtype, n * C + c) - m;
    variance += shifted * shifted;
  }
  variance /= (double)C;
  const double r = 1.0 / sqrt(variance + (double)eps);

  for (int64_t c = 0; c < C; c++) {
    const double norm = (tri_cpu_load(x, dtype, n * C + c) - m) * r;
    const double value = norm * tri_cpu_load(w, dtype, c) + tri_cpu_load(b, dtype, c);
    tri_cpu_store(out, dtype, n * C + c, value);
  }
  mean[n] = (float)m;
  rstd[n] = (float)r;
}

tri_status tri_cpu_layernorm_forward(struct tri_stream *stream, void *out, float *mean, float *rstd,
                                     const void *x, const void *w, const void *b, int64_t N,
                                     int64_t C, float eps, tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("layernorm_forward", 2, (int64_t[]){N, C}));
  TRI_CALL(tri_kernel_check_dtype("layernorm_forward", dtype));
  if (C == 0) return TRI_OK;
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++)
    norm_row(out, mean, rstd, x, w, b, n, C, eps, dtype);
  return TRI_OK;
}

// dx += rstd (g - mean(g) - norm mean(g norm)) with g = dout w and norm = (x - mean) rstd.
static void norm_row_backward(void *dx, const void *dout, const void *x, const void *w, double mean,
                              double rstd, int64_t n, int64_t C, tri_dtype dtype)
{
  double g_mean = 0.0, g_norm_mean = 0.0;
  for (int64_t c = 0; c < C; c++) {
    const double norm = (tri_cpu_load(x, dtype, n * C + c) - mean) * rstd;
    const double g = tri_cpu_load(dout, dtype, n * C + c) * tri_cpu_load(w, dtype, c);
    g_mean += g;
    g_norm_mean += g * norm;
  }
  g_mean /= (double)C;
  g_norm_mean /= (double)C;

  for (int64_t c = 0; c < C; c++) {
    const double norm = (tri_cpu_load(x, dtype, n * C + c) - mean) * rstd;
    const double g = tri_cpu_load(dout, dtype, n * C + c) * tri_cpu_load(w, dtype, c);
    const double value = rstd * (g - g_mean - norm * g_norm_mean);
    tri_cpu_store(dx, dtype, n * C + c, tri_cpu_load(dx, dtype, n * C + c) + value);
  }
}

tri_status tri_cpu_layernorm_backward(struct tri_stream *stream, void *dx, float *dw, float *db,
                                      const void *dout, const void *x, const void *w,
                                      const float *mean, const float *rstd, int64_t N, int64_t C,
                                      tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("layernorm_backward", 2, (int64_t[]){N, C}));
  TRI_CALL(tri_kernel_check_dtype("layernorm_backward", dtype));
  if (N == 0 || C == 0) return TRI_OK;
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++)
    norm_row_backward(dx, dout, x, w, (double)mean[n], (double)rstd[n], n, C, dtype);
#pragma omp parallel for
  for (int64_t c = 0; c < C; c++) {
    double w_sum = 0.0, b_sum = 0.0;
    for (int64_t n = 0; n < N; n++) {
      const double norm = (tri_cpu_load(x, dtype, n * C + c) - (double)mean[n]) * (double)rstd[n];
      w_sum += tri_cpu_load(dout, dtype, n * C + c) * norm;
      b_sum += tri_cpu_load(dout, dtype, n * C + c);
    }
    dw[c] = (float)((double)dw[c] + w_sum);
    db[c] = (float)((double)db[c] + b_sum);
  }
  return TRI_OK;
}
