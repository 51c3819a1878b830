// Sums over the rows of a matrix, one for each column, in two stages.
//
// First, each of K groups of rows writes the sums of its rows to the stream's workspace: a row of
// `n_columns` numbers a group. Then add_partials adds up the K rows in double and adds the total to
// the output. K and the rows of a group depend on sizes alone and every order is fixed.
#pragma once

#include "element.cuh"
#include "launch.cuh"
#include "reduce.cuh"

// Blocks of the first stage: 8 for each multiprocessor of an H200, which has 132.
enum { COLUMN_BLOCKS = 1056 };

// A block of the first stage: a warp side by side on TILE_ROWS rows at a time.
enum { TILE_ROWS = 8 };

// Columns that fit two sums each in the workspace whatever the number of groups, for a cut of wider
// matrices into slices. (groups * columns is below COLUMN_BLOCKS * 256 + columns.)
enum { COLUMN_SLICE = 1 << 22 };

// Groups of rows for N rows when each group has `n_tiles` blocks: enough blocks, and enough rows in
// each.
static inline int64_t row_groups(int64_t N, int64_t n_tiles)
{
  const int64_t wanted = ceil_div(COLUMN_BLOCKS, n_tiles);
  return at_most(wanted, ceil_div(N, 8 * TILE_ROWS));
}

// partial[c … c + W) = the sums over the block's ROWS warps, in order. All threads call it, each
// with its warp and lane. Only columns below C are written, whole runs.
template <int ROWS, int W>
__device__ __forceinline__ void store_partial(float *partial, const float (&sum)[W], int warp,
                                              int lane, int64_t c, int64_t C)
{
  TRI_SHARED(float, tile, [ROWS][W][WARP]);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < W; i++)
    tile[warp][i][lane] = sum[i];
  __syncthreads();
  if (warp != 0 || c >= C) return;
  float total[W] = {};
#pragma unroll
  for (int i = 0; i < W; i++)
    for (int k = 0; k < ROWS; k++)
      total[i] += tile[k][i][lane];
  store(partial + c, total);
}

enum { ADDERS = 32 };

// Column c of K rows of n_columns, added to first[c] or, from n_first on, to second[c - n_first].
// ADDERS threads of a column take every ADDERS-th row each.
static __global__ void __launch_bounds__(WARP *ADDERS)
    add_partials(float *first, int64_t n_first, float *second, const float *partial,
                 int64_t n_columns, int64_t K)
{
  TRI_SHARED(double, part, [ADDERS][WARP + 1]);
  for (int64_t c0 = (int64_t)blockIdx.x * WARP; c0 < n_columns; c0 += (int64_t)gridDim.x * WARP) {
    const int64_t c = c0 + threadIdx.x;
    double sum = 0.0;
    if (c < n_columns) {
#pragma unroll 8
      for (int64_t k = threadIdx.y; k < K; k += ADDERS)
        sum += (double)partial[k * n_columns + c];
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < n_columns) {
      double total = 0.0;
      for (int k = 0; k < ADDERS; k++)
        total += part[k][threadIdx.x];
      float *out = c < n_first ? first + c : second + (c - n_first);
      *out = (float)((double)*out + total);
    }
    __syncthreads();
  }
}

static inline void launch_add_partials(cudaStream_t stream, float *first, int64_t n_first,
                                       float *second, const float *partial, int64_t n_columns,
                                       int64_t K)
{
  TRI_LAUNCH(add_partials, dim3(grid_of(n_columns, WARP)), dim3(WARP, ADDERS), 0, stream, first,
             n_first, second, partial, n_columns, K);
}
