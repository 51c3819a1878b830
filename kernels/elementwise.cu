// Twin of src/device/cpu/elementwise.c.

#include "element.cuh"
#include "launch.cuh"
#include "launchers.h"
#include "reduce.cuh"

enum { THREADS = 256 };

template <int W>
static __global__ void __launch_bounds__(THREADS) fill(float *out, float value, int64_t n)
{
  each_run<W>(n, [=](int64_t i, auto w) {
    float values[w.value];
#pragma unroll
    for (int k = 0; k < w.value; k++)
      values[k] = value;
    store(out + i, values);
  });
}

template <int W, class Out, class In>
static __global__ void __launch_bounds__(THREADS) convert(Out *out, const In *x, int64_t n)
{
  each_run<W>(n, [=](int64_t i, auto w) {
    float values[w.value];
    load(values, x + i);
    store(out + i, values);
  });
}

template <int W>
static __global__ void __launch_bounds__(THREADS)
    add(float *out, const float *a, const float *b, int64_t n)
{
  each_run<W>(n, [=](int64_t i, auto w) {
    float values[w.value], others[w.value];
    load(values, a + i);
    load(others, b + i);
#pragma unroll
    for (int k = 0; k < w.value; k++)
      values[k] += others[k];
    store(out + i, values);
  });
}

// out[k] = the sum (of the squares) of the k-th `chunk` elements of x, one block each.
template <int W, bool SQUARES>
static __global__ void __launch_bounds__(THREADS)
    sum_chunks(double *out, const float *x, int64_t n, int64_t chunk)
{
  const int64_t n_chunks = (n + chunk - 1) / chunk;
  for (int64_t k = blockIdx.x; k < n_chunks; k += gridDim.x) {
    const int64_t begin = k * chunk;
    const int64_t end = begin + chunk < n ? begin + chunk : n;
    double sum = 0.0;
#pragma unroll 4
    for (int64_t i = begin + (int64_t)threadIdx.x * W; i < end; i += THREADS * W) {
      float values[W] = {};
      if (i + W <= end) {
        load(values, x + i);
      } else {
        for (int w = 0; w < W; w++)
          if (i + w < end) values[w] = x[i + w];
      }
#pragma unroll
      for (int w = 0; w < W; w++)
        sum += SQUARES ? (double)values[w] * (double)values[w] : (double)values[w];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[k] = sum;
  }
}

// out[0] = the sum of n partial sums, by one block.
static __global__ void __launch_bounds__(THREADS)
    sum_partials(double *out, const double *partial, int64_t n)
{
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < n; i += THREADS)
    sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[0] = sum;
}

extern "C" cudaError_t tri_launch_fill(const tri_launch *launch, float *out, float value, int64_t n)
{
  if (n == 0) return cudaSuccess;
  with_runs<4>(are_aligned(out), [=](auto w) {
    TRI_LAUNCH((fill<w.value>), dim3(grid_of(n, THREADS * w.value)), dim3(THREADS), 0,
               launch->stream, out, value, n);
  });
  return cudaGetLastError();
}

// 16 bytes a thread of the narrower type.
template <class Out, class In>
static cudaError_t launch_convert(const tri_launch *launch, void *out, const void *x, int64_t n)
{
  constexpr int W = RUN < Out >> RUN<In> ? RUN<Out> : RUN<In>;
  with_runs<W>(are_aligned(out, x), [=](auto w) {
    TRI_LAUNCH((convert<w.value, Out, In>), dim3(grid_of(n, THREADS * w.value)), dim3(THREADS), 0,
               launch->stream, (Out *)out, (const In *)x, n);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_convert(const tri_launch *launch, void *out, tri_dtype out_dtype,
                                          const void *x, tri_dtype x_dtype, int64_t n)
{
  if (n == 0) return cudaSuccess;
  if (out_dtype == TRI_DTYPE_BF16)
    return x_dtype == TRI_DTYPE_BF16 ? launch_convert<tri_bf16, tri_bf16>(launch, out, x, n)
                                     : launch_convert<tri_bf16, float>(launch, out, x, n);
  return x_dtype == TRI_DTYPE_BF16 ? launch_convert<float, tri_bf16>(launch, out, x, n)
                                   : launch_convert<float, float>(launch, out, x, n);
}

extern "C" cudaError_t tri_launch_add(const tri_launch *launch, float *out, const float *a,
                                      const float *b, int64_t n)
{
  if (n == 0) return cudaSuccess;
  with_runs<4>(are_aligned(out, a, b), [=](auto w) {
    TRI_LAUNCH((add<w.value>), dim3(grid_of(n, THREADS * w.value)), dim3(THREADS), 0,
               launch->stream, out, a, b, n);
  });
  return cudaGetLastError();
}

template <bool SQUARES>
static void launch_sum_chunks(const tri_launch *launch, double *out, const float *x, int64_t n,
                              int64_t chunk)
{
  with_runs<4>(are_aligned(x), [=](auto w) {
    TRI_LAUNCH((sum_chunks<w.value, SQUARES>), dim3(grid_of(n, chunk)), dim3(THREADS), 0,
               launch->stream, out, x, n, chunk);
  });
}

extern "C" cudaError_t tri_launch_sum_squares(const tri_launch *launch, double *out, const float *x,
                                              int64_t n)
{
  if (n == 0) return cudaSuccess;
  launch_sum_chunks<true>(launch, out, x, n, TRI_NORM_CHUNK);
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_sum(const tri_launch *launch, double *out, const float *x,
                                      int64_t n)
{
  enum { MAX_CHUNKS = 1 << 14 };
  double *partial = (double *)launch->workspace;
  const int64_t chunk = TRI_NORM_CHUNK * ceil_div(n, (int64_t)MAX_CHUNKS * TRI_NORM_CHUNK);
  const int64_t n_chunks = n == 0 ? 0 : ceil_div(n, chunk);
  if (n > 0) launch_sum_chunks<false>(launch, partial, x, n, chunk);
  TRI_LAUNCH(sum_partials, dim3(1), dim3(THREADS), 0, launch->stream, out, partial, n_chunks);
  return cudaGetLastError();
}
