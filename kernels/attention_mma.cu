// Attention forward on tensor cores, bf16: tile by tile with a running softmax (Dao, 2023,
// FlashAttention-2, algorithm 1). Twin: src/device/cpu/attention.c.
//
// A warp takes 32 queries (16 of heads wider than 64), so that each right operand that ldmatrix
// brings serves four products: on Hopper mma.sync is then about as fast as shared memory. Scores
// stay in registers, unscaled; exp(scale * (s - largest)) is one fused multiply-add and one exp2.
// Probabilities are rounded to bf16 before the second product; sums are in f32.
//
// Floor: 2 B H T^2 D flops (two products, causal half), of which tiles on the diagonal waste half
// of 64 / T; and T^2 / 2 exp2 a head.
#include "attention_mma.cuh"

// Queries of a block, and keys of a passing tile.
enum { FORWARD_ROWS = 128, FORWARD_COLS = 64 };

// m16 tiles of a warp: what registers allow.
template <int DP> constexpr int FORWARD_M = DP <= 64 ? 2 : 1;
template <int DP> constexpr int FORWARD_THREADS = FORWARD_ROWS / (16 * FORWARD_M<DP>)*WARP;

// Elements: the queries, and two stages of keys and values.
template <int DP> constexpr int FORWARD_ELEMENTS = (FORWARD_ROWS + 4 * FORWARD_COLS) * DP;

// The running softmax of one m16 tile's rows g and g + 8: the largest unscaled score so far, and
// the sum of exp over this lane's columns.
struct softmax_state {
  float largest[2], sum[2];
};

// Scores become probabilities times exp(largest); the output sums so far shrink to match.
template <int DP, int COLS>
__device__ __forceinline__ void softmax(float (&s)[COLS / 8][4], float (&sums)[DP / 8][4],
                                        softmax_state &state, float scale_log2)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float highest = state.largest[half];
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
      highest = fmaxf(highest, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 2));
    const float top = scale_log2 * highest;
    const float shrink = exp2_fast(fmaf(scale_log2, state.largest[half], -top));
    float sum = state.sum[half] * shrink;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) {
        s[j][e] = exp2_fast(fmaf(scale_log2, s[j][e], -top));
        sum += s[j][e];
      }
#pragma unroll
    for (int c = 0; c < DP / 8; c++) {
      sums[c][2 * half] *= shrink;
      sums[c][2 * half + 1] *= shrink;
    }
    state.largest[half] = highest;
    state.sum[half] = sum;
  }
}

// Probabilities of keys that are dropped become 0; `element` is that of row g and the first key,
// rows are T elements apart.
template <int COLS>
__device__ __forceinline__ void drop(float (&s)[COLS / 8][4], const dropout_mask &mask, int64_t b,
                                     int64_t element, int64_t T)
{
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int k = 0; k < COLS / 16; k++) {
    const uint32_t bits = kept_bits(mask, b, element + 16 * k, element + 8 * T + 16 * k);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      if ((bits >> (16 * (i / 2 % 2) + column) & 1u) == 0) s[2 * k + i / 4][i % 4] = 0.0f;
    }
  }
}

template <int DP, bool DROP>
static __global__ void __launch_bounds__(FORWARD_THREADS<DP>, 1)
    attention_mma_forward(tri_bf16 *out, float *lse, const tri_bf16 *qkv, attention_sizes n,
                          float scale, dropout_mask mask)
{
  constexpr int M = FORWARD_M<DP>, ROWS = FORWARD_ROWS, COLS = FORWARD_COLS;
  constexpr int THREADS = FORWARD_THREADS<DP>;
  TRI_DYNAMIC_SHARED(tri_bf16, shared);
  tri_bf16 *stages = shared + ROWS * DP;
  const head_tile at = tile_of_block<ROWS, true>(n);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, T = (int)n.T;
  const int first = (int)at.first, row = first + 16 * M * warp, end = min(first + ROWS, T);
  tile_source<DP, ROWS, THREADS>(qkv_rows(qkv, n, at, QUERY), first, n).copy(shared);
  tile_source<DP, COLS, THREADS> keys(qkv_rows(qkv, n, at, KEY), 0, n);
  tile_source<DP, COLS, THREADS> values(qkv_rows(qkv, n, at, VALUE), 0, n);
  keys.copy(stages);
  values.copy(stages + COLS * DP);
  cp_async_commit();

  // Two tiles of a warp with heads of 64 leave no registers to hold them.
  left_operand<DP, M, (DP != 64)> queries;
  queries.rows = shared + 16 * M * warp * DP;
  float sums[M][DP / 8][4] = {};
  softmax_state states[M];
#pragma unroll
  for (int m = 0; m < M; m++)
    states[m] = softmax_state{{-INFINITY, -INFINITY}, {0.0f, 0.0f}};

  // Two loops, since a mask that is looked up costs registers: all queries of the block see all
  // keys before its first.
  const auto attend = [&](int k0, auto is_diagonal) {
    tri_bf16 *stage = stages + k0 / COLS % 2 * 2 * COLS * DP;
    tri_bf16 *other = stages + (k0 / COLS + 1) % 2 * 2 * COLS * DP;
    // This tile is there for all, and nobody reads the one before it any more.
    cp_async_wait<0>();
    __syncthreads();
    if (k0 == 0) queries.hold();
    if (k0 + COLS < end) {
      keys.copy(other);
      values.copy(other + COLS * DP);
    }
    cp_async_commit();
    if (is_diagonal.value && k0 >= row + 16 * M) return; // no query of the warp sees these keys

    float s[M][COLS / 8][4];
    multiply_rows<DP, COLS>(s, queries, stage);
    uint32_t weights[M][COLS / 16][4];
#pragma unroll
    for (int m = 0; m < M; m++) {
      const int query = row + 16 * m;
      if (is_diagonal.value) mask_scores<COLS>(s[m], query - k0);
      softmax<DP, COLS>(s[m], sums[m], states[m], scale * LOG2_E);
      if (DROP) drop<COLS>(s[m], mask, at.b, dropout_at(n, mask, at, query + lane / 4) + k0, n.T);
#pragma unroll
      for (int k = 0; k < COLS / 16; k++)
        pack_left(weights[m][k], s[m][2 * k], s[m][2 * k + 1]);
    }
    add_product<DP, COLS>(sums, weights, stage + COLS * DP);
  };
  for (int k0 = 0; k0 < first; k0 += COLS)
    attend(k0, std::false_type());
  for (int k0 = first; k0 < end; k0 += COLS)
    attend(k0, std::true_type());

#pragma unroll
  for (int m = 0; m < M; m++) {
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = states[m].sum[half];
      sum += __shfl_xor_sync(ALL_LANES, sum, 1);
      sum += __shfl_xor_sync(ALL_LANES, sum, 2);
      factors[half] = mask.scale / sum;
      const int query = row + 16 * m + 8 * half + lane / 4;
      if (lane % 4 == 0 && query < T)
        lse[rows_at(n, at) + query] = scale * states[m].largest[half] + logf(sum);
    }
    store_rows<DP>(out_rows(out, n, at), row + 16 * m, sums[m], factors, n);
  }
}

template <int DP, bool DROP>
static cudaError_t launch_forward(const tri_launch *launch, tri_bf16 *out, float *lse,
                                  const tri_bf16 *qkv, int64_t B, const attention_sizes &n,
                                  float scale, const dropout_mask &mask)
{
  constexpr int shared_bytes = FORWARD_ELEMENTS<DP> * (int)sizeof(tri_bf16);
  const cudaError_t error = allow_shared(attention_mma_forward<DP, DROP>, shared_bytes);
  if (error != cudaSuccess) return error;
  TRI_LAUNCH((attention_mma_forward<DP, DROP>), tile_blocks(B, n, FORWARD_ROWS),
             dim3(FORWARD_THREADS<DP>), shared_bytes, launch->stream, out, lse, qkv, n, scale,
             mask);
  return cudaGetLastError();
}

cudaError_t launch_attention_mma_forward(const tri_launch *launch, tri_bf16 *out, float *lse,
                                         const tri_bf16 *qkv, int64_t B, const attention_sizes &n,
                                         float scale, const dropout_mask &mask)
{
  return with_mma_width(n.D, [&](auto w) {
    return mask.threshold > 0
               ? launch_forward<w.value, true>(launch, out, lse, qkv, B, n, scale, mask)
               : launch_forward<w.value, false>(launch, out, lse, qkv, B, n, scale, mask);
  });
}
