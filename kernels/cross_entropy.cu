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

enum { MAX_THREADS = 512, FEW_THREADS = 128, COMBINE_THREADS = 256 };

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

// The largest of logits[:V] and the sum of exp(logit - largest), for the whole block.
template <class T, int W>
__device__ __forceinline__ void exp_sum(float &largest, float &sum, const T *logits, int64_t V)
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
  sum = block_sum(running.sum * __expf(running.largest - largest));
}

// logits = scale (probability_of(logit) - 1 at column `target`), 0 in padding and in ignored rows.
template <class T, int W, class Probability>
__device__ __forceinline__ void write_slopes(T *logits, int64_t target, bool ignored, float scale,
                                             int64_t V, int64_t Vp, Probability probability_of)
{
#pragma unroll 4
  for (int64_t v = (int64_t)threadIdx.x * W; v < Vp; v += (int64_t)blockDim.x * W) {
    float slopes[W] = {};
    if (!ignored && v < V) {
      float x[W];
      load_logits(x, logits, v, V);
#pragma unroll
      for (int i = 0; i < W; i++) {
        const float probability = probability_of(x[i]);
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
    if (!ignored) {
      exp_sum<T, W>(largest, log_sum, logits + n * Vp, V);
      log_sum = logf(log_sum);
    }
    if (threadIdx.x == 0) losses[n] = ignored ? 0.0f : (largest - at_target) + log_sum;
    if constexpr (BACKWARD)
      write_slopes<T, W>(logits + n * Vp, target, ignored, scale, V, Vp,
                         [=](float x) { return __expf((x - largest) - log_sum); });
  }
}

// A row of a part: as above, and what another part needs of it.
template <class T, int W>
static __global__ void __launch_bounds__(MAX_THREADS)
    cross_entropy_statistics(float *statistics, const T *logits, const int32_t *targets, int64_t N,
                             int64_t V, int64_t Vp, int64_t first_token)
{
  for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    const int64_t target = targets[n] - first_token;
    const bool empty = V == 0 || targets[n] == -1;
    float largest = -INFINITY, sum = 0.0f;
    if (!empty) exp_sum<T, W>(largest, sum, logits + n * Vp, V);
    if (threadIdx.x != 0) continue;
    statistics[3 * n] = largest;
    statistics[3 * n + 1] = sum;
    const bool here = !empty && target >= 0 && target < V;
    statistics[3 * n + 2] = here ? to_float(logits[n * Vp + target]) : 0.0f;
  }
}

// A thread for each row; the few parts one after the other.
static __global__ void __launch_bounds__(COMBINE_THREADS)
    cross_entropy_combine(float *losses, float *softmax, const float *statistics,
                          const int32_t *targets, int64_t count, int64_t N)
{
  const int64_t n_threads = (int64_t)gridDim.x * blockDim.x;
  for (int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; n < N; n += n_threads) {
    float largest = 0.0f, sum = 0.0f, at_target = 0.0f;
    const bool ignored = targets[n] == -1;
    if (!ignored) {
      largest = -INFINITY;
      for (int64_t k = 0; k < count; k++)
        largest = fmaxf(largest, statistics[3 * (k * N + n)]);
      for (int64_t k = 0; k < count; k++) {
        const float *part = statistics + 3 * (k * N + n);
        sum += part[1] * __expf(part[0] - largest);
        at_target += part[2];
      }
    }
    losses[n] = ignored ? 0.0f : (largest - at_target) + logf(sum);
    softmax[2 * n] = largest;
    softmax[2 * n + 1] = ignored ? 0.0f : 1.0f / sum;
  }
}

template <class T, int W>
static __global__ void __launch_bounds__(MAX_THREADS)
    cross_entropy_gradient(T *logits, const float *softmax, const int32_t *targets, float scale,
                           int64_t N, int64_t V, int64_t Vp, int64_t first_token)
{
  for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    const float largest = softmax[2 * n], inverse = softmax[2 * n + 1];
    write_slopes<T, W>(logits + n * Vp, targets[n] - first_token, targets[n] == -1, scale, V, Vp,
                       [=](float x) { return __expf(x - largest) * inverse; });
  }
}

static int threads_of(int64_t Vp, int W)
{
  return Vp >= 4 * W * MAX_THREADS ? MAX_THREADS : FEW_THREADS;
}

// `Logits` is T, const where they are only read.
template <class T, bool BACKWARD, class Logits>
static cudaError_t launch_cross_entropy(const tri_launch *launch, float *losses, Logits *logits,
                                        const int32_t *targets, float scale, int64_t N, int64_t V,
                                        int64_t Vp)
{
  with_runs<RUN<T>>(are_aligned(logits) && Vp % RUN<T> == 0, [=](auto w) {
    TRI_LAUNCH((cross_entropy<T, w.value, BACKWARD, Logits>), dim3(grid_of(N, 1)),
               dim3(threads_of(Vp, w.value)), 0, launch->stream, losses, logits, targets, scale, N,
               V, Vp);
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

template <class T>
static cudaError_t launch_statistics(const tri_launch *launch, float *statistics, const T *logits,
                                     const int32_t *targets, int64_t N, int64_t V, int64_t Vp,
                                     int64_t first_token)
{
  with_runs<RUN<T>>(are_aligned(logits) && Vp % RUN<T> == 0, [=](auto w) {
    TRI_LAUNCH((cross_entropy_statistics<T, w.value>), dim3(grid_of(N, 1)),
               dim3(threads_of(Vp, w.value)), 0, launch->stream, statistics, logits, targets, N, V,
               Vp, first_token);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_cross_entropy_statistics(const tri_launch *launch,
                                                           float *statistics, const void *logits,
                                                           const int32_t *targets, int64_t N,
                                                           int64_t V, int64_t Vp,
                                                           int64_t first_token, tri_dtype dtype)
{
  if (N == 0) return cudaSuccess;
  if (dtype == TRI_DTYPE_BF16)
    return launch_statistics(launch, statistics, (const tri_bf16 *)logits, targets, N, V, Vp,
                             first_token);
  return launch_statistics(launch, statistics, (const float *)logits, targets, N, V, Vp,
                           first_token);
}

extern "C" cudaError_t tri_launch_cross_entropy_combine(const tri_launch *launch, float *losses,
                                                        float *softmax, const float *statistics,
                                                        const int32_t *targets, int64_t count,
                                                        int64_t N)
{
  if (count == 0 || N == 0) return cudaSuccess;
  TRI_LAUNCH(cross_entropy_combine, dim3(grid_of(N, COMBINE_THREADS)), dim3(COMBINE_THREADS), 0,
             launch->stream, losses, softmax, statistics, targets, count, N);
  return cudaGetLastError();
}

template <class T>
static cudaError_t launch_gradient(const tri_launch *launch, T *logits, const float *softmax,
                                   const int32_t *targets, float scale, int64_t N, int64_t V,
                                   int64_t Vp, int64_t first_token)
{
  with_runs<RUN<T>>(are_aligned(logits) && Vp % RUN<T> == 0, [=](auto w) {
    TRI_LAUNCH((cross_entropy_gradient<T, w.value>), dim3(grid_of(N, 1)),
               dim3(threads_of(Vp, w.value)), 0, launch->stream, logits, softmax, targets, scale, N,
               V, Vp, first_token);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_cross_entropy_gradient(const tri_launch *launch, void *logits,
                                                         const float *softmax,
                                                         const int32_t *targets, float scale,
                                                         int64_t N, int64_t V, int64_t Vp,
                                                         int64_t first_token, tri_dtype dtype)
{
  if (N == 0 || Vp == 0) return cudaSuccess;
  if (dtype == TRI_DTYPE_BF16)
    return launch_gradient(launch, (tri_bf16 *)logits, softmax, targets, scale, N, V, Vp,
                           first_token);
  return launch_gradient(launch, (float *)logits, softmax, targets, scale, N, V, Vp, first_token);
}
