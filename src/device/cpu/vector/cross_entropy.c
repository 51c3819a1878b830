// Softmax and cross entropy. A row of logits comes from memory once, for the largest logit and the
// sum of exp together; the gradient reads it again from the second-level cache and writes it.
#include <math.h>

#include "device/check.h"
#include "device/cpu/combine.h"
#include "device/cpu/vector/tables.h"
#include "device/cpu/vector/vector.h"

// Vectors that share one look at the running maximum.
enum { GROUP = 8 };

// What a row's softmax needs: p_v = exp(x_v - largest) / sum.
typedef struct row_softmax {
  float largest, sum;
} row_softmax;

// Lane by lane a running maximum and a running sum of exp(x - maximum), taken down to the new
// maximum whenever it rises; the lanes are joined at the end.
V_INLINE row_softmax softmax_of(const void *x, int64_t at, int64_t V, tri_dtype dtype)
{
  vf largest = v_set(-INFINITY), sum = {0};
  for (int64_t v = 0; v < V; v += GROUP * W) {
    vf values[GROUP];
    vf higher = largest;
#pragma GCC unroll 8
    for (int u = 0; u < GROUP; u++) {
      const int64_t left = V - v - u * W;
      values[u] = v_load(x, at + v + u * W, left, dtype);
      if (left < W) values[u] = v_select(v_first(left), values[u], v_set(-INFINITY));
      higher = v_max(values[u], higher);
    }
    // Lanes that have seen nothing yet stay at -inf: there the difference would be a NaN.
    const vf base = v_select(higher == -INFINITY, v_set(0.0f), higher);
    vf group = {0};
#pragma GCC unroll 8
    for (int u = 0; u < GROUP; u++)
      group += v_exp(values[u] - base);
    sum = v_fma(sum, v_exp(largest - base), group);
    largest = higher;
  }
  const float row_largest = v_largest(largest);
  return (row_softmax){.largest = row_largest, .sum = v_sum(sum * v_exp(largest - row_largest))};
}

V_INLINE void loss_row(float *loss, row_softmax *softmax, const void *x, int64_t at, int64_t V,
                       int32_t target, tri_dtype dtype)
{
  *softmax = softmax_of(x, at, V, dtype);
  const float own = v_load(x, at + target, 1, dtype)[0];
  *loss = (float)(log((double)softmax->sum) + ((double)softmax->largest - (double)own));
}

static tri_status cross_entropy_forward(struct tri_stream *stream, float *losses,
                                        const void *logits, const int32_t *targets, int64_t N,
                                        int64_t V, int64_t Vp, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_classifier("cross_entropy_forward", N, V, Vp, dtype));
  if (V == 0) return TRI_OK;
#pragma omp parallel for num_threads(v_threads(stream, N *V)) schedule(static)
  for (int64_t n = 0; n < N; n++) {
    row_softmax softmax;
    losses[n] = 0.0f;
    if (targets[n] >= 0)
      V_BY_DTYPE(dtype, loss_row, &losses[n], &softmax, logits, n * Vp, V, targets[n]);
  }
  return TRI_OK;
}

V_INLINE void zero_row(void *x, int64_t at, int64_t n, tri_dtype dtype)
{
  for (int64_t v = 0; v < n; v += W)
    v_store(x, at + v, n - v, dtype, v_set(0.0f));
}

// x = scale (p - [v is the target])
V_INLINE void slope_row(float *loss, void *x, int64_t at, int64_t V, int64_t Vp, int32_t target,
                        float scale, tri_dtype dtype)
{
  row_softmax softmax;
  loss_row(loss, &softmax, x, at, V, target, dtype);
  const float factor = scale / softmax.sum;
  const float own = v_exp(v_load(x, at + target, 1, dtype) - softmax.largest)[0];
  for (int64_t v = 0; v < V; v += W) {
    const vf p = v_exp(v_load(x, at + v, V - v, dtype) - softmax.largest);
    v_store(x, at + v, V - v, dtype, p * factor);
  }
  v_store(x, at + target, 1, dtype, v_set((own / softmax.sum - 1.0f) * scale));
  zero_row(x, at + V, Vp - V, dtype);
}

static tri_status cross_entropy_backward(struct tri_stream *stream, float *losses, void *logits,
                                         const int32_t *targets, float scale, int64_t N, int64_t V,
                                         int64_t Vp, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_classifier("cross_entropy_backward", N, V, Vp, dtype));
  if (V == 0) return TRI_OK;
#pragma omp parallel for num_threads(v_threads(stream, N *V)) schedule(static)
  for (int64_t n = 0; n < N; n++) {
    if (targets[n] >= 0) {
      V_BY_DTYPE(dtype, slope_row, &losses[n], logits, n * Vp, V, Vp, targets[n], scale);
    } else {
      losses[n] = 0.0f;
      V_BY_DTYPE(dtype, zero_row, logits, n * Vp, Vp);
    }
  }
  return TRI_OK;
}

// --- a vocabulary in parts

V_INLINE void statistics_row(float *statistics, const void *x, int64_t at, int64_t V,
                             int64_t target, tri_dtype dtype)
{
  const row_softmax softmax = softmax_of(x, at, V, dtype);
  const bool here = target >= 0 && target < V;
  statistics[0] = softmax.largest;
  statistics[1] = softmax.sum;
  statistics[2] = here ? v_load(x, at + target, 1, dtype)[0] : 0.0f;
}

static tri_status cross_entropy_statistics(struct tri_stream *stream, float *statistics,
                                           const void *logits, const int32_t *targets, int64_t N,
                                           int64_t V, int64_t Vp, int64_t first_token,
                                           tri_dtype dtype)
{
  TRI_CALL(
      tri_kernel_check_classifier_part("cross_entropy_statistics", N, V, Vp, first_token, dtype));
#pragma omp parallel for num_threads(v_threads(stream, N *V)) schedule(static)
  for (int64_t n = 0; n < N; n++) {
    if (V > 0 && targets[n] >= 0) {
      V_BY_DTYPE(dtype, statistics_row, &statistics[3 * n], logits, n * Vp, V,
                 targets[n] - first_token);
    } else {
      statistics[3 * n] = -INFINITY;
      statistics[3 * n + 1] = statistics[3 * n + 2] = 0.0f;
    }
  }
  return TRI_OK;
}

static tri_status cross_entropy_combine(struct tri_stream *stream, float *losses, float *softmax,
                                        const float *statistics, const int32_t *targets,
                                        int64_t count, int64_t N)
{
  TRI_CALL(tri_kernel_check_sizes("cross_entropy_combine", 2, (int64_t[]){count, N}));
  if (count == 0) return TRI_OK;
#pragma omp parallel for num_threads(v_threads(stream, N *count)) schedule(static)
  for (int64_t n = 0; n < N; n++)
    tri_cpu_combine_row(&losses[n], &softmax[2 * n], &statistics[3 * n], 3 * N, count,
                        targets[n] == -1);
  return TRI_OK;
}

// x = scale (exp(x - largest) inverse - [v is the target])
V_INLINE void gradient_row(void *x, int64_t at, const float *softmax, int64_t V, int64_t Vp,
                           int64_t target, float scale, tri_dtype dtype)
{
  const float largest = softmax[0], inverse = softmax[1], factor = scale * inverse;
  const bool here = target >= 0 && target < V;
  const vf own = v_exp(v_load(x, at + (here ? target : 0), here ? 1 : 0, dtype) - largest);
  for (int64_t v = 0; v < V; v += W) {
    const vf p = v_exp(v_load(x, at + v, V - v, dtype) - largest);
    v_store(x, at + v, V - v, dtype, p * factor);
  }
  if (here) v_store(x, at + target, 1, dtype, v_set((own[0] * inverse - 1.0f) * scale));
  zero_row(x, at + V, Vp - V, dtype);
}

static tri_status cross_entropy_gradient(struct tri_stream *stream, void *logits,
                                         const float *softmax, const int32_t *targets, float scale,
                                         int64_t N, int64_t V, int64_t Vp, int64_t first_token,
                                         tri_dtype dtype)
{
  TRI_CALL(
      tri_kernel_check_classifier_part("cross_entropy_gradient", N, V, Vp, first_token, dtype));
#pragma omp parallel for num_threads(v_threads(stream, N *Vp)) schedule(static)
  for (int64_t n = 0; n < N; n++) {
    if (targets[n] >= 0) {
      V_BY_DTYPE(dtype, gradient_row, logits, n * Vp, &softmax[2 * n], V, Vp,
                 targets[n] - first_token, scale);
    } else {
      V_BY_DTYPE(dtype, zero_row, logits, n * Vp, Vp);
    }
  }
  return TRI_OK;
}

void TRI_ISA(tri_vector_cross_entropy)(tri_kernels *table)
{
  table->cross_entropy_forward = cross_entropy_forward;
  table->cross_entropy_backward = cross_entropy_backward;
  table->cross_entropy_statistics = cross_entropy_statistics;
  table->cross_entropy_combine = cross_entropy_combine;
  table->cross_entropy_gradient = cross_entropy_gradient;
}
