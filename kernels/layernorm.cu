// Twin of src/device/cpu/layernorm.c.
//
// Backward, rows of at most 8 runs a lane: a warp takes row after row, updates dx, and keeps the
// sums of dw and db of its columns in registers; each block writes its sums to the workspace, and
// add_partials adds them up. Other rows: one kernel for dx, one for the partial sums.

#include "columns.cuh"
#include "launchers.h"
#include "norm.cuh"

enum { BACKWARD_WARPS = 4 };

template <class T, int RUNS>
static __global__ void __launch_bounds__(NORM_THREADS)
    layernorm_forward_warps(T *out, float *mean, float *rstd, const T *x, const T *w, const T *b,
                            int64_t N, int64_t C, float eps)
{
  const int64_t first = (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / WARP;
  for (int64_t n = first; n < N; n += (int64_t)gridDim.x * NORM_WARPS) {
    run<T, RUN<T>> row[RUNS];
#pragma unroll
    for (int k = 0; k < RUNS; k++)
      if (run_column<T>(k) < C) row[k] = load_run<RUN<T>>(x + n * C + run_column<T>(k));
    norm_in_warp(out, mean, rstd, row, w, b, n, C, eps);
  }
}

template <class T, int W>
static __global__ void __launch_bounds__(NORM_THREADS)
    layernorm_forward_blocks(T *out, float *mean, float *rstd, const T *x, const T *w, const T *b,
                             int64_t N, int64_t C, float eps)
{
  for (int64_t n = blockIdx.x; n < N; n += gridDim.x)
    norm_in_block<T, W>(out, mean, rstd, x, w, b, n, C, eps);
}

// One run of g = dout w and norm = (x - mean) rstd.
template <class T, int W>
__device__ __forceinline__ void slope_run(float (&g)[W], float (&norm)[W], const run<T, W> &dout,
                                          const run<T, W> &x, const run<T, W> &w, float mean,
                                          float rstd)
{
#pragma unroll
  for (int i = 0; i < W; i++) {
    g[i] = to_float(dout.element[i]) * to_float(w.element[i]);
    norm[i] = (to_float(x.element[i]) - mean) * rstd;
  }
}

// dx += rstd (g - mean(g) - norm mean(g norm)) for one run.
template <class T, int W>
__device__ __forceinline__ void update_run(T *dx, const float (&g)[W], const float (&norm)[W],
                                           float g_mean, float g_norm_mean, float rstd)
{
  float slopes[W];
  load(slopes, dx);
#pragma unroll
  for (int i = 0; i < W; i++)
    slopes[i] = fmaf(rstd, g[i] - g_mean - norm[i] * g_norm_mean, slopes[i]);
  store(dx, slopes);
}

// partial (gridDim.x, 2, C): of each block the sums for dw, then for db.
template <class T, int RUNS>
static __global__ void __launch_bounds__(BACKWARD_WARPS *WARP)
    layernorm_backward_warps(T *dx, float *partial, const T *dout, const T *x, const T *w,
                             const float *mean, const float *rstd, int64_t N, int64_t C)
{
  constexpr int W = RUN<T>;
  float w_sum[RUNS][W] = {}, b_sum[RUNS][W] = {};
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int64_t first = (int64_t)blockIdx.x * BACKWARD_WARPS + warp;
  for (int64_t n = first; n < N; n += (int64_t)gridDim.x * BACKWARD_WARPS) {
    const float m = mean[n], r = rstd[n];
    run<T, W> x_row[RUNS], dout_row[RUNS];
#pragma unroll
    for (int k = 0; k < RUNS; k++) {
      if (run_column<T>(k) >= C) break;
      x_row[k] = load_run<W>(x + n * C + run_column<T>(k));
      dout_row[k] = load_run<W>(dout + n * C + run_column<T>(k));
    }

    float g_mean = 0.0f, g_norm_mean = 0.0f;
#pragma unroll
    for (int k = 0; k < RUNS; k++) {
      if (run_column<T>(k) >= C) break;
      float g[W], norm[W];
      slope_run(g, norm, dout_row[k], x_row[k], load_run<W>(w + run_column<T>(k)), m, r);
#pragma unroll
      for (int i = 0; i < W; i++) {
        const float slope = to_float(dout_row[k].element[i]);
        g_mean += g[i];
        g_norm_mean = fmaf(g[i], norm[i], g_norm_mean);
        w_sum[k][i] = fmaf(slope, norm[i], w_sum[k][i]);
        b_sum[k][i] += slope;
      }
    }
    g_mean = warp_sum(g_mean) / (float)C;
    g_norm_mean = warp_sum(g_norm_mean) / (float)C;

#pragma unroll
    for (int k = 0; k < RUNS; k++) {
      const int64_t c = run_column<T>(k);
      if (c >= C) break;
      float g[W], norm[W];
      slope_run(g, norm, dout_row[k], x_row[k], load_run<W>(w + c), m, r);
      update_run(dx + n * C + c, g, norm, g_mean, g_norm_mean, r);
    }
  }
  float *mine = partial + (int64_t)blockIdx.x * 2 * C;
#pragma unroll
  for (int k = 0; k < RUNS; k++) {
    store_partial<BACKWARD_WARPS>(mine, w_sum[k], warp, lane, run_column<T>(k), C);
    store_partial<BACKWARD_WARPS>(mine + C, b_sum[k], warp, lane, run_column<T>(k), C);
  }
}

// dx of one row by a block, which reads x, dout and w twice.
template <class T, int W>
static __global__ void __launch_bounds__(NORM_THREADS)
    layernorm_backward_blocks(T *dx, const T *dout, const T *x, const T *w, const float *mean,
                              const float *rstd, int64_t N, int64_t C)
{
  const int64_t begin = (int64_t)threadIdx.x * W, step = (int64_t)blockDim.x * W;
  for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    const float m = mean[n], r = rstd[n];
    float g_mean = 0.0f, g_norm_mean = 0.0f;
    for (int64_t c = begin; c < C; c += step) {
      float g[W], norm[W];
      slope_run(g, norm, load_run<W>(dout + n * C + c), load_run<W>(x + n * C + c),
                load_run<W>(w + c), m, r);
#pragma unroll
      for (int i = 0; i < W; i++) {
        g_mean += g[i];
        g_norm_mean = fmaf(g[i], norm[i], g_norm_mean);
      }
    }
    g_mean = block_sum(g_mean) / (float)C;
    g_norm_mean = block_sum(g_norm_mean) / (float)C;

    for (int64_t c = begin; c < C; c += step) {
      float g[W], norm[W];
      slope_run(g, norm, load_run<W>(dout + n * C + c), load_run<W>(x + n * C + c),
                load_run<W>(w + c), m, r);
      update_run(dx + n * C + c, g, norm, g_mean, g_norm_mean, r);
    }
  }
}

// partial (gridDim.y, 2, C): of each group of rows the sums for dw, then for db, of C columns of
// arrays with rows of `stride`.
template <class T, int W>
static __global__ void __launch_bounds__(TILE_ROWS *WARP)
    layernorm_partials(float *partial, const T *dout, const T *x, const float *mean,
                       const float *rstd, int64_t N, int64_t C, int64_t stride)
{
  const int64_t tile = WARP * W;
  for (int64_t c0 = blockIdx.x * tile; c0 < C; c0 += gridDim.x * tile) {
    const int64_t c = c0 + (int64_t)threadIdx.x * W;
    float w_sum[W] = {}, b_sum[W] = {};
    for (int64_t n = (int64_t)blockIdx.y * TILE_ROWS + threadIdx.y; n < N && c < C;
         n += (int64_t)gridDim.y * TILE_ROWS) {
      float slopes[W], values[W];
      load(slopes, dout + n * stride + c);
      load(values, x + n * stride + c);
#pragma unroll
      for (int i = 0; i < W; i++) {
        w_sum[i] = fmaf(slopes[i], (values[i] - mean[n]) * rstd[n], w_sum[i]);
        b_sum[i] += slopes[i];
      }
    }
    float *mine = partial + (int64_t)blockIdx.y * 2 * C;
    store_partial<TILE_ROWS>(mine, w_sum, threadIdx.y, threadIdx.x, c, C);
    store_partial<TILE_ROWS>(mine + C, b_sum, threadIdx.y, threadIdx.x, c, C);
  }
}

template <class T>
static cudaError_t launch_forward(const tri_launch *launch, T *out, float *mean, float *rstd,
                                  const T *x, const T *w, const T *b, int64_t N, int64_t C,
                                  float eps)
{
  const bool runs = are_aligned(out, x, w, b) && C % RUN<T> == 0;
  with_row<T>(
      runs, C,
      [=](auto n_runs) {
        TRI_LAUNCH((layernorm_forward_warps<T, n_runs.value>), dim3(grid_of(N, NORM_WARPS)),
                   dim3(NORM_THREADS), 0, launch->stream, out, mean, rstd, x, w, b, N, C, eps);
      },
      [=](auto n_columns) {
        TRI_LAUNCH((layernorm_forward_blocks<T, n_columns.value>), dim3(grid_of(N, 1)),
                   dim3(NORM_THREADS), 0, launch->stream, out, mean, rstd, x, w, b, N, C, eps);
      });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_layernorm_forward(const tri_launch *launch, void *out,
                                                    float *mean, float *rstd, const void *x,
                                                    const void *w, const void *b, int64_t N,
                                                    int64_t C, float eps, tri_dtype dtype)
{
  if (N == 0 || C == 0) return cudaSuccess;
  if (dtype == TRI_DTYPE_BF16)
    return launch_forward(launch, (tri_bf16 *)out, mean, rstd, (const tri_bf16 *)x,
                          (const tri_bf16 *)w, (const tri_bf16 *)b, N, C, eps);
  return launch_forward(launch, (float *)out, mean, rstd, (const float *)x, (const float *)w,
                        (const float *)b, N, C, eps);
}

template <class T, int RUNS>
static void launch_backward_warps(const tri_launch *launch, T *dx, float *dw, float *db,
                                  const T *dout, const T *x, const T *w, const float *mean,
                                  const float *rstd, int64_t N, int64_t C)
{
  float *partial = (float *)launch->workspace;
  const int64_t K = at_most(ceil_div(N, BACKWARD_WARPS), COLUMN_BLOCKS);
  TRI_LAUNCH((layernorm_backward_warps<T, RUNS>), dim3((unsigned)K), dim3(BACKWARD_WARPS * WARP), 0,
             launch->stream, dx, partial, dout, x, w, mean, rstd, N, C);
  launch_add_partials(launch->stream, dw, C, db, partial, 2 * C, K);
}

template <class T, int W>
static void launch_backward_blocks(const tri_launch *launch, T *dx, float *dw, float *db,
                                   const T *dout, const T *x, const T *w, const float *mean,
                                   const float *rstd, int64_t N, int64_t C)
{
  float *partial = (float *)launch->workspace;
  TRI_LAUNCH((layernorm_backward_blocks<T, W>), dim3(grid_of(N, 1)), dim3(NORM_THREADS), 0,
             launch->stream, dx, dout, x, w, mean, rstd, N, C);
  for (int64_t c = 0; c < C; c += COLUMN_SLICE) {
    const int64_t slice = at_most(C - c, COLUMN_SLICE), n_tiles = ceil_div(slice, WARP * W);
    const int64_t K = row_groups(N, n_tiles);
    TRI_LAUNCH((layernorm_partials<T, W>), dim3((unsigned)n_tiles, (unsigned)K),
               dim3(WARP, TILE_ROWS), 0, launch->stream, partial, dout + c, x + c, mean, rstd, N,
               slice, C);
    launch_add_partials(launch->stream, dw + c, slice, db + c, partial, 2 * slice, K);
  }
}

template <class T>
static cudaError_t launch_backward(const tri_launch *launch, T *dx, float *dw, float *db,
                                   const T *dout, const T *x, const T *w, const float *mean,
                                   const float *rstd, int64_t N, int64_t C)
{
  const bool runs = are_aligned(dx, dout, x, w) && C % RUN<T> == 0;
  with_row<T>(
      runs, C,
      [=](auto n_runs) {
        launch_backward_warps<T, n_runs.value>(launch, dx, dw, db, dout, x, w, mean, rstd, N, C);
      },
      [=](auto n_columns) {
        launch_backward_blocks<T, n_columns.value>(launch, dx, dw, db, dout, x, w, mean, rstd, N,
                                                   C);
      });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_layernorm_backward(const tri_launch *launch, void *dx, float *dw,
                                                     float *db, const void *dout, const void *x,
                                                     const void *w, const float *mean,
                                                     const float *rstd, int64_t N, int64_t C,
                                                     tri_dtype dtype)
{
  if (N == 0 || C == 0) return cudaSuccess;
  if (dtype == TRI_DTYPE_BF16)
    return launch_backward(launch, (tri_bf16 *)dx, dw, db, (const tri_bf16 *)dout,
                           (const tri_bf16 *)x, (const tri_bf16 *)w, mean, rstd, N, C);
  return launch_backward(launch, (float *)dx, dw, db, (const float *)dout, (const float *)x,
                         (const float *)w, mean, rstd, N, C);
}
