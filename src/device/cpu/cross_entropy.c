#include <math.h>
#include <stdbool.h>

#include "device/check.h"
#include "device/cpu/combine.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

// The largest of logits[n, :V], -inf where V is 0.
static double largest_of(const void *logits, int64_t n, int64_t V, int64_t Vp, tri_dtype dtype)
{
  double largest = -INFINITY;
  for (int64_t v = 0; v < V; v++) {
    // Not fmax: gcc 12 for aarch64 has an internal error where it makes a vector loop of that.
    const double value = tri_cpu_load(logits, dtype, n * Vp + v);
    if (value > largest) largest = value;
  }
  return largest;
}

// The sum of exp(logits[n, :V] - largest).
static double exp_sum(const void *logits, int64_t n, int64_t V, int64_t Vp, double largest,
                      tri_dtype dtype)
{
  double sum = 0.0;
  for (int64_t v = 0; v < V; v++)
    sum += exp(tri_cpu_load(logits, dtype, n * Vp + v) - largest);
  return sum;
}

// log of the sum of exp(logits[n, :V]), by way of the largest so that no term overflows.
static double log_sum_exp(const void *logits, int64_t n, int64_t V, int64_t Vp, tri_dtype dtype)
{
  const double largest = largest_of(logits, n, V, Vp, dtype);
  return largest + log(exp_sum(logits, n, V, Vp, largest, dtype));
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

tri_status tri_cpu_cross_entropy_statistics(struct tri_stream *stream, float *statistics,
                                            const void *logits, const int32_t *targets, int64_t N,
                                            int64_t V, int64_t Vp, int64_t first_token,
                                            tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(
      tri_kernel_check_classifier_part("cross_entropy_statistics", N, V, Vp, first_token, dtype));
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++) {
    const int64_t target = targets[n] - first_token, held = targets[n] == -1 ? 0 : V;
    const double largest = largest_of(logits, n, held, Vp, dtype);
    const bool here = target >= 0 && target < held;
    statistics[3 * n] = (float)largest; // a logit, so exact
    statistics[3 * n + 1] = (float)exp_sum(logits, n, held, Vp, largest, dtype);
    statistics[3 * n + 2] = here ? (float)tri_cpu_load(logits, dtype, n * Vp + target) : 0.0f;
  }
  return TRI_OK;
}

tri_status tri_cpu_cross_entropy_combine(struct tri_stream *stream, float *losses, float *softmax,
                                         const float *statistics, const int32_t *targets,
                                         int64_t count, int64_t N)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("cross_entropy_combine", 2, (int64_t[]){count, N}));
  if (count == 0) return TRI_OK;
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++)
    tri_cpu_combine_row(&losses[n], &softmax[2 * n], &statistics[3 * n], 3 * N, count,
                        targets[n] == -1);
  return TRI_OK;
}

tri_status tri_cpu_cross_entropy_gradient(struct tri_stream *stream, void *logits,
                                          const float *softmax, const int32_t *targets, float scale,
                                          int64_t N, int64_t V, int64_t Vp, int64_t first_token,
                                          tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(
      tri_kernel_check_classifier_part("cross_entropy_gradient", N, V, Vp, first_token, dtype));
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++) {
    const int64_t target = targets[n] - first_token;
    const double largest = (double)softmax[2 * n], inverse = (double)softmax[2 * n + 1];
    for (int64_t v = 0; v < Vp; v++) {
      double slope = 0.0;
      if (targets[n] != -1 && v < V)
        slope = exp(tri_cpu_load(logits, dtype, n * Vp + v) - largest) * inverse -
                (v == target ? 1.0 : 0.0);
      tri_cpu_store(logits, dtype, n * Vp + v, (double)scale * slope);
    }
  }
  return TRI_OK;
}
