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

// Samples of S elements along y.
template <class T, int W, bool DROP>
static __global__ void __launch_bounds__(THREADS)
    residual_forward(T *out, const T *x, const T *delta, int64_t B, int64_t S, dropout_mask mask)
{
  for (int64_t b = blockIdx.y; b < B; b += gridDim.y) {
    each_run<W>(S, [=](int64_t e, auto w) {
      const int64_t i = b * S + e;
      float sum[w.value];
      residual_run<DROP>(sum, x + i, delta + i, mask, b, e);
      store(out + i, sum);
    });
  }
}

template <class T, int W, bool DROP>
static __global__ void __launch_bounds__(THREADS)
    residual_backward(T *ddelta, const T *dout, int64_t B, int64_t S, dropout_mask mask)
{
  for (int64_t b = blockIdx.y; b < B; b += gridDim.y) {
    each_run<W>(S, [=](int64_t e, auto w) {
      const int64_t i = b * S + e;
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
      residual_run<DROP>(sum, x + n * C + c, delta + n * C + c, mask, DROP ? n / T : 0,
                         DROP ? n % T * C + c : 0);
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
      residual_run<DROP>(sum, x + n * C + c, delta + n * C + c, mask, n / T, n % T * C + c);
      store(residual + n * C + c, sum);
    }
    norm_in_block<E, W>(out, mean, rstd, residual, w, b, n, C, eps);
  }
}

// Without dropout the samples are one, and with it they are long enough to fill the grid.
template <class T, bool DROP>
static cudaError_t launch_forward(const tri_launch *launch, void *out, const void *x,
                                  const void *delta, int64_t B, int64_t S,
                                  const tri_dropout *dropout)
{
  const dropout_mask mask = dropout_mask_of(dropout);
  const bool runs = are_aligned(out, x, delta) && (B == 1 || S % RUN<T> == 0);
  with_runs<RUN<T>>(runs, [=](auto w) {
    TRI_LAUNCH((residual_forward<T, w.value, DROP>),
               dim3(grid_of(S, THREADS * w.value), grid_y_of(B)), dim3(THREADS), 0, launch->stream,
               (T *)out, (const T *)x, (const T *)delta, B, S, mask);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_residual_forward(const tri_launch *launch, void *out,
                                                   const void *x, const void *delta, int64_t B,
                                                   int64_t T, int64_t C, tri_dtype dtype,
                                                   const tri_dropout *dropout)
{
  const int64_t S = T * C;
  if (B == 0 || S == 0) return cudaSuccess;
  if (dropout_is_on(dropout))
    return dtype == TRI_DTYPE_BF16
               ? launch_forward<tri_bf16, true>(launch, out, x, delta, B, S, dropout)
               : launch_forward<float, true>(launch, out, x, delta, B, S, dropout);
  return dtype == TRI_DTYPE_BF16
             ? launch_forward<tri_bf16, false>(launch, out, x, delta, 1, B * S, NULL)
             : launch_forward<float, false>(launch, out, x, delta, 1, B * S, NULL);
}

template <class T, bool DROP>
static cudaError_t launch_backward(const tri_launch *launch, void *ddelta, const void *dout,
                                   int64_t B, int64_t S, const tri_dropout *dropout)
{
  const dropout_mask mask = dropout_mask_of(dropout);
  const bool runs = are_aligned(ddelta, dout) && (B == 1 || S % RUN<T> == 0);
  with_runs<RUN<T>>(runs, [=](auto w) {
    TRI_LAUNCH((residual_backward<T, w.value, DROP>),
               dim3(grid_of(S, THREADS * w.value), grid_y_of(B)), dim3(THREADS), 0, launch->stream,
               (T *)ddelta, (const T *)dout, B, S, mask);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_residual_backward(const tri_launch *launch, void *ddelta,
                                                    const void *dout, int64_t B, int64_t T,
                                                    int64_t C, tri_dtype dtype,
                                                    const tri_dropout *dropout)
{
  const int64_t S = T * C;
  if (B == 0 || S == 0) return cudaSuccess;
  if (dropout_is_on(dropout))
    return dtype == TRI_DTYPE_BF16
               ? launch_backward<tri_bf16, true>(launch, ddelta, dout, B, S, dropout)
               : launch_backward<float, true>(launch, ddelta, dout, B, S, dropout);
  if (ddelta == dout) return cudaSuccess;
  return dtype == TRI_DTYPE_BF16
             ? launch_backward<tri_bf16, false>(launch, ddelta, dout, 1, B * S, NULL)
             : launch_backward<float, false>(launch, ddelta, dout, 1, B * S, NULL);
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
                                      const void *w, const void *b, int64_t B, int64_t T, int64_t C,
                                      float eps, tri_dtype dtype, const tri_dropout *dropout)
{
  if (B == 0 || T == 0 || C == 0) return cudaSuccess;
  const fused f = {launch, residual, out, mean, rstd, x, delta, w, b, B * T, T, C, eps, dropout};
  if (dropout_is_on(dropout))
    return dtype == TRI_DTYPE_BF16 ? launch_fused<tri_bf16, true>(f) : launch_fused<float, true>(f);
  return dtype == TRI_DTYPE_BF16 ? launch_fused<tri_bf16, false>(f) : launch_fused<float, false>(f);
}
