#include <math.h>
#include <stdbool.h>

#include "device/check.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

// log of the sum of exp(logits[n, :V]), by way of the largest so that no term overflows.
static double log_sum_exp(const void *logits, int64_t n, int64_t V, int64_t Vp, tri_dtype dtype)
{
  double largest = -INFINITY;
  for (int64_t v = 0; v < V; v++) {
    // Not fmax: gcc 12 for aarch64 has an internal error where it makes a vector loop of that.
    const double value = tri_cpu_load(logits, dtype, n * Vp + v);
    if (value > largest) largest = value;
  }
  double sum = 0.0;
  for (int64_t v = 0; v < V; v++)
    sum += exp(tri_cpu_load(logits, dtype, n * Vp + v) - largest);
  return largest + log(sum);
}

tri_status tri_cpu_cross_entropy_forward(struct tri_stream *stream, float *losses,
                                         const void *logits, const int32_t *targets, int64_t N,
                                         int64_t V, int64_t Vp, tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_classifier("cross_entropy_forward", N, V, Vp, dtype));
  if (V == 0) return TRI_OK;
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++) {
    const bool ignored = targets[n] == -1;
    losses[n] = ignored ? 0.0f
                        : (float)(log_sum_exp(logits, n, V, Vp, dtype) -
                                  tri_cpu_load(logits, dtype, n * Vp + targets[n]));
  }
  return TRI_OK;
}

tri_status tri_cpu_cross_entropy_backward(struct tri_stream *stream, float *losses, void *logits,
                                          const int32_t *targets, float scale, int64_t N, int64_t V,
                                          int64_t Vp, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_classifier("cross_entropy_backward", N, V, Vp, dtype));
  if (V == 0) return TRI_OK;
  TRI_CALL(tri_cpu_cross_entropy_forward(stream, losses, logits, targets, N, V, Vp, dtype));
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++) {
    const bool ignored = targets[n] == -1;
    const double lse = ignored ? 0.0 : log_sum_exp(logits, n, V, Vp, dtype);
    for (int64_t v = 0; v < Vp; v++) {
      double slope = 0.0;
      if (!ignored && v < V)
        slope = exp(tri_cpu_load(logits, dtype, n * Vp + v) - lse) - (v == targets[n] ? 1.0 : 0.0);
      tri_cpu_store(logits, dtype, n * Vp + v, (double)scale * slope);
    }
  }
  return TRI_OK;
}
