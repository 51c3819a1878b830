// Twin of src/device/cpu/cross_entropy.c.
//
// One block for each row, and two passes over it: the first finds the largest logit and the sum of
// exponentials together, each thread rescaling its sum when its largest grows (Milakov and
// Gimelshein 2018); the second writes. A row of 50304 bf16 is 98 KiB, so the second pass reads it
// from the cache.

#include <cfloat>

#include "element.cuh"
#include "launch.cuh"
#include "launchers.h"
#include "reduce.cuh"

enum { MAX_THREADS = 512, FEW_THREADS = 128 };

// The largest of this thread's logits so far, and the sum of exp(logit - largest).
struct running_sum {
  float largest;
  float sum;
};

// The run of W logits at column v; columns from V on are padding, and count as -inf.
template <class T, int W>
__device__ __forceinline__ void load_logits(float (&x)[W], const T *logits, int64_t v, int64_t V)
{
  load(x, logits + v);
#pragma unroll
  for (int i = 0; i < W; i++)
    if (v + i >= V) x[i] = -INFINITY;
}

template <int W>
__device__ __forceinline__ void add_logits(running_sum &running, const float (&x)[W])
{
  float largest = running.largest;
#pragma unroll
  for (int i = 0; i < W; i++)
    largest = fmaxf(largest, x[i]);
  float sum = running.sum * __expf(running.largest - largest);
#pragma unroll
  for (int i = 0; i < W; i++)
    sum += __expf(x[i] - largest);
  running = running_sum{largest, sum};
}

// The largest of logits[:V] and the log of the sum of exp(logit - largest), for the whole block.
template <class T, int W>
__device__ __forceinline__ void log_sum_exp(float &largest, float &log_sum, const T *logits,
                                            int64_t V)
{
  // Not -inf: a difference of two infinities would be NaN.
  running_sum running = {-FLT_MAX, 0.0f};
#pragma unroll 4
  for (int64_t v = (int64_t)threadIdx.x * W; v < V; v += (int64_t)blockDim.x * W) {
    float x[W];
    load_logits(x, logits, v, V);
    add_logits(running, x);
  }
  largest = block_max(running.largest);
  log_sum = logf(block_sum(running.sum * __expf(running.largest - largest)));
}

// logits = scale (softmax(logits[:V]) - 1 at the target), 0 in padding and in ignored rows.
template <class T, int W>
__device__ __forceinline__ void write_slopes(T *logits, float largest, float log_sum,
                                             int64_t target, float scale, int64_t V, int64_t Vp)
{
  const bool ignored = target == -1;
#pragma unroll 4
  for (int64_t v = (int64_t)threadIdx.x * W; v < Vp; v += (int64_t)blockDim.x * W) {
    float slopes[W] = {};
    if (!ignored && v < V) {
      float x[W];
      load_logits(x, logits, v, V);
#pragma unroll
      for (int i = 0; i < W; i++) {
        const float probability = __expf((x[i] - largest) - log_sum);
        slopes[i] = scale * (probability - (v + i == target ? 1.0f : 0.0f));
      }
    }
    store(logits + v, slopes);
  }
}

// No write of the second pass comes before thread 0 has read the target's logit: the block's sums
// lie between them.
template <class T, int W, bool BACKWARD, class Logits>
static __global__ void __launch_bounds__(MAX_THREADS)
    cross_entropy(float *losses, Logits *logits, const int32_t *targets, float scale, int64_t N,
                  int64_t V, int64_t Vp)
{
  for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    const int64_t target = targets[n];
    const bool ignored = target == -1;
    const float at_target =
        ignored || threadIdx.x != 0 ? 0.0f : to_float((T)logits[n * Vp + target]);
    float largest = 0.0f, log_sum = 0.0f;
    if (!ignored) log_sum_exp<T, W>(largest, log_sum, logits + n * Vp, V);
    if (threadIdx.x == 0) losses[n] = ignored ? 0.0f : (largest - at_target) + log_sum;
    if constexpr (BACKWARD)
      write_slopes<T, W>(logits + n * Vp, largest, log_sum, target, scale, V, Vp);
  }
}

// `Logits` is T, const where they are only read.
template <class T, bool BACKWARD, class Logits>
static cudaError_t launch_cross_entropy(const tri_launch *launch, float *losses, Logits *logits,
                                        const int32_t *targets, float scale, int64_t N, int64_t V,
                                        int64_t Vp)
{
  with_runs<RUN<T>>(are_aligned(logits) && Vp % RUN<T> == 0, [=](auto w) {
    const int threads = Vp >= 4 * w.value * MAX_THREADS ? MAX_THREADS : FEW_THREADS;
    TRI_LAUNCH((cross_entropy<T, w.value, BACKWARD, Logits>), dim3(grid_of(N, 1)), dim3(threads), 0,
               launch->stream, losses, logits, targets, scale, N, V, Vp);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_cross_entropy_forward(const tri_launch *launch, float *losses,
                                                        const void *logits, const int32_t *targets,
                                                        int64_t N, int64_t V, int64_t Vp,
                                                        tri_dtype dtype)
{
  if (N == 0 || V == 0) return cudaSuccess;
  if (dtype == TRI_DTYPE_BF16)
    return launch_cross_entropy<tri_bf16, false>(launch, losses, (const tri_bf16 *)logits, targets,
                                                 0.0f, N, V, Vp);
  return launch_cross_entropy<float, false>(launch, losses, (const float *)logits, targets, 0.0f, N,
                                            V, Vp);
}

extern "C" cudaError_t tri_launch_cross_entropy_backward(const tri_launch *launch, float *losses,
                                                         void *logits, const int32_t *targets,
                                                         float scale, int64_t N, int64_t V,
                                                         int64_t Vp, tri_dtype dtype)
{
  if (N == 0 || V == 0) return cudaSuccess;
  if (dtype == TRI_DTYPE_BF16)
    return launch_cross_entropy<tri_bf16, true>(launch, losses, (tri_bf16 *)logits, targets, scale,
                                                N, V, Vp);
  return launch_cross_entropy<float, true>(launch, losses, (float *)logits, targets, scale, N, V,
                                           Vp);
}
