// Twin of src/device/cpu/embedding.c.
//
// The gradient of wte: tokens repeat, and every row must collect its terms in the order b, t. The
// positions are cut into slices of SLICE, one launch after the other. In a slice each position has
// a warp for each strip of columns. The warp of a token's first position in the slice finds all
// later ones and adds their rows, in order, to the row of dwte; the warps of the others find that
// they are not first and are done. No atomics, no scratch. The cost besides reading dout: a warp
// looks at up to SLICE tokens, 128 at a time, most of them in the first-level cache, so B T
// (columns / strip) SLICE / 128 steps at most - 10^7 for 65536 positions of 768 columns, of a dozen
// instructions each - and the most frequent token's rows are added by one warp a strip, ROWS loads
// in flight at a time.

#include "dropout.cuh"
#include "element.cuh"
#include "launch.cuh"
#include "launchers.h"
#include "reduce.cuh"

enum { WARPS = 4, SLICE = 16384, ROWS = 8 };

// A warp looks at LOOK tokens a time, and adds rows when it has found FULL.
enum { LOOK = 4 * WARP, FULL = 64 };

// The tokens first … first + n - 1 of the vocabulary.
struct token_range {
  int64_t first, n;
};

__device__ __forceinline__ bool holds(const token_range &range, int64_t token)
{
  return token >= range.first && token < range.first + range.n;
}

// Row bt of out = dropout(a row + b row), row t of sample b; NULL: zeros.
template <class E, int W, bool DROP>
__device__ __forceinline__ void sum_rows(E *out, const E *a_row, const E *b_row, int64_t C,
                                         const dropout_mask &mask, int64_t b, int64_t t)
{
#pragma unroll 2
  for (int64_t c = threadIdx.x % WARP * W; c < C; c += WARP * W) {
    float value[W] = {}, position[W] = {}, factor[W];
    if (a_row != NULL) load(value, a_row + c);
    if (b_row != NULL) load(position, b_row + c);
    if constexpr (DROP) dropout_factors(factor, mask, b, t * C + c);
#pragma unroll
    for (int i = 0; i < W; i++) {
      value[i] += position[i];
      if constexpr (DROP) value[i] *= factor[i];
    }
    store(out + c, value);
  }
}

template <class E, int W, bool DROP>
static __global__ void __launch_bounds__(WARPS *WARP)
    embedding_forward(E *out, const int32_t *tokens, const E *wte, const E *wpe, int64_t n_rows,
                      int64_t T, int64_t C, token_range range, int64_t first_position,
                      dropout_mask mask)
{
  const int warp = threadIdx.x / WARP;
  const int64_t n_warps = (int64_t)gridDim.x * WARPS;
  for (int64_t bt = (int64_t)blockIdx.x * WARPS + warp; bt < n_rows; bt += n_warps) {
    const int64_t token = tokens[bt], t = bt % T;
    const E *token_row = holds(range, token) ? wte + (token - range.first) * C : NULL;
    const E *position_row = wpe == NULL ? NULL : wpe + (first_position + t) * C;
    sum_rows<E, W, DROP>(out + bt * C, token_row, position_row, C, mask, bt / T, t);
  }
}

template <class E, int W, bool DROP>
static __global__ void __launch_bounds__(WARPS *WARP)
    positions_forward(E *out, const E *x, const E *wpe, int64_t N, int64_t T, int64_t C,
                      int64_t first_position, dropout_mask mask)
{
  const int warp = threadIdx.x / WARP;
  const int64_t n_warps = (int64_t)gridDim.x * WARPS;
  for (int64_t n = (int64_t)blockIdx.x * WARPS + warp; n < N; n += n_warps) {
    const int64_t row = mask.first + n, t = row % T;
    sum_rows<E, W, DROP>(out + n * C, x + n * C, wpe + (first_position + t) * C, C, mask, row / T,
                         t);
  }
}

// A row of dout.
struct place {
  int64_t b, t;
};

// sum += the runs at column c of `count` rows of dout, in order: those of at(0), at(1), …
template <class E, int W, bool DROP, class At>
__device__ __forceinline__ void add_rows(float (&sum)[W], const E *dout, int64_t c, int64_t T,
                                         int64_t C, const dropout_mask &mask, int64_t count, At at)
{
  for (int64_t k = 0; k < count; k += ROWS) {
    run<E, W> runs[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (k + r < count) {
        const place p = at(k + r);
        runs[r] = load_run<W>(dout + (p.b * T + p.t) * C + c);
      }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (k + r >= count) break;
      float term[W], factor[W];
      unpack(term, runs[r]);
      if constexpr (DROP) dropout_factors(factor, mask, at(k + r).b, at(k + r).t * C + c);
#pragma unroll
      for (int i = 0; i < W; i++)
        sum[i] = DROP ? fmaf(factor[i], term[i], sum[i]) : sum[i] + term[i];
    }
  }
}

// Whether tokens[begin … end) holds `token`; the same answer in every lane.
__device__ __forceinline__ bool appears(const int32_t *tokens, int64_t begin, int64_t end,
                                        int32_t token)
{
  // From behind: a frequent token is soon found.
  for (int64_t last = end; last > begin; last -= LOOK) {
    bool hit = false;
#pragma unroll
    for (int k = 0; k < LOOK / WARP; k++) {
      const int64_t j = last - 1 - k * WARP - (int64_t)(threadIdx.x % WARP);
      hit = hit || (j >= begin && tokens[j] == token);
    }
    if (__ballot_sync(ALL_LANES, hit) != 0) return true;
  }
  return false;
}

// Appends to list, which holds `count` numbers, the j - origin of those j in [from, from + LOOK)
// below end where `token` stands, in order; returns the new count.
__device__ __forceinline__ int collect(int32_t *list, int count, const int32_t *tokens,
                                       int64_t origin, int64_t from, int64_t end, int32_t token)
{
  const unsigned lane = threadIdx.x % WARP, below = (1u << lane) - 1u;
  bool hit[LOOK / WARP], any = false;
#pragma unroll
  for (int k = 0; k < LOOK / WARP; k++) {
    const int64_t j = from + k * WARP + lane;
    hit[k] = j < end && tokens[j] == token;
    any = any || hit[k];
  }
  if (__ballot_sync(ALL_LANES, any) == 0) return count;
#pragma unroll
  for (int k = 0; k < LOOK / WARP; k++) {
    const unsigned votes = __ballot_sync(ALL_LANES, hit[k]);
    if (hit[k])
      list[count + __popc(votes & below)] = (int32_t)(from - origin) + k * WARP + (int)lane;
    count += __popc(votes);
  }
  return count;
}

// The rows of dwte whose tokens stand in the slice [begin, end).
template <class E, int W, bool DROP>
static __global__ void __launch_bounds__(WARPS *WARP)
    embedding_backward_tokens(float *dwte, const E *dout, const int32_t *tokens, int64_t begin,
                              int64_t end, int64_t T, int64_t C, token_range range,
                              dropout_mask mask)
{
  TRI_SHARED(int32_t, lists, [WARPS][FULL + LOOK]);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int32_t *list = lists[warp];
  const int64_t first_b = begin / T, first_t = begin % T;
  const uint32_t period = T < SLICE ? (uint32_t)T : (uint32_t)SLICE;
  const auto at = [=](int64_t k) {
    // first_t < T and list[k] < SLICE, so what is beyond the first sample is below SLICE.
    const int64_t beyond = first_t + list[k] - T;
    const int64_t n_samples = beyond < 0 ? 0 : 1 + (uint32_t)beyond / period;
    return place{first_b + n_samples, beyond + T - n_samples * T};
  };
  for (int64_t bt = begin + (int64_t)blockIdx.x * WARPS + warp; bt < end;
       bt += (int64_t)gridDim.x * WARPS) {
    const int32_t token = tokens[bt];
    if (!holds(range, token) || appears(tokens, begin, bt, token)) continue;
    float *sums = dwte + (token - range.first) * C;
    for (int64_t c0 = (int64_t)blockIdx.y * WARP * W; c0 < C; c0 += (int64_t)gridDim.y * WARP * W) {
      // Lanes behind the last column look for tokens like the others, and add nothing.
      const int64_t c = c0 + lane * W;
      float sum[W] = {};
      if (c < C) load(sum, sums + c);
      int count = 0;
      for (int64_t from = bt; from < end; from += LOOK) {
        count = collect(list, count, tokens, begin, from, end, token);
        if (count < FULL && from + LOOK < end) continue;
        __syncwarp();
        if (c < C) add_rows<E, W, DROP>(sum, dout, c, T, C, mask, count, at);
        __syncwarp();
        count = 0;
      }
      if (c < C) store(sums + c, sum);
    }
  }
}

template <class E, int W, bool DROP>
static __global__ void __launch_bounds__(WARPS *WARP)
    embedding_backward_positions(float *dwpe, const E *dout, int64_t B, int64_t T, int64_t C,
                                 dropout_mask mask)
{
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int64_t tile = WARP * W;
  for (int64_t t = (int64_t)blockIdx.x * WARPS + warp; t < T; t += (int64_t)gridDim.x * WARPS) {
    for (int64_t c = blockIdx.y * tile + lane * W; c < C; c += gridDim.y * tile) {
      float sum[W];
      load(sum, dwpe + t * C + c);
      add_rows<E, W, DROP>(sum, dout, c, T, C, mask, B, [=](int64_t k) { return place{k, t}; });
      store(dwpe + t * C + c, sum);
    }
  }
}

// Row t of dwpe collects the rows n of dout with (first + n) % T == t, and the same warp turns them
// into rows of dx, which may be dout.
template <class E, int W, bool DROP>
static __global__ void __launch_bounds__(WARPS *WARP)
    positions_backward(E *dx, float *dwpe, const E *dout, int64_t N, int64_t T, int64_t C,
                       dropout_mask mask)
{
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int64_t tile = WARP * W, first_t = mask.first % T, first_b = mask.first / T;
  for (int64_t t = (int64_t)blockIdx.x * WARPS + warp; t < T; t += (int64_t)gridDim.x * WARPS) {
    const int64_t b0 = first_b + (t < first_t), n0 = t - first_t + (t < first_t ? T : 0);
    for (int64_t c = blockIdx.y * tile + lane * W; n0 < N && c < C; c += gridDim.y * tile) {
      float sum[W];
      load(sum, dwpe + t * C + c);
      for (int64_t n = n0, b = b0; n < N; n += T, b++) {
        float term[W], factor[W];
        load(term, dout + n * C + c);
        if constexpr (DROP) dropout_factors(factor, mask, b, t * C + c);
#pragma unroll
        for (int i = 0; i < W; i++) {
          sum[i] = DROP ? fmaf(factor[i], term[i], sum[i]) : sum[i] + term[i];
          if constexpr (DROP) term[i] *= factor[i];
        }
        if (DROP || dx != dout) store(dx + n * C + c, term);
      }
      store(dwpe + t * C + c, sum);
    }
  }
}

template <class E, bool DROP>
static cudaError_t launch_forward(const tri_launch *launch, void *out, const int32_t *tokens,
                                  const void *wte, const void *wpe, int64_t B, int64_t T, int64_t C,
                                  token_range range, int64_t first_position,
                                  const tri_dropout *dropout)
{
  with_runs<RUN<E>>(are_aligned(out, wte, wpe) && C % RUN<E> == 0, [=](auto w) {
    TRI_LAUNCH((embedding_forward<E, w.value, DROP>), dim3(grid_of(B * T, WARPS)),
               dim3(WARPS * WARP), 0, launch->stream, (E *)out, tokens, (const E *)wte,
               (const E *)wpe, B * T, T, C, range, first_position, dropout_mask_of(dropout));
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_embedding_forward(const tri_launch *launch, void *out,
                                                    const int32_t *tokens, const void *wte,
                                                    const void *wpe, int64_t B, int64_t T,
                                                    int64_t C, int64_t first_token, int64_t V,
                                                    int64_t first_position, tri_dtype dtype,
                                                    const tri_dropout *dropout)
{
  if (B == 0 || T == 0 || C == 0) return cudaSuccess;
  const auto forward =
      dtype == TRI_DTYPE_BF16
          ? (dropout_is_on(dropout) ? launch_forward<tri_bf16, true>
                                    : launch_forward<tri_bf16, false>)
          : (dropout_is_on(dropout) ? launch_forward<float, true> : launch_forward<float, false>);
  return forward(launch, out, tokens, wte, wpe, B, T, C, token_range{first_token, V},
                 first_position, dropout);
}

template <class E, bool DROP>
static cudaError_t launch_positions(const tri_launch *launch, void *out, const void *x,
                                    const void *wpe, int64_t N, int64_t T, int64_t C,
                                    int64_t first_position, const tri_dropout *dropout)
{
  with_runs<RUN<E>>(are_aligned(out, x, wpe) && C % RUN<E> == 0, [=](auto w) {
    TRI_LAUNCH((positions_forward<E, w.value, DROP>), dim3(grid_of(N, WARPS)), dim3(WARPS * WARP),
               0, launch->stream, (E *)out, (const E *)x, (const E *)wpe, N, T, C, first_position,
               dropout_mask_of(dropout));
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_positions_forward(const tri_launch *launch, void *out,
                                                    const void *x, const void *wpe, int64_t N,
                                                    int64_t T, int64_t C, int64_t first_position,
                                                    tri_dtype dtype, const tri_dropout *dropout)
{
  if (N == 0 || C == 0) return cudaSuccess;
  const auto forward = dtype == TRI_DTYPE_BF16
                           ? (dropout_is_on(dropout) ? launch_positions<tri_bf16, true>
                                                     : launch_positions<tri_bf16, false>)
                           : (dropout_is_on(dropout) ? launch_positions<float, true>
                                                     : launch_positions<float, false>);
  return forward(launch, out, x, wpe, N, T, C, first_position, dropout);
}

template <class E, int W, bool DROP>
static void add_slopes(const tri_launch *launch, float *dwte, float *dwpe, const E *dout,
                       const int32_t *tokens, int64_t B, int64_t T, int64_t C, token_range range,
                       const tri_dropout *dropout)
{
  const dropout_mask mask = dropout_mask_of(dropout);
  const unsigned n_strips = grid_y_of(ceil_div(C, WARP * W));
  if (dwpe != NULL)
    TRI_LAUNCH((embedding_backward_positions<E, W, DROP>), dim3(grid_of(T, WARPS), n_strips),
               dim3(WARPS * WARP), 0, launch->stream, dwpe, dout, B, T, C, mask);
  for (int64_t begin = 0; range.n > 0 && begin < B * T; begin += SLICE) {
    const int64_t end = begin + at_most(B * T - begin, SLICE);
    TRI_LAUNCH((embedding_backward_tokens<E, W, DROP>), dim3(grid_of(end - begin, WARPS), n_strips),
               dim3(WARPS * WARP), 0, launch->stream, dwte, dout, tokens, begin, end, T, C, range,
               mask);
  }
}

template <class E, bool DROP>
static cudaError_t launch_backward(const tri_launch *launch, float *dwte, float *dwpe,
                                   const void *dout, const int32_t *tokens, int64_t B, int64_t T,
                                   int64_t C, token_range range, const tri_dropout *dropout)
{
  const bool runs = are_aligned(dwte, dwpe) && are_aligned(dout) && C % RUN<E> == 0;
  with_runs<RUN<E>>(runs, [=](auto w) {
    add_slopes<E, w.value, DROP>(launch, dwte, dwpe, (const E *)dout, tokens, B, T, C, range,
                                 dropout);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_embedding_backward(const tri_launch *launch, float *dwte,
                                                     float *dwpe, const void *dout,
                                                     const int32_t *tokens, int64_t B, int64_t T,
                                                     int64_t C, int64_t first_token, int64_t V,
                                                     tri_dtype dtype, const tri_dropout *dropout)
{
  if (B == 0 || T == 0 || C == 0) return cudaSuccess;
  const auto backward =
      dtype == TRI_DTYPE_BF16
          ? (dropout_is_on(dropout) ? launch_backward<tri_bf16, true>
                                    : launch_backward<tri_bf16, false>)
          : (dropout_is_on(dropout) ? launch_backward<float, true> : launch_backward<float, false>);
  return backward(launch, dwte, dwpe, dout, tokens, B, T, C, token_range{first_token, V}, dropout);
}

template <class E, bool DROP>
static cudaError_t launch_positions_backward(const tri_launch *launch, void *dx, float *dwpe,
                                             const void *dout, int64_t N, int64_t T, int64_t C,
                                             const tri_dropout *dropout)
{
  const bool runs = are_aligned(dx, dout) && are_aligned(dwpe) && C % RUN<E> == 0;
  with_runs<RUN<E>>(runs, [=](auto w) {
    const dim3 grid(grid_of(T, WARPS), grid_y_of(ceil_div(C, WARP * w.value)));
    TRI_LAUNCH((positions_backward<E, w.value, DROP>), grid, dim3(WARPS * WARP), 0, launch->stream,
               (E *)dx, dwpe, (const E *)dout, N, T, C, dropout_mask_of(dropout));
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_positions_backward(const tri_launch *launch, void *dx,
                                                     float *dwpe, const void *dout, int64_t N,
                                                     int64_t T, int64_t C, tri_dtype dtype,
                                                     const tri_dropout *dropout)
{
  if (N == 0 || C == 0) return cudaSuccess;
  const auto backward = dtype == TRI_DTYPE_BF16
                            ? (dropout_is_on(dropout) ? launch_positions_backward<tri_bf16, true>
                                                      : launch_positions_backward<tri_bf16, false>)
                            : (dropout_is_on(dropout) ? launch_positions_backward<float, true>
                                                      : launch_positions_backward<float, false>);
  return backward(launch, dx, dwpe, dout, N, T, C, dropout);
}
