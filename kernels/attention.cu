// Twin of src/device/cpu/attention.c: kernels without tensor cores, and the choice.
//
// Here: f32, heads that the tensor-core kernels (attention_mma.cu) do not take, and devices that
// have none for bf16. All products and sums are in f32. A block takes a tile of rows of one head
// (queries, or keys in the gradient of keys), R rows a warp; the other side passes by in tiles of
// 32 rows, one row a lane, 32 channels at a time. Nothing of size (T, T) is stored and every sum is
// one thread's, in a fixed order.
//
// Floor of a call, causal half counted: 2 B H T^2 D flops forward, 5 B H T^2 D backward; queries
// and keys get their gradients in two kernels that both make the probabilities again, hence 7 B H
// T^2 D.
#include "attention.cuh"

enum { PLAIN_WARPS = 8, PLAIN_THREADS = PLAIN_WARPS * WARP };

// Rows of a warp when heads are up to 32 N wide: registers and shared memory bound their product.
constexpr int rows_of(int N)
{
  return N <= 4 ? 4 : 16 / N;
}

// Blocks of a multiprocessor: asked for, or ptxas spills to fit more.
constexpr int min_blocks_of(int N)
{
  return N <= 8 ? 2 : 1;
}

// A number of each row of a warp.
template <int R> using group = run<float, R>;

// Rows of a block, transposed: (32 N channels, rows).
template <int N, int R> using row_tile = group<R>[WARP * N][PLAIN_WARPS];
// What each row of a block has to do with 32 rows of the other side.
template <int R> using weight_tile = group<R>[PLAIN_WARPS][WARP];
// 32 rows of the other side, 32 channels of them.
using chunk = float[WARP][WARP + 1];

// Zeros beyond T and D.
template <int N, int R, class T>
__device__ __forceinline__ void load_rows(row_tile<N, R> &rows, head_rows<const T> from,
                                          int64_t first, const attention_sizes &n)
{
  for (int i = threadIdx.x; i < WARP * N * PLAIN_WARPS * R; i += PLAIN_THREADS) {
    const int row = i / (WARP * N), d = i % (WARP * N);
    const bool exists = first + row < n.T && d < n.D;
    rows[d][row / R].element[row % R] =
        exists ? to_float(from.first[(first + row) * from.stride + d]) : 0.0f;
  }
}

template <class T>
__device__ __forceinline__ void load_chunk(chunk &x, head_rows<const T> from, int64_t first, int d0,
                                           const attention_sizes &n)
{
#pragma unroll
  for (int i = threadIdx.x; i < WARP * WARP; i += PLAIN_THREADS) {
    const int row = i / WARP, d = i % WARP;
    const bool exists = first + row < n.T && d0 + d < n.D;
    x[row][d] = exists ? to_float(from.first[(first + row) * from.stride + d0 + d]) : 0.0f;
  }
}

// dots[r] = row r of the warp . row `first` + lane of the other side
template <int N, int R, class T>
__device__ __forceinline__ void make_dots(float (&dots)[R], const row_tile<N, R> &rows, chunk &x,
                                          head_rows<const T> from, int64_t first,
                                          const attention_sizes &n)
{
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
  for (int r = 0; r < R; r++)
    dots[r] = 0.0f;
  for (int d0 = 0; d0 < WARP * N; d0 += WARP) {
    __syncthreads();
    load_chunk(x, from, first, d0, n);
    __syncthreads();
#pragma unroll 8
    for (int d = 0; d < WARP; d++) {
      const group<R> row = rows[d0 + d][warp];
#pragma unroll
      for (int r = 0; r < R; r++)
        dots[r] += row.element[r] * x[lane][d];
    }
  }
}

// sums[r][c] += the weights of row r times channel 32 c + lane of the 32 rows from `first` on. The
// barriers also part the writing of the weights from their reading.
template <int N, int R, class T>
__device__ __forceinline__ void add_products(float (&sums)[R][N], const weight_tile<R> &weights,
                                             chunk &x, head_rows<const T> from, int64_t first,
                                             const attention_sizes &n)
{
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
  for (int c = 0; c < N; c++) {
    __syncthreads();
    load_chunk(x, from, first, c * WARP, n);
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < WARP; j++) {
      const group<R> weight = weights[warp][j];
#pragma unroll
      for (int r = 0; r < R; r++)
        sums[r][c] += weight.element[r] * x[j][lane];
    }
  }
}

template <int N, class T>
__device__ __forceinline__ void store_row(T *row, const float (&sums)[N], float factor, int64_t D)
{
#pragma unroll
  for (int c = 0; c < N; c++) {
    const int d = c * WARP + threadIdx.x % WARP;
    if (d < D) row[d] = from_float<T>(factor * sums[c]);
  }
}

__device__ __forceinline__ float factor_of(const dropout_mask &mask, int64_t b, int64_t element)
{
  if (mask.threshold == 0) return 1.0f;
  float factor[1];
  dropout_factors(factor, mask, b, element);
  return factor[0];
}

template <class T, int N, int R>
static __global__ void __launch_bounds__(PLAIN_THREADS, min_blocks_of(N))
    attention_forward(T *out, float *lse, const T *qkv, attention_sizes n, float scale,
                      dropout_mask mask)
{
  TRI_SHARED(group<R>, queries, [WARP * N][PLAIN_WARPS]);
  TRI_SHARED(group<R>, weights, [PLAIN_WARPS][WARP]);
  TRI_SHARED(float, x, [WARP][WARP + 1]);
  constexpr int ROWS = PLAIN_WARPS * R;
  const head_tile at = tile_of_block<ROWS, true>(n);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int64_t row = at.first + warp * R, end = at.first + ROWS < n.T ? at.first + ROWS : n.T;
  load_rows<N, R>(queries, qkv_rows(qkv, n, at, QUERY), at.first, n);

  // `sum` is of this lane's keys. Key 0 is seen by all: `largest` is finite from the first tile on.
  float sums[R][N] = {}, largest[R], sum[R] = {};
#pragma unroll
  for (int r = 0; r < R; r++)
    largest[r] = -INFINITY;
  for (int64_t k0 = 0; k0 < end; k0 += WARP) {
    float dots[R];
    make_dots<N, R>(dots, queries, x, qkv_rows(qkv, n, at, KEY), k0, n);
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float score = k0 + lane <= row + r ? scale * dots[r] : -INFINITY;
      const float highest = fmaxf(largest[r], warp_max(score));
      const float shrink = expf(largest[r] - highest), weight = expf(score - highest);
      largest[r] = highest;
      sum[r] = sum[r] * shrink + weight;
#pragma unroll
      for (int c = 0; c < N; c++)
        sums[r][c] *= shrink;
      weights[warp][lane].element[r] =
          weight * factor_of(mask, at.b, dropout_at(n, mask, at, row + r) + k0 + lane);
    }
    add_products<N, R>(sums, weights, x, qkv_rows(qkv, n, at, VALUE), k0, n);
  }

  const head_rows<T> rows = out_rows(out, n, at);
#pragma unroll
  for (int r = 0; r < R; r++) {
    const float total = warp_sum(sum[r]);
    if (row + r >= n.T) continue;
    store_row(rows.first + (row + r) * rows.stride, sums[r], 1.0f / total, n.D);
    if (lane == 0) lse[rows_at(n, at) + row + r] = largest[r] + logf(total);
  }
}

// delta (B, H, T) = dout . out: `lanes` lanes (a power of two) a row, W channels at a time.
template <class T, int W>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    attention_delta(float *delta, const T *dout, const T *out, int64_t n_rows, attention_sizes n,
                    int lanes)
{
  const int64_t n_warps = (int64_t)gridDim.x * PLAIN_WARPS, per_warp = WARP / lanes;
  const int64_t warp = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / WARP;
  const int lane = threadIdx.x % WARP;
  for (int64_t first = warp * per_warp; first < n_rows; first += n_warps * per_warp) {
    const int64_t row = first + lane / lanes;
    float sum = 0.0f;
    for (int64_t d = lane % lanes * W; d < n.D && row < n_rows; d += lanes * W) {
      float slopes[W], values[W];
      load(slopes, dout + row * n.D + d);
      load(values, out + row * n.D + d);
#pragma unroll
      for (int i = 0; i < W; i++)
        sum += slopes[i] * values[i];
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(ALL_LANES, sum, offset);
    const int64_t h = row % n.H, t = row / n.H % n.T, b = row / n.H / n.T;
    if (row < n_rows && lane % lanes == 0) delta[(b * n.H + h) * n.T + t] = sum;
  }
}

// Of a query and a key that it sees: the probability after dropout, and the slope of the loss by
// the unscaled score.
struct pair_terms {
  float kept, dscore;
};

__device__ __forceinline__ pair_terms terms_of(float dot, float dkept, float lse, float delta,
                                               float scale, float factor)
{
  const float p = expf(scale * dot - lse);
  return pair_terms{p * factor, scale * p * (factor * dkept - delta)};
}

// dq_t = sum over keys j <= t of dS_tj k_j
template <class T, int N, int R>
static __global__ void __launch_bounds__(PLAIN_THREADS, min_blocks_of(N))
    attention_backward_queries(T *dqkv, const float *delta, const T *dout, const T *qkv,
                               const float *lse, attention_sizes n, float scale, dropout_mask mask)
{
  TRI_SHARED(group<R>, queries, [WARP * N][PLAIN_WARPS]);
  TRI_SHARED(group<R>, slopes, [WARP * N][PLAIN_WARPS]);
  TRI_SHARED(group<R>, dscores, [PLAIN_WARPS][WARP]);
  TRI_SHARED(float, x, [WARP][WARP + 1]);
  constexpr int ROWS = PLAIN_WARPS * R;
  const head_tile at = tile_of_block<ROWS, true>(n);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int64_t row = at.first + warp * R, end = at.first + ROWS < n.T ? at.first + ROWS : n.T;
  load_rows<N, R>(queries, qkv_rows(qkv, n, at, QUERY), at.first, n);
  load_rows<N, R>(slopes, out_rows(dout, n, at), at.first, n);

  float sums[R][N] = {}, row_lse[R], row_delta[R];
#pragma unroll
  for (int r = 0; r < R; r++) {
    row_lse[r] = row + r < n.T ? lse[rows_at(n, at) + row + r] : 0.0f;
    row_delta[r] = row + r < n.T ? delta[rows_at(n, at) + row + r] : 0.0f;
  }
  for (int64_t k0 = 0; k0 < end; k0 += WARP) {
    float dots[R], dkept[R];
    make_dots<N, R>(dots, queries, x, qkv_rows(qkv, n, at, KEY), k0, n);
    make_dots<N, R>(dkept, slopes, x, qkv_rows(qkv, n, at, VALUE), k0, n);
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float factor = factor_of(mask, at.b, dropout_at(n, mask, at, row + r) + k0 + lane);
      const pair_terms terms = terms_of(dots[r], dkept[r], row_lse[r], row_delta[r], scale, factor);
      dscores[warp][lane].element[r] = k0 + lane <= row + r ? terms.dscore : 0.0f;
    }
    add_products<N, R>(sums, dscores, x, qkv_rows(qkv, n, at, KEY), k0, n);
  }

  const head_rows<T> rows = qkv_rows(dqkv, n, at, QUERY);
#pragma unroll
  for (int r = 0; r < R; r++)
    if (row + r < n.T) store_row(rows.first + (row + r) * rows.stride, sums[r], 1.0f, n.D);
}

// dk_t = sum over queries i >= t of dS_it q_i,  dv_t = the same sum of (P M)_it dout_i
template <class T, int N, int R>
static __global__ void __launch_bounds__(PLAIN_THREADS, min_blocks_of(N))
    attention_backward_keys(T *dqkv, const float *delta, const T *dout, const T *qkv,
                            const float *lse, attention_sizes n, float scale, dropout_mask mask)
{
  TRI_SHARED(group<R>, keys, [WARP * N][PLAIN_WARPS]);
  TRI_SHARED(group<R>, values, [WARP * N][PLAIN_WARPS]);
  TRI_SHARED(group<R>, dscores, [PLAIN_WARPS][WARP]);
  TRI_SHARED(group<R>, kept, [PLAIN_WARPS][WARP]);
  TRI_SHARED(float, x, [WARP][WARP + 1]);
  constexpr int ROWS = PLAIN_WARPS * R;
  const head_tile at = tile_of_block<ROWS, false>(n);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int64_t row = at.first + warp * R;
  load_rows<N, R>(keys, qkv_rows(qkv, n, at, KEY), at.first, n);
  load_rows<N, R>(values, qkv_rows(qkv, n, at, VALUE), at.first, n);

  float dk[R][N] = {}, dv[R][N] = {};
  for (int64_t q0 = at.first / WARP * WARP; q0 < n.T; q0 += WARP) {
    float dots[R], dkept[R];
    make_dots<N, R>(dots, keys, x, qkv_rows(qkv, n, at, QUERY), q0, n);
    make_dots<N, R>(dkept, values, x, out_rows(dout, n, at), q0, n);
    const int64_t query = q0 + lane;
    const float query_lse = query < n.T ? lse[rows_at(n, at) + query] : 0.0f;
    const float query_delta = query < n.T ? delta[rows_at(n, at) + query] : 0.0f;
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float factor = factor_of(mask, at.b, dropout_at(n, mask, at, query) + row + r);
      const pair_terms terms = terms_of(dots[r], dkept[r], query_lse, query_delta, scale, factor);
      const bool seen = row + r <= query && query < n.T;
      dscores[warp][lane].element[r] = seen ? terms.dscore : 0.0f;
      kept[warp][lane].element[r] = seen ? terms.kept : 0.0f;
    }
    add_products<N, R>(dk, dscores, x, qkv_rows(qkv, n, at, QUERY), q0, n);
    add_products<N, R>(dv, kept, x, out_rows(dout, n, at), q0, n);
  }

  const head_rows<T> key_rows = qkv_rows(dqkv, n, at, KEY);
  const head_rows<T> value_rows = qkv_rows(dqkv, n, at, VALUE);
#pragma unroll
  for (int r = 0; r < R; r++) {
    if (row + r >= n.T) break;
    store_row(key_rows.first + (row + r) * key_rows.stride, dk[r], 1.0f, n.D);
    store_row(value_rows.first + (row + r) * value_rows.stride, dv[r], 1.0f, n.D);
  }
}

// One block a head: its warps share out the keys, DECODE_KEYS at a time, and are put together in
// order.
enum { DECODE_KEYS = 4 };

template <class T, int N>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    attention_decode(T *out, T *k_cache, T *v_cache, const T *qkv, int64_t position, int64_t T_max,
                     int64_t H, int64_t D, float scale)
{
  TRI_SHARED(float, warp_sums, [PLAIN_WARPS][WARP * N]);
  TRI_SHARED(float, warp_largest, [PLAIN_WARPS]);
  TRI_SHARED(float, warp_sum_of, [PLAIN_WARPS]);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int64_t b = blockIdx.x / H, h = blockIdx.x % H;
  const T *q = qkv + (b * 3 * H + h) * D, *k = q + H * D, *v = k + H * D;
  T *keys = k_cache + (b * T_max * H + h) * D, *values = v_cache + (b * T_max * H + h) * D;
  // The new row is not read back: the sums below take it from qkv.
  for (int64_t d = threadIdx.x; d < D; d += PLAIN_THREADS) {
    keys[position * H * D + d] = k[d];
    values[position * H * D + d] = v[d];
  }

  float query[N], sums[N] = {}, largest = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int c = 0; c < N; c++)
    query[c] = c * WARP + lane < D ? to_float(q[c * WARP + lane]) : 0.0f;
  for (int64_t j0 = warp * DECODE_KEYS; j0 <= position; j0 += PLAIN_WARPS * DECODE_KEYS) {
    float scores[DECODE_KEYS];
#pragma unroll
    for (int i = 0; i < DECODE_KEYS; i++) {
      const T *key = j0 + i < position ? keys + (j0 + i) * H * D : k;
      float dot = 0.0f;
#pragma unroll
      for (int c = 0; c < N; c++)
        if (c * WARP + lane < D) dot += query[c] * to_float(key[c * WARP + lane]);
      dot = warp_sum(dot);
      scores[i] = j0 + i <= position ? scale * dot : -INFINITY;
    }
    float highest = largest;
#pragma unroll
    for (int i = 0; i < DECODE_KEYS; i++)
      highest = fmaxf(highest, scores[i]);
    const float shrink = expf(largest - highest);
    largest = highest;
    sum *= shrink;
#pragma unroll
    for (int c = 0; c < N; c++)
      sums[c] *= shrink;
#pragma unroll
    for (int i = 0; i < DECODE_KEYS; i++) {
      const T *value = j0 + i < position ? values + (j0 + i) * H * D : v;
      const float weight = expf(scores[i] - highest);
      sum += weight;
#pragma unroll
      for (int c = 0; c < N; c++)
        if (c * WARP + lane < D) sums[c] += weight * to_float(value[c * WARP + lane]);
    }
  }

#pragma unroll
  for (int c = 0; c < N; c++)
    warp_sums[warp][c * WARP + lane] = sums[c];
  if (lane == 0) {
    warp_largest[warp] = largest;
    warp_sum_of[warp] = sum;
  }
  __syncthreads();
  for (int w = 0; w < PLAIN_WARPS; w++)
    largest = fmaxf(largest, warp_largest[w]);
  for (int64_t d = threadIdx.x; d < D; d += PLAIN_THREADS) {
    float total = 0.0f, channel = 0.0f;
    for (int w = 0; w < PLAIN_WARPS; w++) {
      const float shrink = expf(warp_largest[w] - largest);
      total += shrink * warp_sum_of[w];
      channel += shrink * warp_sums[w][d];
    }
    out[(b * H + h) * D + d] = from_float<T>(channel / total);
  }
}

static float score_scale(int64_t D)
{
  return (float)(1.0 / sqrt((double)D));
}

// body(width<N>()) with the least N of the kernels that hold heads of width D.
template <class Body> static void with_width(int64_t D, Body body)
{
  if (D <= WARP) {
    body(width<1>());
  } else if (D <= 2 * WARP) {
    body(width<2>());
  } else if (D <= 4 * WARP) {
    body(width<4>());
  } else if (D <= 8 * WARP) {
    body(width<8>());
  } else {
    body(width<16>());
  }
}

static bool takes_mma(const tri_launch *launch, int64_t T, int64_t D)
{
  return launch->compute_capability >= 80 && D <= MMA_MAX_HEAD && D % 8 == 0 && T <= MMA_MAX_ROWS;
}

template <class T>
static cudaError_t launch_forward(const tri_launch *launch, T *out, float *lse, const T *qkv,
                                  int64_t B, const attention_sizes &n, const dropout_mask &mask)
{
  with_width(n.D, [=](auto w) {
    constexpr int N = w.value, R = rows_of(N);
    TRI_LAUNCH((attention_forward<T, N, R>), tile_blocks(B, n, PLAIN_WARPS * R),
               dim3(PLAIN_THREADS), 0, launch->stream, out, lse, qkv, n, score_scale(n.D), mask);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_attention_forward(const tri_launch *launch, void *out, float *lse,
                                                    const void *qkv, int64_t B, int64_t T,
                                                    int64_t H, int64_t D, tri_dtype dtype,
                                                    const tri_dropout *dropout)
{
  if (B == 0 || T == 0 || H == 0 || D == 0) return cudaSuccess;
  if (D > TRI_CUDA_ATTENTION_MAX_HEAD) return cudaErrorInvalidValue;
  const attention_sizes n{T, H, D};
  const dropout_mask mask = dropout_mask_of(dropout);
  if (dtype == TRI_DTYPE_BF16 && takes_mma(launch, T, D) && are_aligned(out, qkv))
    return launch_attention_mma_forward(launch, (tri_bf16 *)out, lse, (const tri_bf16 *)qkv, B, n,
                                        score_scale(D), mask);
  if (dtype == TRI_DTYPE_BF16)
    return launch_forward(launch, (tri_bf16 *)out, lse, (const tri_bf16 *)qkv, B, n, mask);
  return launch_forward(launch, (float *)out, lse, (const float *)qkv, B, n, mask);
}

template <class T>
static void launch_delta(const tri_launch *launch, float *delta, const T *dout, const T *out,
                         int64_t B, const attention_sizes &n)
{
  const bool runs = are_aligned(dout, out) && n.D % RUN<T> == 0;
  const int64_t n_rows = B * n.T * n.H, W = runs ? RUN<T> : 1;
  int lanes = 1;
  while (lanes < WARP && lanes * W < n.D)
    lanes *= 2;
  const dim3 grid(grid_of(n_rows, PLAIN_THREADS / lanes));
  with_runs<RUN<T>>(runs, [=](auto w) {
    TRI_LAUNCH((attention_delta<T, w.value>), grid, dim3(PLAIN_THREADS), 0, launch->stream, delta,
               dout, out, n_rows, n, lanes);
  });
}

template <class T>
static cudaError_t launch_backward(const tri_launch *launch, T *dqkv, const float *delta,
                                   const T *dout, const T *qkv, const float *lse, int64_t B,
                                   const attention_sizes &n, const dropout_mask &mask)
{
  with_width(n.D, [=](auto w) {
    constexpr int N = w.value, R = rows_of(N);
    const dim3 grid = tile_blocks(B, n, PLAIN_WARPS * R), block(PLAIN_THREADS);
    const float scale = score_scale(n.D);
    TRI_LAUNCH((attention_backward_queries<T, N, R>), grid, block, 0, launch->stream, dqkv, delta,
               dout, qkv, lse, n, scale, mask);
    TRI_LAUNCH((attention_backward_keys<T, N, R>), grid, block, 0, launch->stream, dqkv, delta,
               dout, qkv, lse, n, scale, mask);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_attention_backward(const tri_launch *launch, void *dqkv,
                                                     float *delta, const void *dout,
                                                     const void *qkv, const void *out,
                                                     const float *lse, int64_t B, int64_t T,
                                                     int64_t H, int64_t D, tri_dtype dtype,
                                                     const tri_dropout *dropout)
{
  if (B == 0 || T == 0 || H == 0 || D == 0) return cudaSuccess;
  if (D > TRI_CUDA_ATTENTION_MAX_HEAD) return cudaErrorInvalidValue;
  const attention_sizes n{T, H, D};
  const dropout_mask mask = dropout_mask_of(dropout);
  if (dtype == TRI_DTYPE_BF16) {
    launch_delta(launch, delta, (const tri_bf16 *)dout, (const tri_bf16 *)out, B, n);
    if (takes_mma(launch, T, D) && are_aligned(dqkv, dout, qkv))
      return launch_attention_mma_backward(launch, (tri_bf16 *)dqkv, delta, (const tri_bf16 *)dout,
                                           (const tri_bf16 *)qkv, lse, B, n, score_scale(D), mask);
    return launch_backward(launch, (tri_bf16 *)dqkv, delta, (const tri_bf16 *)dout,
                           (const tri_bf16 *)qkv, lse, B, n, mask);
  }
  launch_delta(launch, delta, (const float *)dout, (const float *)out, B, n);
  return launch_backward(launch, (float *)dqkv, delta, (const float *)dout, (const float *)qkv, lse,
                         B, n, mask);
}

template <class T>
static cudaError_t launch_decode(const tri_launch *launch, T *out, T *k_cache, T *v_cache,
                                 const T *qkv, int64_t position, int64_t B, int64_t T_max,
                                 int64_t H, int64_t D)
{
  with_width(D, [=](auto w) {
    TRI_LAUNCH((attention_decode<T, w.value>), dim3((unsigned)(B * H)), dim3(PLAIN_THREADS), 0,
               launch->stream, out, k_cache, v_cache, qkv, position, T_max, H, D, score_scale(D));
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_attention_decode(const tri_launch *launch, void *out,
                                                   void *k_cache, void *v_cache, const void *qkv,
                                                   int64_t position, int64_t B, int64_t T_max,
                                                   int64_t H, int64_t D, tri_dtype dtype)
{
  if (B == 0 || H == 0 || D == 0) return cudaSuccess;
  if (D > TRI_CUDA_ATTENTION_MAX_HEAD) return cudaErrorInvalidValue;
  if (dtype == TRI_DTYPE_BF16)
    return launch_decode(launch, (tri_bf16 *)out, (tri_bf16 *)k_cache, (tri_bf16 *)v_cache,
                         (const tri_bf16 *)qkv, position, B, T_max, H, D);
  return launch_decode(launch, (float *)out, (float *)k_cache, (float *)v_cache, (const float *)qkv,
                       position, B, T_max, H, D);
}
