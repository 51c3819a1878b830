// Attention backward on tensor cores, bf16: the probabilities are made again from lse, tile by tile
// (Dao et al. 2022, algorithm 4). Twin: src/device/cpu/attention.c.
//
// With S = q k^T, P = exp(scale * S - lse), M the dropout factors and delta_i = dout_i . out_i:
//   dv = (P M)^T dout,  dS = P (M (dout v^T) - delta),  dk = scale * dS^T q,  dq = scale * dS k.
// Sums over queries (dk, dv) and over keys (dq) cannot both stay in a block. Without float atomics
// that leaves two kernels that both make P and dS: one with a tile of keys that all queries pass,
// which makes the transposes, so that P^T and dS^T are left operands as they lie in registers, and
// one with a tile of queries that the keys pass. P and dS are rounded to bf16 before the last
// products, sums are in f32.
//
// Floor: 5 B H T^2 D flops (five products, causal half); the two that are made twice bring it to
// 7 B H T^2 D.
#include "attention_mma.cuh"

// Rows of a block, and m16 tiles of a warp: two where registers allow it, since each right operand
// that ldmatrix brings then serves four products, and shared memory is what bounds these kernels.
enum { BACKWARD_ROWS = 128 };
template <int DP> constexpr int QUERIES_M = DP <= 64 ? 2 : 1;
template <int DP> constexpr int KEYS_M = DP <= 32 ? 2 : 1;
template <int M> constexpr int THREADS_OF = BACKWARD_ROWS / (16 * M) * WARP;

// Rows of a passing tile: what the 99 KiB of shared memory of the smallest devices hold. A warp
// takes it in parts of PART rows, which is what its registers hold.
template <int DP> constexpr int PASSING_COLS = DP <= 64 ? 64 : 32;
enum { PART = 32 };

// Elements: two tiles of the block, and two stages of two tiles that pass.
template <int DP> constexpr int BACKWARD_ELEMENTS = (2 * BACKWARD_ROWS + 4 * PASSING_COLS<DP>)*DP;

// The slope of the loss by the unscaled score, over scale.
__device__ __forceinline__ float slope_of(float p, float dkept, float delta, bool is_kept,
                                          const dropout_mask &mask)
{
  return p * ((is_kept ? mask.scale * dkept : 0.0f) - delta);
}

// What the queries of one lane, g and g + 8 of an m16 tile, bring: lse in powers of 2, and delta.
struct query_numbers {
  float lse[2], delta[2];
};

__device__ __forceinline__ query_numbers numbers_of(const float *lse, const float *delta, int query,
                                                    int T)
{
  query_numbers q;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const bool exists = query + 8 * half < T;
    q.lse[half] = exists ? LOG2_E * lse[query + 8 * half] : 0.0f;
    q.delta[half] = exists ? delta[query + 8 * half] : 0.0f;
  }
  return q;
}

// dS of queries (rows) by keys as a left operand; `element` is that of row g and the first key.
template <bool DROP>
__device__ __forceinline__ void
slopes_of_queries(uint32_t (&dscores)[PART / 16][4], const float (&s)[PART / 8][4],
                  float (&dkept)[PART / 8][4], const query_numbers &q, float scale_log2,
                  const dropout_mask &mask, int64_t b, int64_t element, int64_t T)
{
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int k = 0; k < PART / 16; k++) {
    uint32_t bits = ~0u;
    if (DROP) bits = kept_bits(mask, b, element + 16 * k, element + 8 * T + 16 * k);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int j = 2 * k + i / 4, e = i % 4, half = e / 2;
      const int column = i / 4 * 8 + lane % 4 * 2 + e % 2;
      const bool is_kept = (bits >> (16 * half + column) & 1u) != 0;
      const float p = exp2_fast(fmaf(scale_log2, s[j][e], -q.lse[half]));
      dkept[j][e] = slope_of(p, dkept[j][e], q.delta[half], is_kept, mask);
    }
    pack_left(dscores[k], dkept[2 * k], dkept[2 * k + 1]);
  }
}

template <int DP, bool DROP>
static __global__ void __launch_bounds__(THREADS_OF<QUERIES_M<DP>>, 1)
    attention_mma_backward_queries(tri_bf16 *dqkv, const float *delta, const tri_bf16 *dout,
                                   const tri_bf16 *qkv, const float *lse, attention_sizes n,
                                   float scale, dropout_mask mask)
{
  constexpr int M = QUERIES_M<DP>, ROWS = BACKWARD_ROWS, COLS = PASSING_COLS<DP>;
  constexpr int THREADS = THREADS_OF<M>;
  TRI_DYNAMIC_SHARED(tri_bf16, shared);
  tri_bf16 *stages = shared + 2 * ROWS * DP;
  const head_tile at = tile_of_block<ROWS, true>(n);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, T = (int)n.T;
  const int first = (int)at.first, row = first + 16 * M * warp, end = min(first + ROWS, T);
  tile_source<DP, ROWS, THREADS>(qkv_rows(qkv, n, at, QUERY), first, n).copy(shared);
  tile_source<DP, ROWS, THREADS>(out_rows(dout, n, at), first, n).copy(shared + ROWS * DP);
  tile_source<DP, COLS, THREADS> keys(qkv_rows(qkv, n, at, KEY), 0, n);
  tile_source<DP, COLS, THREADS> values(qkv_rows(qkv, n, at, VALUE), 0, n);
  keys.copy(stages);
  values.copy(stages + COLS * DP);
  cp_async_commit();

  query_numbers numbers[M];
#pragma unroll
  for (int m = 0; m < M; m++)
    numbers[m] =
        numbers_of(lse + rows_at(n, at), delta + rows_at(n, at), row + 16 * m + lane / 4, T);
  // Two tiles of a warp with heads of 64 leave no registers to hold both.
  left_operand<DP, M, true> queries;
  left_operand<DP, M, (DP != 64)> slopes;
  queries.rows = shared + 16 * M * warp * DP;
  slopes.rows = queries.rows + ROWS * DP;
  float dq[M][DP / 8][4] = {};

  for (int k0 = 0; k0 < end; k0 += COLS) {
    tri_bf16 *stage = stages + k0 / COLS % 2 * 2 * COLS * DP;
    tri_bf16 *other = stages + (k0 / COLS + 1) % 2 * 2 * COLS * DP;
    // This tile is there for all, and nobody reads the one before it any more.
    cp_async_wait<0>();
    __syncthreads();
    if (k0 == 0) {
      queries.hold();
      slopes.hold();
    }
    if (k0 + COLS < end) {
      keys.copy(other);
      values.copy(other + COLS * DP);
    }
    cp_async_commit();

    // Parts of which a query of the warp sees a key.
#pragma unroll 1
    for (int part = 0; part < COLS && k0 + part < row + 16 * M; part += PART) {
      float s[M][PART / 8][4], dkept[M][PART / 8][4];
      uint32_t dscores[M][PART / 16][4];
      multiply_rows<DP, PART>(s, queries, stage + part * DP);
      multiply_rows<DP, PART>(dkept, slopes, stage + (COLS + part) * DP);
#pragma unroll
      for (int m = 0; m < M; m++) {
        const int query = row + 16 * m, key = k0 + part;
        if (key + PART - 1 > query) mask_scores<PART>(s[m], query - key);
        slopes_of_queries<DROP>(dscores[m], s[m], dkept[m], numbers[m], scale * LOG2_E, mask, at.b,
                                dropout_at(n, mask, at, query + lane / 4) + key, n.T);
      }
      add_product<DP, PART>(dq, dscores, stage + part * DP);
    }
  }
#pragma unroll
  for (int m = 0; m < M; m++)
    store_rows<DP>(qkv_rows(dqkv, n, at, QUERY), row + 16 * m, dq[m], {scale, scale}, n);
}

// One number of each query of a passing tile, for threads 0 … 2 COLS - 1: lse in powers of 2, then
// delta. Queries beyond T have rows of zeros, which add nothing whatever their probabilities.
template <int COLS>
__device__ __forceinline__ float query_number(const float *lse, const float *delta, int q0, int T)
{
  const int query = q0 + threadIdx.x % COLS;
  if (threadIdx.x >= 2 * COLS || query >= T) return 0.0f;
  return threadIdx.x < COLS ? LOG2_E * lse[query] : delta[query];
}

// P M and dS of keys (rows) by queries as left operands. Key g is seen by the queries from column
// g - offset on; `element` is that of query g and the first key.
template <bool DROP>
__device__ __forceinline__ void
slopes_of_keys(uint32_t (&kept)[PART / 16][4], uint32_t (&dscores)[PART / 16][4],
               float (&s)[PART / 8][4], float (&dkept)[PART / 8][4], const float *lse,
               const float *delta, int offset, float scale_log2, const dropout_mask &mask,
               int64_t b, int64_t element, int64_t T)
{
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int k = 0; k < PART / 16; k++) {
    uint32_t bits[2] = {~0u, ~0u}; // of the two columns of this lane
    if (DROP) {
      const int64_t first = element + 16 * k * T;
      const uint32_t of_queries = kept_bits(mask, b, first, first + 8 * T);
      bits[0] = __shfl_sync(ALL_LANES, of_queries, lane % 4 * 8);
      bits[1] = __shfl_sync(ALL_LANES, of_queries, lane % 4 * 8 + 4);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int j = 2 * k + i / 4, e = i % 4, key = lane / 4 + e / 2 * 8;
      const int column = 8 * j + lane % 4 * 2 + e % 2;
      const bool is_kept = (bits[e % 2] >> (i / 4 * 16 + key) & 1u) != 0;
      const float exponent = fmaf(scale_log2, s[j][e], -lse[column]);
      const float p = exp2_fast(key <= column + offset ? exponent : -INFINITY);
      s[j][e] = is_kept ? p : 0.0f;
      dkept[j][e] = slope_of(p, dkept[j][e], delta[column], is_kept, mask);
    }
    pack_left(kept[k], s[2 * k], s[2 * k + 1]);
    pack_left(dscores[k], dkept[2 * k], dkept[2 * k + 1]);
  }
}

template <int DP, bool DROP>
static __global__ void __launch_bounds__(THREADS_OF<KEYS_M<DP>>, 1)
    attention_mma_backward_keys(tri_bf16 *dqkv, const float *delta, const tri_bf16 *dout,
                                const tri_bf16 *qkv, const float *lse, attention_sizes n,
                                float scale, dropout_mask mask)
{
  constexpr int M = KEYS_M<DP>, ROWS = BACKWARD_ROWS, COLS = PASSING_COLS<DP>,
                THREADS = THREADS_OF<M>;
  TRI_DYNAMIC_SHARED(tri_bf16, shared);
  static_assert(2 * COLS <= THREADS, "a thread fetches at most one number of a tile");
  TRI_SHARED(float, numbers, [2][2 * COLS]); // of each stage: lse, delta
  tri_bf16 *stages = shared + 2 * ROWS * DP;
  const head_tile at = tile_of_block<ROWS, false>(n);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, T = (int)n.T;
  const int first = (int)at.first, row = first + 16 * M * warp;
  const float *head_lse = lse + rows_at(n, at), *head_delta = delta + rows_at(n, at);
  tile_source<DP, ROWS, THREADS>(qkv_rows(qkv, n, at, KEY), first, n).copy(shared);
  tile_source<DP, ROWS, THREADS>(qkv_rows(qkv, n, at, VALUE), first, n).copy(shared + ROWS * DP);
  tile_source<DP, COLS, THREADS> queries(qkv_rows(qkv, n, at, QUERY), first, n);
  tile_source<DP, COLS, THREADS> slopes(out_rows(dout, n, at), first, n);
  queries.copy(stages);
  slopes.copy(stages + COLS * DP);
  cp_async_commit();
  const float first_number = query_number<COLS>(head_lse, head_delta, first, T);
  if (threadIdx.x < 2 * COLS) numbers[0][threadIdx.x] = first_number;

  left_operand<DP, M, (DP <= 64)> keys, values;
  keys.rows = shared + 16 * M * warp * DP;
  values.rows = keys.rows + ROWS * DP;
  float dk[M][DP / 8][4] = {}, dv[M][DP / 8][4] = {};

  for (int q0 = first; q0 < T; q0 += COLS) {
    const int at_stage = q0 / COLS % 2;
    tri_bf16 *stage = stages + at_stage * 2 * COLS * DP;
    tri_bf16 *other = stages + (at_stage ^ 1) * 2 * COLS * DP;
    // This tile is there for all, and nobody reads the one before it any more.
    cp_async_wait<0>();
    __syncthreads();
    if (q0 == first) {
      keys.hold();
      values.hold();
    }
    float next_number = 0.0f;
    if (q0 + COLS < T) {
      queries.copy(other);
      slopes.copy(other + COLS * DP);
      next_number = query_number<COLS>(head_lse, head_delta, q0 + COLS, T);
    }
    cp_async_commit();

    // Parts of which a query sees a key of the warp.
#pragma unroll 1
    for (int part = 0; part < COLS; part += PART) {
      const int query = q0 + part;
      if (query + PART <= row || row >= T) continue;
      const tri_bf16 *query_part = stage + part * DP, *slope_part = query_part + COLS * DP;
      const float *part_lse = numbers[at_stage] + part;
      float s[M][PART / 8][4], dkept[M][PART / 8][4];
      uint32_t kept[M][PART / 16][4], dscores[M][PART / 16][4];
      multiply_rows<DP, PART>(s, keys, query_part);
      multiply_rows<DP, PART>(dkept, values, slope_part);
#pragma unroll
      for (int m = 0; m < M; m++) {
        const int key = row + 16 * m;
        slopes_of_keys<DROP>(kept[m], dscores[m], s[m], dkept[m], part_lse, part_lse + COLS,
                             query - key, scale * LOG2_E, mask, at.b,
                             dropout_at(n, mask, at, query + lane / 4) + key, n.T);
      }
      add_product<DP, PART>(dv, kept, slope_part);
      add_product<DP, PART>(dk, dscores, query_part);
    }
    if (threadIdx.x < 2 * COLS) numbers[at_stage ^ 1][threadIdx.x] = next_number;
  }
#pragma unroll
  for (int m = 0; m < M; m++) {
    store_rows<DP>(qkv_rows(dqkv, n, at, KEY), row + 16 * m, dk[m], {scale, scale}, n);
    store_rows<DP>(qkv_rows(dqkv, n, at, VALUE), row + 16 * m, dv[m], {mask.scale, mask.scale}, n);
  }
}

template <int DP, bool DROP>
static cudaError_t launch_backward(const tri_launch *launch, tri_bf16 *dqkv, const float *delta,
                                   const tri_bf16 *dout, const tri_bf16 *qkv, const float *lse,
                                   int64_t B, const attention_sizes &n, float scale,
                                   const dropout_mask &mask)
{
  constexpr int shared_bytes = BACKWARD_ELEMENTS<DP> * (int)sizeof(tri_bf16);
  const dim3 grid = tile_blocks(B, n, BACKWARD_ROWS);
  cudaError_t error = allow_shared(attention_mma_backward_queries<DP, DROP>, shared_bytes);
  if (error == cudaSuccess)
    error = allow_shared(attention_mma_backward_keys<DP, DROP>, shared_bytes);
  if (error != cudaSuccess) return error;
  TRI_LAUNCH((attention_mma_backward_queries<DP, DROP>), grid, dim3(THREADS_OF<QUERIES_M<DP>>),
             shared_bytes, launch->stream, dqkv, delta, dout, qkv, lse, n, scale, mask);
  TRI_LAUNCH((attention_mma_backward_keys<DP, DROP>), grid, dim3(THREADS_OF<KEYS_M<DP>>),
             shared_bytes, launch->stream, dqkv, delta, dout, qkv, lse, n, scale, mask);
  return cudaGetLastError();
}

cudaError_t launch_attention_mma_backward(const tri_launch *launch, tri_bf16 *dqkv,
                                          const float *delta, const tri_bf16 *dout,
                                          const tri_bf16 *qkv, const float *lse, int64_t B,
                                          const attention_sizes &n, float scale,
                                          const dropout_mask &mask)
{
  return with_mma_width(n.D, [&](auto w) {
    return mask.threshold > 0 ? launch_backward<w.value, true>(launch, dqkv, delta, dout, qkv, lse,
                                                               B, n, scale, mask)
                              : launch_backward<w.value, false>(launch, dqkv, delta, dout, qkv, lse,
                                                                B, n, scale, mask);
  });
}
