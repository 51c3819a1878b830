#include <math.h>

#include "device/check.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

static const double SQRT_2_OVER_PI = 0.7978845608028654;

// The tanh form of GELU: Hendrycks and Gimpel 2016, section 2.
static double gelu_forward(double y)
{
  return 0.5 * y * (1.0 + tanh(SQRT_2_OVER_PI * (y + 0.044715 * y * y * y)));
}

static double gelu_derivative(double y)
{
  const double t = tanh(SQRT_2_OVER_PI * (y + 0.044715 * y * y * y));
  const double inner = SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * y * y);
  return 0.5 * (1.0 + t) + 0.5 * y * (1.0 - t * t) * inner;
}

static tri_status check(const char *kernel, int64_t N, int64_t IC, int64_t OC, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, 3, (int64_t[]){N, IC, OC}));
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  return TRI_OK;
}

// Nothing to plan: the plain loops take any shape.
tri_status tri_cpu_linear_prepare(struct tri_stream *stream, int64_t N, int64_t IC, int64_t OC,
                                  tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(check("linear_prepare", N, IC, OC, dtype));
  return TRI_OK;
}

tri_status tri_cpu_linear_forward(struct tri_stream *stream, void *out, void *gelu, const void *x,
                                  const void *w, const void *bias, int64_t N, int64_t IC,
                                  int64_t OC, tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(check("linear_forward", N, IC, OC, dtype));
  if (IC == 0) return TRI_OK;
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++) {
    for (int64_t o = 0; o < OC; o++) {
      double sum = bias == NULL ? 0.0 : tri_cpu_load(bias, dtype, o);
      for (int64_t i = 0; i < IC; i++)
        sum += tri_cpu_load(x, dtype, n * IC + i) * tri_cpu_load(w, dtype, o * IC + i);
      tri_cpu_store(out, dtype, n * OC + o, sum);
      if (gelu != NULL)
        tri_cpu_store(gelu, dtype, n * OC + o, gelu_forward(tri_cpu_load(out, dtype, n * OC + o)));
    }
  }
  return TRI_OK;
}

tri_status tri_cpu_linear_backward_input(struct tri_stream *stream, void *dx, const void *dout,
                                         const void *w, const void *pre, int64_t N, int64_t IC,
                                         int64_t OC, tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(check("linear_backward_input", N, IC, OC, dtype));
  if (OC == 0) return TRI_OK;
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++) {
    for (int64_t i = 0; i < IC; i++) {
      double sum = 0.0;
      for (int64_t o = 0; o < OC; o++)
        sum += tri_cpu_load(dout, dtype, n * OC + o) * tri_cpu_load(w, dtype, o * IC + i);
      if (pre != NULL) sum *= gelu_derivative(tri_cpu_load(pre, dtype, n * IC + i));
      tri_cpu_store(dx, dtype, n * IC + i, sum);
    }
  }
  return TRI_OK;
}

tri_status tri_cpu_linear_backward_weight(struct tri_stream *stream, float *dw, float *dbias,
                                          const void *dout, const void *x, int64_t N, int64_t IC,
                                          int64_t OC, tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(check("linear_backward_weight", N, IC, OC, dtype));
  if (N == 0 || IC == 0) return TRI_OK;
#pragma omp parallel for
  for (int64_t o = 0; o < OC; o++) {
    for (int64_t i = 0; i < IC; i++) {
      double sum = 0.0;
      for (int64_t n = 0; n < N; n++)
        sum += tri_cpu_load(dout, dtype, n * OC + o) * tri_cpu_load(x, dtype, n * IC + i);
      dw[o * IC + i] = (float)((double)dw[o * IC + i] + sum);
    }
    if (dbias != NULL) {
      double sum = 0.0;
      for (int64_t n = 0; n < N; n++)
        sum += tri_cpu_load(dout, dtype, n * OC + o);
      dbias[o] = (float)((double)dbias[o] + sum);
    }
  }
  return TRI_OK;
}
