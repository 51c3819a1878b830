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

template <class E, int W, bool DROP>
static __global__ void __launch_bounds__(WARPS *WARP)
    embedding_forward(E *out, const int32_t *tokens, const E *wte, const E *wpe, int64_t n_rows,
                      int64_t T, int64_t C, int64_t first_position, dropout_mask mask)
{
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int64_t n_warps = (int64_t)gridDim.x * WARPS;
  for (int64_t bt = (int64_t)blockIdx.x * WARPS + warp; bt < n_rows; bt += n_warps) {
    const int64_t b = bt / T, t = bt % T;
    const E *token_row = wte + tokens[bt] * C, *position_row = wpe + (first_position + t) * C;
#pragma unroll 2
    for (int64_t c = lane * W; c < C; c += WARP * W) {
      float value[W], position[W], factor[W];
      load(value, token_row + c);
      load(position, position_row + c);
      if constexpr (DROP) dropout_factors(factor, mask, b, t * C + c);
#pragma unroll
      for (int i = 0; i < W; i++) {
        value[i] += position[i];
        if constexpr (DROP) value[i] *= factor[i];
      }
      store(out + bt * C + c, value);
    }
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
                              int64_t end, int64_t T, int64_t C, dropout_mask mask)
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
    if (appears(tokens, begin, bt, token)) continue;
    for (int64_t c0 = (int64_t)blockIdx.y * WARP * W; c0 < C; c0 += (int64_t)gridDim.y * WARP * W) {
      // Lanes behind the last column look for tokens like the others, and add nothing.
      const int64_t c = c0 + lane * W;
      float sum[W] = {};
      if (c < C) load(sum, dwte + token * C + c);
      int count = 0;
      for (int64_t from = bt; from < end; from += LOOK) {
        count = collect(list, count, tokens, begin, from, end, token);
        if (count < FULL && from + LOOK < end) continue;
        __syncwarp();
        if (c < C) add_rows<E, W, DROP>(sum, dout, c, T, C, mask, count, at);
        __syncwarp();
        count = 0;
      }
      if (c < C) store(dwte + token * C + c, sum);
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

template <class E, bool DROP>
static cudaError_t launch_forward(const tri_launch *launch, void *out, const int32_t *tokens,
                                  const void *wte, const void *wpe, int64_t B, int64_t T, int64_t C,
                                  int64_t first_position, const tri_dropout *dropout)
{
  with_runs<RUN<E>>(are_aligned(out, wte, wpe) && C % RUN<E> == 0, [=](auto w) {
    TRI_LAUNCH((embedding_forward<E, w.value, DROP>), dim3(grid_of(B * T, WARPS)),
               dim3(WARPS * WARP), 0, launch->stream, (E *)out, tokens, (const E *)wte,
               (const E *)wpe, B * T, T, C, first_position, dropout_mask_of(dropout));
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_embedding_forward(const tri_launch *launch, void *out,
                                                    const int32_t *tokens, const void *wte,
                                                    const void *wpe, int64_t B, int64_t T,
                                                    int64_t C, int64_t first_position,
                                                    tri_dtype dtype, const tri_dropout *dropout)
{
  if (B == 0 || T == 0 || C == 0) return cudaSuccess;
  const auto forward =
      dtype == TRI_DTYPE_BF16
          ? (dropout_is_on(dropout) ? launch_forward<tri_bf16, true>
                                    : launch_forward<tri_bf16, false>)
          : (dropout_is_on(dropout) ? launch_forward<float, true> : launch_forward<float, false>);
  return forward(launch, out, tokens, wte, wpe, B, T, C, first_position, dropout);
}

template <class E, int W, bool DROP>
static void add_slopes(const tri_launch *launch, float *dwte, float *dwpe, const E *dout,
                       const int32_t *tokens, int64_t B, int64_t T, int64_t C,
                       const tri_dropout *dropout)
{
  const dropout_mask mask = dropout_mask_of(dropout);
  const unsigned n_strips = grid_y_of(ceil_div(C, WARP * W));
  TRI_LAUNCH((embedding_backward_positions<E, W, DROP>), dim3(grid_of(T, WARPS), n_strips),
             dim3(WARPS * WARP), 0, launch->stream, dwpe, dout, B, T, C, mask);
  for (int64_t begin = 0; begin < B * T; begin += SLICE) {
    const int64_t end = begin + at_most(B * T - begin, SLICE);
    TRI_LAUNCH((embedding_backward_tokens<E, W, DROP>), dim3(grid_of(end - begin, WARPS), n_strips),
               dim3(WARPS * WARP), 0, launch->stream, dwte, dout, tokens, begin, end, T, C, mask);
  }
}

template <class E, bool DROP>
static cudaError_t launch_backward(const tri_launch *launch, float *dwte, float *dwpe,
                                   const void *dout, const int32_t *tokens, int64_t B, int64_t T,
                                   int64_t C, const tri_dropout *dropout)
{
  const bool runs = are_aligned(dwte, dwpe) && are_aligned(dout) && C % RUN<E> == 0;
  with_runs<RUN<E>>(runs, [=](auto w) {
    add_slopes<E, w.value, DROP>(launch, dwte, dwpe, (const E *)dout, tokens, B, T, C, dropout);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_embedding_backward(const tri_launch *launch, float *dwte,
                                                     float *dwpe, const void *dout,
                                                     const int32_t *tokens, int64_t B, int64_t T,
                                                     int64_t C, tri_dtype dtype,
                                                     const tri_dropout *dropout)
{
  if (B == 0 || T == 0 || C == 0) return cudaSuccess;
  const auto backward =
      dtype == TRI_DTYPE_BF16
          ? (dropout_is_on(dropout) ? launch_backward<tri_bf16, true>
                                    : launch_backward<tri_bf16, false>)
          : (dropout_is_on(dropout) ? launch_backward<float, true> : launch_backward<float, false>);
  return backward(launch, dwte, dwpe, dout, tokens, B, T, C, dropout);
}
