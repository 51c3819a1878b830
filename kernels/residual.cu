// Twin of src/device/cpu/residual.c.

#include "dropout.cuh"
#include "launchers.h"
#include "norm.cuh"

enum { THREADS = 256 };

// Elements e … e + W - 1 of sample b of x + dropout(delta).
template <bool DROP, int W, class T>
__device__ __forceinline__ void residual_run(float (&sum)[W], const T *x, const T *delta,
                                             const dropout_mask &mask, int64_t b, int64_t e)
{
  float branch[W], factor[W];
  load(sum, x);
  load(branch, delta);
  if constexpr (DROP) dropout_factors(factor, mask, b, e);
#pragma unroll
  for (int i = 0; i < W; i++)
    sum[i] = DROP ? fmaf(factor[i], branch[i], sum[i]) : sum[i] + branch[i];
}

// Which elements of the samples a call is of, and the samples: S elements each, the call's first
// one at `skipped` < S of the first sample.
struct part {
  int64_t n, skipped, S;
};

static inline int64_t n_samples(const part &p)
{
  return ceil_div(p.skipped + p.n, p.S);
}

// body(b, e, i, width<W>()) for the runs of elements e … of sample b, which are elements i … of the
// call. Samples along y.
template <int W, class Body>
__device__ __forceinline__ void each_run_of_samples(const part &p, Body body)
{
  for (int64_t b = blockIdx.y; b * p.S < p.skipped + p.n; b += gridDim.y) {
    const int64_t begin = b == 0 ? p.skipped : 0, left = p.skipped + p.n - b * p.S;
    const int64_t end = left < p.S ? left : p.S;
    each_run<W>(end - begin,
                [=](int64_t k, auto w) { body(b, begin + k, b * p.S + begin + k - p.skipped, w); });
  }
}

template <class T, int W, bool DROP>
static __global__ void __launch_bounds__(THREADS)
    residual_forward(T *out, const T *x, const T *delta, part p, dropout_mask mask)
{
  each_run_of_samples<W>(p, [=](int64_t b, int64_t e, int64_t i, auto w) {
    float sum[w.value];
    residual_run<DROP>(sum, x + i, delta + i, mask, b, e);
    store(out + i, sum);
  });
}

template <class T, int W, bool DROP>
static __global__ void __launch_bounds__(THREADS)
    residual_backward(T *ddelta, const T *dout, part p, dropout_mask mask)
{
  each_run_of_samples<W>(p, [=](int64_t b, int64_t e, int64_t i, auto w) {
    float slopes[w.value];
    load(slopes, dout + i);
    if constexpr (DROP) {
      float factor[w.value];
      dropout_factors(factor, mask, b, e);
#pragma unroll
      for (int k = 0; k < w.value; k++)
        slopes[k] *= factor[k];
    }
    store(ddelta + i, slopes);
  });
}

// The norm is of the rounded residual, so the row is kept as it is stored.
template <class E, int RUNS, bool DROP>
static __global__ void __launch_bounds__(NORM_THREADS)
    residual_layernorm_forward_warps(E *residual, E *out, float *mean, float *rstd, const E *x,
                                     const E *delta, const E *w, const E *b, int64_t N, int64_t T,
                                     int64_t C, float eps, dropout_mask mask)
{
  const int64_t first = (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / WARP;
  for (int64_t n = first; n < N; n += (int64_t)gridDim.x * NORM_WARPS) {
    run<E, RUN<E>> row[RUNS];
#pragma unroll
    for (int k = 0; k < RUNS; k++) {
      const int64_t c = run_column<E>(k);
      if (c >= C) break;
      float sum[RUN<E>];
      residual_run<DROP>(sum, x + n * C + c, delta + n * C + c, mask,
                         DROP ? (mask.first + n) / T : 0, DROP ? (mask.first + n) % T * C + c : 0);
      row[k] = pack<E>(sum);
      store_run(residual + n * C + c, row[k]);
    }
    norm_in_warp(out, mean, rstd, row, w, b, n, C, eps);
  }
}

template <class E, int W, bool DROP>
static __global__ void __launch_bounds__(NORM_THREADS)
    residual_layernorm_forward_blocks(E *residual, E *out, float *mean, float *rstd, const E *x,
                                      const E *delta, const E *w, const E *b, int64_t N, int64_t T,
                                      int64_t C, float eps, dropout_mask mask)
{
  for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    for (int64_t c = (int64_t)threadIdx.x * W; c < C; c += (int64_t)blockDim.x * W) {
      float sum[W];
      residual_run<DROP>(sum, x + n * C + c, delta + n * C + c, mask, (mask.first + n) / T,
                         (mask.first + n) % T * C + c);
      store(residual + n * C + c, sum);
    }
    norm_in_block<E, W>(out, mean, rstd, residual, w, b, n, C, eps);
  }
}

// Without dropout the samples are one, and with it they are long enough to fill the grid.
static part part_of(int64_t N, int64_t T, int64_t C, bool drop, dropout_mask &mask)
{
  if (!drop) return part{N * C, 0, N * C};
  mask.first_sample += (uint64_t)(mask.first / T);
  return part{N * C, mask.first % T * C, T * C};
}

// Whether runs of W elements lie at multiples of W both in the call and in their samples.
static bool takes_runs(const part &p, int W)
{
  return p.skipped % W == 0 && (n_samples(p) == 1 || p.S % W == 0);
}

static dim3 grid_of_part(const part &p, int per_block)
{
  return dim3(grid_of(at_most(p.n, p.S), per_block), grid_y_of(n_samples(p)));
}

template <class T, bool DROP>
static cudaError_t launch_forward(const tri_launch *launch, void *out, const void *x,
                                  const void *delta, int64_t N, int64_t rows, int64_t C,
                                  const tri_dropout *dropout)
{
  dropout_mask mask = dropout_mask_of(dropout);
  const part p = part_of(N, rows, C, DROP, mask);
  with_runs<RUN<T>>(are_aligned(out, x, delta) && takes_runs(p, RUN<T>), [=](auto w) {
    TRI_LAUNCH((residual_forward<T, w.value, DROP>), grid_of_part(p, THREADS * w.value),
               dim3(THREADS), 0, launch->stream, (T *)out, (const T *)x, (const T *)delta, p, mask);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_residual_forward(const tri_launch *launch, void *out,
                                                   const void *x, const void *delta, int64_t N,
                                                   int64_t T, int64_t C, tri_dtype dtype,
                                                   const tri_dropout *dropout)
{
  if (N == 0 || C == 0) return cudaSuccess;
  const auto forward =
      dtype == TRI_DTYPE_BF16
          ? (dropout_is_on(dropout) ? launch_forward<tri_bf16, true>
                                    : launch_forward<tri_bf16, false>)
          : (dropout_is_on(dropout) ? launch_forward<float, true> : launch_forward<float, false>);
  return forward(launch, out, x, delta, N, T, C, dropout);
}

template <class T, bool DROP>
static cudaError_t launch_backward(const tri_launch *launch, void *ddelta, const void *dout,
                                   int64_t N, int64_t rows, int64_t C, const tri_dropout *dropout)
{
  dropout_mask mask = dropout_mask_of(dropout);
  const part p = part_of(N, rows, C, DROP, mask);
  with_runs<RUN<T>>(are_aligned(ddelta, dout) && takes_runs(p, RUN<T>), [=](auto w) {
    TRI_LAUNCH((residual_backward<T, w.value, DROP>), grid_of_part(p, THREADS * w.value),
               dim3(THREADS), 0, launch->stream, (T *)ddelta, (const T *)dout, p, mask);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_residual_backward(const tri_launch *launch, void *ddelta,
                                                    const void *dout, int64_t N, int64_t T,
                                                    int64_t C, tri_dtype dtype,
                                                    const tri_dropout *dropout)
{
  if (N == 0 || C == 0) return cudaSuccess;
  if (!dropout_is_on(dropout) && ddelta == dout) return cudaSuccess;
  const auto backward =
      dtype == TRI_DTYPE_BF16
          ? (dropout_is_on(dropout) ? launch_backward<tri_bf16, true>
                                    : launch_backward<tri_bf16, false>)
          : (dropout_is_on(dropout) ? launch_backward<float, true> : launch_backward<float, false>);
  return backward(launch, ddelta, dout, N, T, C, dropout);
}

// The arguments of a fused call, for the choice among kernels.
struct fused {
  const tri_launch *launch;
  void *residual, *out;
  float *mean, *rstd;
  const void *x, *delta, *w, *b;
  int64_t N, T, C;
  float eps;
  const tri_dropout *dropout;
};

template <class E, int RUNS, bool DROP> static void launch_warps(const fused &f)
{
  TRI_LAUNCH((residual_layernorm_forward_warps<E, RUNS, DROP>), dim3(grid_of(f.N, NORM_WARPS)),
             dim3(NORM_THREADS), 0, f.launch->stream, (E *)f.residual, (E *)f.out, f.mean, f.rstd,
             (const E *)f.x, (const E *)f.delta, (const E *)f.w, (const E *)f.b, f.N, f.T, f.C,
             f.eps, dropout_mask_of(f.dropout));
}

template <class E, int W, bool DROP> static void launch_blocks(const fused &f)
{
  TRI_LAUNCH((residual_layernorm_forward_blocks<E, W, DROP>), dim3(grid_of(f.N, 1)),
             dim3(NORM_THREADS), 0, f.launch->stream, (E *)f.residual, (E *)f.out, f.mean, f.rstd,
             (const E *)f.x, (const E *)f.delta, (const E *)f.w, (const E *)f.b, f.N, f.T, f.C,
             f.eps, dropout_mask_of(f.dropout));
}

template <class E, bool DROP> static cudaError_t launch_fused(const fused &f)
{
  const bool runs = are_aligned(f.residual, f.out, f.x, f.delta, f.w, f.b) && f.C % RUN<E> == 0;
  with_row<E>(
      runs, f.C, [=](auto w) { launch_warps<E, w.value, DROP>(f); },
      [=](auto w) { launch_blocks<E, w.value, DROP>(f); });
  return cudaGetLastError();
}

extern "C" cudaError_t
tri_launch_residual_layernorm_forward(const tri_launch *launch, void *residual, void *out,
                                      float *mean, float *rstd, const void *x, const void *delta,
                                      const void *w, const void *b, int64_t N, int64_t T, int64_t C,
                                      float eps, tri_dtype dtype, const tri_dropout *dropout)
{
  if (N == 0 || C == 0) return cudaSuccess;
  const fused f = {launch, residual, out, mean, rstd, x, delta, w, b, N, T, C, eps, dropout};
  if (dropout_is_on(dropout))
    return dtype == TRI_DTYPE_BF16 ? launch_fused<tri_bf16, true>(f) : launch_fused<float, true>(f);
  return dtype == TRI_DTYPE_BF16 ? launch_fused<tri_bf16, false>(f) : launch_fused<float, false>(f);
}
