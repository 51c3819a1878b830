// Twin of src/device/cpu/linear.c: what no epilogue of the matrix product does.

#include "columns.cuh"
#include "element.cuh"
#include "launch.cuh"
#include "launchers.h"

enum { THREADS = 256 };

constexpr float SQRT_2_OVER_PI = 0.7978845608028654f;

// With u = sqrt(2/pi) (y + 0.044715 y^3), 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)): no cancellation
// for negative y, and an exponential that overflows gives the limit, 0.
__device__ __forceinline__ float gelu_forward(float y)
{
  const float u = SQRT_2_OVER_PI * (y + 0.044715f * y * y * y);
  return __fdividef(y, 1.0f + __expf(-2.0f * u));
}

// s + y s (1 - s) 2 u', s as above. With e = exp(-2 |u|), which never overflows, s is 1 / (1 + e)
// or e / (1 + e), and s (1 - s) = e / (1 + e)^2.
__device__ __forceinline__ float gelu_derivative(float y)
{
  const float u = SQRT_2_OVER_PI * (y + 0.044715f * y * y * y);
  const float e = __expf(-2.0f * fabsf(u));
  const float q = __fdividef(1.0f, 1.0f + e);
  const float s = u >= 0.0f ? q : e * q;
  const float inner = SQRT_2_OVER_PI * (1.0f + 3.0f * 0.044715f * y * y);
  return s + 2.0f * y * (e * q * q) * inner;
}

// A thread keeps its run of the bias and goes down the rows.
template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    bias_gelu(T *out, T *gelu, const T *bias, int64_t N, int64_t OC)
{
  const int64_t c = ((int64_t)blockIdx.x * WARP + threadIdx.x) * W;
  if (c >= OC) return;
  float bias_run[W] = {};
  if (bias != NULL) load(bias_run, bias + c);
#pragma unroll 2
  for (int64_t n = (int64_t)blockIdx.y * TILE_ROWS + threadIdx.y; n < N;
       n += (int64_t)gridDim.y * TILE_ROWS) {
    float y[W];
    load(y, out + n * OC + c);
    if (bias != NULL) {
#pragma unroll
      for (int i = 0; i < W; i++)
        y[i] = rounded<T>(y[i] + bias_run[i]);
      store(out + n * OC + c, y);
    }
    if (gelu != NULL) {
#pragma unroll
      for (int i = 0; i < W; i++)
        y[i] = gelu_forward(y[i]);
      store(gelu + n * OC + c, y);
    }
  }
}

template <class T, int W>
static __global__ void __launch_bounds__(THREADS) gelu_backward(T *dx, const T *pre, int64_t n)
{
  each_run<W>(n, [=](int64_t i, auto w) {
    float slopes[w.value], y[w.value];
    load(slopes, dx + i);
    load(y, pre + i);
#pragma unroll
    for (int k = 0; k < w.value; k++)
      slopes[k] *= gelu_derivative(y[k]);
    store(dx + i, slopes);
  });
}

// partial (groups, C) = sums of columns of dout (N, row stride `stride`): a row a group, gridDim.y
// groups.
template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    bias_partials(float *partial, const T *dout, int64_t N, int64_t C, int64_t stride)
{
  const int64_t tile = WARP * W;
  for (int64_t c0 = blockIdx.x * tile; c0 < C; c0 += gridDim.x * tile) {
    const int64_t c = c0 + (int64_t)threadIdx.x * W;
    float sum[W] = {};
    if (c < C) {
#pragma unroll 4
      for (int64_t n = (int64_t)blockIdx.y * TILE_ROWS + threadIdx.y; n < N;
           n += (int64_t)gridDim.y * TILE_ROWS) {
        float slopes[W];
        load(slopes, dout + n * stride + c);
#pragma unroll
        for (int i = 0; i < W; i++)
          sum[i] += slopes[i];
      }
    }
    store_partial<TILE_ROWS>(partial + blockIdx.y * C, sum, threadIdx.y, threadIdx.x, c, C);
  }
}

template <class T>
static cudaError_t launch_bias_gelu(const tri_launch *launch, void *out, void *gelu,
                                    const void *bias, int64_t N, int64_t OC)
{
  with_runs<RUN<T>>(are_aligned(out, gelu, bias) && OC % RUN<T> == 0, [=](auto w) {
    const dim3 grid((unsigned)ceil_div(OC, WARP * w.value), grid_y_of(ceil_div(N, 4 * TILE_ROWS)));
    TRI_LAUNCH((bias_gelu<T, w.value>), grid, dim3(WARP, TILE_ROWS), 0, launch->stream, (T *)out,
               (T *)gelu, (const T *)bias, N, OC);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_bias_gelu(const tri_launch *launch, void *out, void *gelu,
                                            const void *bias, int64_t N, int64_t OC,
                                            tri_dtype dtype)
{
  if (N == 0 || OC == 0 || (bias == NULL && gelu == NULL)) return cudaSuccess;
  return dtype == TRI_DTYPE_BF16 ? launch_bias_gelu<tri_bf16>(launch, out, gelu, bias, N, OC)
                                 : launch_bias_gelu<float>(launch, out, gelu, bias, N, OC);
}

template <class T>
static cudaError_t launch_gelu_backward(const tri_launch *launch, void *dx, const void *pre,
                                        int64_t n)
{
  with_runs<RUN<T>>(are_aligned(dx, pre), [=](auto w) {
    TRI_LAUNCH((gelu_backward<T, w.value>), dim3(grid_of(n, THREADS * w.value)), dim3(THREADS), 0,
               launch->stream, (T *)dx, (const T *)pre, n);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_gelu_backward(const tri_launch *launch, void *dx, const void *pre,
                                                int64_t n, tri_dtype dtype)
{
  if (n == 0) return cudaSuccess;
  return dtype == TRI_DTYPE_BF16 ? launch_gelu_backward<tri_bf16>(launch, dx, pre, n)
                                 : launch_gelu_backward<float>(launch, dx, pre, n);
}

template <class T, int W>
static void add_bias_slopes(const tri_launch *launch, float *dbias, const T *dout, int64_t N,
                            int64_t OC)
{
  float *partial = (float *)launch->workspace;
  for (int64_t c = 0; c < OC; c += COLUMN_SLICE) {
    const int64_t C = at_most(OC - c, COLUMN_SLICE), n_tiles = ceil_div(C, WARP * W);
    const int64_t K = row_groups(N, n_tiles);
    TRI_LAUNCH((bias_partials<T, W>), dim3((unsigned)n_tiles, (unsigned)K), dim3(WARP, TILE_ROWS),
               0, launch->stream, partial, dout + c, N, C, OC);
    launch_add_partials(launch->stream, dbias + c, C, NULL, partial, C, K);
  }
}

template <class T>
static cudaError_t launch_bias_backward(const tri_launch *launch, float *dbias, const void *dout,
                                        int64_t N, int64_t OC)
{
  with_runs<RUN<T>>(are_aligned(dout) && OC % RUN<T> == 0, [=](auto w) {
    add_bias_slopes<T, w.value>(launch, dbias, (const T *)dout, N, OC);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_bias_backward(const tri_launch *launch, float *dbias,
                                                const void *dout, int64_t N, int64_t OC,
                                                tri_dtype dtype)
{
  if (N == 0 || OC == 0) return cudaSuccess;
  return dtype == TRI_DTYPE_BF16 ? launch_bias_backward<tri_bf16>(launch, dbias, dout, N, OC)
                                 : launch_bias_backward<float>(launch, dbias, dout, N, OC);
}
