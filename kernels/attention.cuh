// What the attention kernels share: where the rows of a head begin, and which block takes which.
#pragma once

#include "dropout.cuh"
#include "element.cuh"
#include "launch.cuh"
#include "launchers.h"
#include "reduce.cuh"

// Of qkv (B, T, 3, H, D) and out (B, T, H, D).
struct attention_sizes {
  int64_t T, H, D;
};

enum { QUERY, KEY, VALUE };

// Row t of a head begins at first + t * stride.
template <class T> struct head_rows {
  T *first;
  int64_t stride;
};

// A tile of consecutive rows of one head.
struct head_tile {
  int64_t b, h;
  int64_t first; // row
};

template <class T>
__device__ __forceinline__ head_rows<T> qkv_rows(T *qkv, const attention_sizes &n,
                                                 const head_tile &at, int which)
{
  return head_rows<T>{qkv + ((at.b * n.T * 3 + which) * n.H + at.h) * n.D, 3 * n.H * n.D};
}

template <class T>
__device__ __forceinline__ head_rows<T> out_rows(T *out, const attention_sizes &n,
                                                 const head_tile &at)
{
  return head_rows<T>{out + (at.b * n.T * n.H + at.h) * n.D, n.H * n.D};
}

// Where the head's T numbers of lse and delta (B, H, T) begin.
__device__ __forceinline__ int64_t rows_at(const attention_sizes &n, const head_tile &at)
{
  return (at.b * n.H + at.h) * n.T;
}

// Of query t: the number of its first key's element for dropout.
__device__ __forceinline__ int64_t dropout_at(const attention_sizes &n, const dropout_mask &mask,
                                              const head_tile &at, int64_t t)
{
  return ((mask.first + at.h) * n.T + t) * n.T;
}

// One block for each tile, the tiles of a head side by side so that what they read meets in the
// cache. The first blocks of a head get its longest tiles, which of queries are the last.
template <int ROWS, bool DESCENDING>
__device__ __forceinline__ head_tile tile_of_block(const attention_sizes &n)
{
  const int64_t n_tiles = (n.T + ROWS - 1) / ROWS;
  const int64_t head = blockIdx.x / n_tiles, tile = blockIdx.x % n_tiles;
  return head_tile{head / n.H, head % n.H, (DESCENDING ? n_tiles - 1 - tile : tile) * ROWS};
}

static inline dim3 tile_blocks(int64_t B, const attention_sizes &n, int64_t rows)
{
  return dim3((unsigned)(B * n.H * ceil_div(n.T, rows)));
}

// The tensor-core kernels (attention_mma.cu, attention_mma_backward.cu) take bf16 on compute
// capability 8.0 and later, D a multiple of 8 and at most MMA_MAX_HEAD, T at most MMA_MAX_ROWS,
// whose numbers they keep in an int, and arrays aligned to 16 bytes.
enum { MMA_MAX_HEAD = 128, MMA_MAX_ROWS = 1 << 30 };

cudaError_t launch_attention_mma_forward(const tri_launch *launch, tri_bf16 *out, float *lse,
                                         const tri_bf16 *qkv, int64_t B, const attention_sizes &n,
                                         float scale, const dropout_mask &mask);
// delta is there already.
cudaError_t launch_attention_mma_backward(const tri_launch *launch, tri_bf16 *dqkv,
                                          const float *delta, const tri_bf16 *dout,
                                          const tri_bf16 *qkv, const float *lse, int64_t B,
                                          const attention_sizes &n, float scale,
                                          const dropout_mask &mask);
