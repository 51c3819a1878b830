// Pieces of the tensor-core kernels: tiles in shared memory, products of tiles, dropout bits.
//
// A block takes a tile of rows of one head, 16 M rows a warp; the rows of the other side pass by in
// tiles of COLS, two stages of shared memory in turn: one tile is on its way while the other is
// used. Heads are DP = 32, 64 or 128 channels wide here, padded with zeros. In a warp's 16x8
// results a lane, with g = lane / 4 and t = lane % 4, holds rows g and g + 8 (elements 0, 1 and
// 2, 3) of columns 2t and 2t + 1; two neighbouring results, packed to bf16, are as they lie the
// left operand of the next product, so that nothing goes through shared memory in between.
#pragma once

#include "attention.cuh"

constexpr float LOG2_E = 1.44269504088896341f;

// Where 8 channels of a row begin in a tile, in elements. The 16-byte pieces of a row change places
// so that 8 rows of a matrix that ldmatrix reads lie in different banks.
template <int DP> __device__ __forceinline__ int piece_at(int row, int piece)
{
  static_assert(DP == 32 || DP % 64 == 0, "pieces of 8 rows fill all banks once");
  const int turn = DP == 32 ? row / 2 % 4 : row % 8;
  return row * DP + 8 * (piece ^ turn);
}

// The piece that a lane names to ldmatrix_x4: of four matrices over 16 rows and 16 channels, those
// of one column of matrices after the other, or of one row after the other. Piece p + 2 k of the
// same row is at this ^ 16 k.
template <int DP> __device__ __forceinline__ int lane_piece()
{
  const int lane = threadIdx.x % WARP;
  return piece_at<DP>(lane % 16, lane / 16);
}

template <int DP> __device__ __forceinline__ int lane_piece_by_rows()
{
  const int lane = threadIdx.x % WARP;
  return piece_at<DP>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

// Copies tiles of ROWS rows from global to shared memory, all threads together: first the rows from
// `first` on, then the ROWS rows behind them, and so on. Rows beyond T and channels beyond D become
// 0.
template <int DP, int ROWS, int THREADS> struct tile_source {
  static constexpr int PIECES = DP / 8, STEP = THREADS / PIECES;
  static_assert(ROWS % STEP == 0 && STEP % 8 == 0,
                "every thread copies as many pieces, which change "
                "places alike");
  const tri_bf16 *next; // piece of this thread
  int64_t step;         // elements between two pieces of this thread
  int n_rows;           // that are left for this thread

  __device__ __forceinline__ tile_source(const head_rows<const tri_bf16> &from, int64_t first,
                                         const attention_sizes &n)
  {
    const int piece = threadIdx.x % PIECES, row = threadIdx.x / PIECES;
    next = from.first + (first + row) * from.stride + 8 * piece;
    step = STEP * from.stride;
    n_rows = 8 * piece < n.D ? (int)(n.T - first) - row : 0;
  }

  __device__ __forceinline__ void copy(tri_bf16 *tile)
  {
    tri_bf16 *to = tile + piece_at<DP>(threadIdx.x / PIECES, threadIdx.x % PIECES);
#pragma unroll
    for (int row = 0; row < ROWS; row += STEP) {
      if (row < n_rows) {
        cp_async16(to + row * DP, next);
      } else {
        *reinterpret_cast<uint4 *>(to + row * DP) = make_uint4(0, 0, 0, 0);
      }
      next += step;
    }
    n_rows -= ROWS;
  }
};

// The left operand of the warp's rows: kept in registers (HELD), or read from the tile each time
// where registers are short.
template <int DP, int M, bool HELD> struct left_operand {
  const tri_bf16 *rows; // of the tile, from the warp's first on
  uint32_t held[HELD ? DP / 16 : 1][M][4];

  __device__ __forceinline__ void read(uint32_t (&a)[4], int k, int m) const
  {
    ldmatrix_x4(a, rows + 16 * m * DP + (lane_piece<DP>() ^ 16 * k));
  }

  __device__ __forceinline__ void hold()
  {
    if constexpr (HELD) {
#pragma unroll
      for (int k = 0; k < DP / 16; k++)
#pragma unroll
        for (int m = 0; m < M; m++)
          read(held[k][m], k, m);
    }
  }

  __device__ __forceinline__ void get(uint32_t (&a)[4], int k, int m) const
  {
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[i] = held[k][m][i];
    } else {
      read(a, k, m);
    }
  }
};

// Two results side by side; b: the right operands of both, as ldmatrix_x4 brings them.
__device__ __forceinline__ void mma_pair(float (&left)[4], float (&right)[4],
                                         const uint32_t (&a)[4], const uint32_t (&b)[4])
{
  const uint32_t left_b[2] = {b[0], b[1]}, right_b[2] = {b[2], b[3]};
  mma_m16n8k16_bf16(left, a, left_b, left);
  mma_m16n8k16_bf16(right, a, right_b, right);
}

// s (rows of the warp, COLS) = x y^T
template <int DP, int COLS, int M, bool HELD>
__device__ __forceinline__ void multiply_rows(float (&s)[M][COLS / 8][4],
                                              const left_operand<DP, M, HELD> &x, const tri_bf16 *y)
{
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[m][j][e] = 0.0f;
#pragma unroll
  for (int k = 0; k < DP / 16; k++) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
      x.get(a[m], k, m);
#pragma unroll
    for (int j = 0; j < COLS / 16; j++) {
      uint32_t b[4];
      ldmatrix_x4(b, y + 16 * j * DP + (lane_piece_by_rows<DP>() ^ 16 * k));
#pragma unroll
      for (int m = 0; m < M; m++)
        mma_pair(s[m][2 * j], s[m][2 * j + 1], a[m], b);
    }
  }
}

// sums (rows of the warp, DP) += w (rows of the warp, COLS) y
template <int DP, int COLS, int M>
__device__ __forceinline__ void add_product(float (&sums)[M][DP / 8][4],
                                            const uint32_t (&w)[M][COLS / 16][4], const tri_bf16 *y)
{
#pragma unroll
  for (int k = 0; k < COLS / 16; k++)
#pragma unroll
    for (int c = 0; c < DP / 16; c++) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, y + 16 * k * DP + (lane_piece<DP>() ^ 16 * c));
#pragma unroll
      for (int m = 0; m < M; m++)
        mma_pair(sums[m][2 * c], sums[m][2 * c + 1], w[m][k], b);
    }
}

__device__ __forceinline__ uint32_t pack_pair(float low, float high)
{
  const __nv_bfloat162_raw pair = static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(low, high));
  return pair.x | (uint32_t)pair.y << 16;
}

// Two neighbouring results as a left operand.
__device__ __forceinline__ void pack_left(uint32_t (&a)[4], const float (&left)[4],
                                          const float (&right)[4])
{
  a[0] = pack_pair(left[0], left[1]);
  a[1] = pack_pair(left[2], left[3]);
  a[2] = pack_pair(right[0], right[1]);
  a[3] = pack_pair(right[2], right[3]);
}

// Keys that a query does not see: column j of row i with j > i + offset.
template <int COLS> __device__ __forceinline__ void mask_scores(float (&s)[COLS / 8][4], int offset)
{
  const int lane = threadIdx.x % WARP, seen = offset + lane / 4 - lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (8 * j + e % 2 - e / 2 * 8 > seen) s[j][e] = -INFINITY;
}

// Rows first + g and first + g + 8 of a head, times a factor each.
template <int DP>
__device__ __forceinline__ void store_rows(const head_rows<tri_bf16> &to, int64_t first,
                                           const float (&sums)[DP / 8][4],
                                           const float (&factors)[2], const attention_sizes &n)
{
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int64_t row = first + 8 * half + lane / 4;
    if (row >= n.T) continue;
    tri_bf16 *channels = to.first + row * to.stride + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < DP / 8; j++)
      if (8 * j < n.D)
        *reinterpret_cast<uint32_t *>(channels + 8 * j) =
            pack_pair(factors[half] * sums[j][2 * half], factors[half] * sums[j][2 * half + 1]);
  }
}

// Bit i: element 4 * block + i is kept.
__device__ __forceinline__ uint32_t kept_of_block(const dropout_mask &mask, int64_t b,
                                                  uint64_t block)
{
  uint32_t words[4], bits = 0;
  dropout_words(mask, b, (int64_t)block, words);
#pragma unroll
  for (int i = 0; i < 4; i++)
    bits |= (words[i] >= mask.threshold ? 1u : 0u) << i;
  return bits;
}

// This lane's share of the bits of elements first … first + 15: one block, moved to its place.
// Where they begin inside a block (T no multiple of 4) they end in a fifth, the first lane's; what
// the others make besides falls off.
__device__ __forceinline__ uint32_t share_of_bits(const dropout_mask &mask, int64_t b,
                                                  uint64_t first)
{
  const unsigned offset = first % 4, end = offset == 0 ? 4 : 8;
  uint32_t bits = 0;
#pragma unroll 1
  for (unsigned block = threadIdx.x % 4; block < end; block += 4)
    bits |= kept_of_block(mask, b, first / 4 + block) << (4 * block);
  return bits >> offset & 0xffffu;
}

// Dropout of 16 consecutive keys of two queries, the four lanes of one g together: bit i (16 + i)
// of the result says that element first (second) + i is kept. The whole warp calls it.
__device__ __forceinline__ uint32_t kept_bits(const dropout_mask &mask, int64_t b, int64_t first,
                                              int64_t second)
{
  uint32_t bits = share_of_bits(mask, b, (uint64_t)first);
  bits |= share_of_bits(mask, b, (uint64_t)second) << 16;
  bits |= __shfl_xor_sync(ALL_LANES, bits, 1);
  bits |= __shfl_xor_sync(ALL_LANES, bits, 2);
  return bits;
}

// Lets a kernel have more than the 48 KiB of dynamic shared memory that need no asking.
template <class... P> static inline cudaError_t allow_shared(void (*kernel)(P...), int bytes)
{
  return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// body(width<DP>()) with the least DP that holds heads of width D.
template <class Body> static inline cudaError_t with_mma_width(int64_t D, Body body)
{
  if (D <= 32) return body(width<32>());
  if (D <= 64) return body(width<64>());
  return body(width<128>());
}
