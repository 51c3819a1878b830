// Layer norm of one row (Ba et al. 2016, equations 3 and 4), variance in two passes: the piece that
// layernorm.cu and residual.cu share.
//
// Rows of whole runs, up to 32 * RUNS of them, belong to a warp and stay in its registers as they
// lie in memory; others belong to a block, which reads them three times, twice from the cache.
#pragma once

#include "element.cuh"
#include "launch.cuh"
#include "reduce.cuh"

enum { NORM_WARPS = 8, NORM_THREADS = NORM_WARPS * WARP };

// warps(width<RUNS>()) when a warp holds a row of C elements in RUNS runs a lane; else, elements of
// a block at a time, blocks(width<W>()).
template <class T, class Warps, class Blocks>
static inline void with_row(bool runs, int64_t C, Warps warps, Blocks blocks)
{
  if (runs && C <= 4 * WARP * RUN<T>) {
    warps(width<4>());
  } else if (runs && C <= 8 * WARP * RUN<T>) {
    warps(width<8>());
  } else {
    with_runs<RUN<T>>(runs, blocks);
  }
}

// The column where the r-th run of this lane begins.
template <class T> __device__ __forceinline__ int64_t run_column(int r)
{
  return (int64_t)(r * WARP + (int)(threadIdx.x % WARP)) * RUN<T>;
}

// out, mean and rstd of row n, by the warp that holds it.
template <class T, int RUNS>
__device__ __forceinline__ void norm_in_warp(T *out, float *mean, float *rstd,
                                             const run<T, RUN<T>> (&row)[RUNS], const T *w,
                                             const T *b, int64_t n, int64_t C, float eps)
{
  constexpr int W = RUN<T>;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < RUNS; k++) {
    if (run_column<T>(k) >= C) break;
    float x[W];
    unpack(x, row[k]);
#pragma unroll
    for (int i = 0; i < W; i++)
      sum += x[i];
  }
  const float m = warp_sum(sum) / (float)C;

  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < RUNS; k++) {
    if (run_column<T>(k) >= C) break;
    float x[W];
    unpack(x, row[k]);
#pragma unroll
    for (int i = 0; i < W; i++)
      squares = fmaf(x[i] - m, x[i] - m, squares);
  }
  const float r = 1.0f / sqrtf(warp_sum(squares) / (float)C + eps);

#pragma unroll
  for (int k = 0; k < RUNS; k++) {
    const int64_t c = run_column<T>(k);
    if (c >= C) break;
    float x[W], w_run[W], b_run[W];
    unpack(x, row[k]);
    load(w_run, w + c);
    load(b_run, b + c);
#pragma unroll
    for (int i = 0; i < W; i++)
      x[i] = fmaf((x[i] - m) * r, w_run[i], b_run[i]);
    store(out + n * C + c, x);
  }
  if (threadIdx.x % WARP != 0) return;
  mean[n] = m;
  rstd[n] = r;
}

// out, mean and rstd of row n of x, by the whole block. Each thread reads only columns that it may
// have written itself: (threadIdx.x + k * blockDim.x) * W.
template <class T, int W>
__device__ __forceinline__ void norm_in_block(T *out, float *mean, float *rstd, const T *x,
                                              const T *w, const T *b, int64_t n, int64_t C,
                                              float eps)
{
  const int64_t first = (int64_t)threadIdx.x * W, step = (int64_t)blockDim.x * W;
  float sum = 0.0f;
  for (int64_t c = first; c < C; c += step) {
    float values[W];
    load(values, x + n * C + c);
#pragma unroll
    for (int i = 0; i < W; i++)
      sum += values[i];
  }
  const float m = block_sum(sum) / (float)C;

  float squares = 0.0f;
  for (int64_t c = first; c < C; c += step) {
    float values[W];
    load(values, x + n * C + c);
#pragma unroll
    for (int i = 0; i < W; i++)
      squares = fmaf(values[i] - m, values[i] - m, squares);
  }
  const float r = 1.0f / sqrtf(block_sum(squares) / (float)C + eps);

  for (int64_t c = first; c < C; c += step) {
    float values[W], w_run[W], b_run[W];
    load(values, x + n * C + c);
    load(w_run, w + c);
    load(b_run, b + c);
#pragma unroll
    for (int i = 0; i < W; i++)
      values[i] = fmaf((values[i] - m) * r, w_run[i], b_run[i]);
    store(out + n * C + c, values);
  }
  if (threadIdx.x != 0) return;
  mean[n] = m;
  rstd[n] = r;
}
