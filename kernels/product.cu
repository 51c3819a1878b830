// The products of src/device/cpu/linear.c for shapes and addresses that cuBLASLt does not take:
// plain, without tensor cores, any size.

#include "element.cuh"
#include "launch.cuh"
#include "launchers.h"

enum { TILE = 32, DEPTH = 16, THREADS_X = 32, THREADS_Y = 8, ROWS_EACH = TILE / THREADS_Y };

// An operand as (outer, k): element (i, k) at i * outer_stride + k * k_stride.
template <class T> struct operand {
  const T *data;
  int64_t outer_stride, k_stride;
};

// tile[k][i] = element (first + i, k0 + k), 0 outside. Neighbours in memory go to neighbouring
// threads.
template <class T>
__device__ __forceinline__ void load_tile(float (&tile)[DEPTH][TILE + 1], const operand<T> &x,
                                          int64_t first, int64_t n, int64_t k0, int64_t n_k)
{
  const int thread = (int)(threadIdx.y * THREADS_X + threadIdx.x);
  for (int e = thread; e < TILE * DEPTH; e += THREADS_X * THREADS_Y) {
    const int k = x.k_stride == 1 ? e % DEPTH : e / TILE;
    const int i = x.k_stride == 1 ? e / DEPTH : e % TILE;
    const bool inside = first + i < n && k0 + k < n_k;
    tile[k][i] =
        inside ? to_float(x.data[(first + i) * x.outer_stride + (k0 + k) * x.k_stride]) : 0.0f;
  }
}

// out (rows, columns) = [out +] a b^T [+ bias (columns)], sums over k in ascending order.
template <class T, class R>
static __global__ void __launch_bounds__(THREADS_X *THREADS_Y)
    product(R *out, operand<T> a, operand<T> b, const T *bias, int64_t rows, int64_t columns,
            int64_t n_k, bool adds)
{
  TRI_SHARED(float, a_tile, [DEPTH][TILE + 1]);
  TRI_SHARED(float, b_tile, [DEPTH][TILE + 1]);
  const int64_t column = (int64_t)blockIdx.x * TILE + threadIdx.x;
  for (int64_t row0 = (int64_t)blockIdx.y * TILE; row0 < rows; row0 += (int64_t)gridDim.y * TILE) {
    float sum[ROWS_EACH] = {};
    for (int64_t k0 = 0; k0 < n_k; k0 += DEPTH) {
      load_tile(a_tile, a, row0, rows, k0, n_k);
      load_tile(b_tile, b, (int64_t)blockIdx.x * TILE, columns, k0, n_k);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
#pragma unroll
        for (int r = 0; r < ROWS_EACH; r++)
          sum[r] += a_tile[k][threadIdx.y + THREADS_Y * r] * b_tile[k][threadIdx.x];
      }
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < ROWS_EACH; r++) {
      const int64_t row = row0 + threadIdx.y + THREADS_Y * r;
      if (row >= rows || column >= columns) continue;
      const float before = adds ? to_float(out[row * columns + column]) : 0.0f;
      const float shift = bias != NULL ? to_float(bias[column]) : 0.0f;
      out[row * columns + column] = from_float<R>(before + (sum[r] + shift));
    }
  }
}

template <class T, class R>
static cudaError_t launch_product(const tri_launch *launch, R *out, operand<T> a, operand<T> b,
                                  const T *bias, int64_t rows, int64_t columns, int64_t n_k,
                                  bool adds)
{
  if (rows == 0 || columns == 0 || n_k == 0) return cudaSuccess;
  const dim3 grid((unsigned)ceil_div(columns, TILE), grid_y_of(ceil_div(rows, TILE)));
  TRI_LAUNCH((product<T, R>), grid, dim3(THREADS_X, THREADS_Y), 0, launch->stream, out, a, b, bias,
             rows, columns, n_k, adds);
  return cudaGetLastError();
}

template <class T>
static cudaError_t forward(const tri_launch *launch, void *out, const void *x, const void *w,
                           const void *bias, int64_t N, int64_t IC, int64_t OC)
{
  return launch_product<T, T>(launch, (T *)out, {(const T *)x, IC, 1}, {(const T *)w, IC, 1},
                              (const T *)bias, N, OC, IC, false);
}

template <class T>
static cudaError_t backward_input(const tri_launch *launch, void *dx, const void *dout,
                                  const void *w, int64_t N, int64_t IC, int64_t OC)
{
  return launch_product<T, T>(launch, (T *)dx, {(const T *)dout, OC, 1}, {(const T *)w, 1, IC},
                              NULL, N, IC, OC, false);
}

template <class T>
static cudaError_t backward_weight(const tri_launch *launch, float *dw, const void *dout,
                                   const void *x, int64_t N, int64_t IC, int64_t OC)
{
  return launch_product<T, float>(launch, dw, {(const T *)dout, 1, OC}, {(const T *)x, 1, IC}, NULL,
                                  OC, IC, N, true);
}

extern "C" cudaError_t tri_launch_product_forward(const tri_launch *launch, void *out,
                                                  const void *x, const void *w, const void *bias,
                                                  int64_t N, int64_t IC, int64_t OC,
                                                  tri_dtype dtype)
{
  return dtype == TRI_DTYPE_BF16 ? forward<tri_bf16>(launch, out, x, w, bias, N, IC, OC)
                                 : forward<float>(launch, out, x, w, bias, N, IC, OC);
}

extern "C" cudaError_t tri_launch_product_backward_input(const tri_launch *launch, void *dx,
                                                         const void *dout, const void *w, int64_t N,
                                                         int64_t IC, int64_t OC, tri_dtype dtype)
{
  return dtype == TRI_DTYPE_BF16 ? backward_input<tri_bf16>(launch, dx, dout, w, N, IC, OC)
                                 : backward_input<float>(launch, dx, dout, w, N, IC, OC);
}

extern "C" cudaError_t tri_launch_product_backward_weight(const tri_launch *launch, float *dw,
                                                          const void *dout, const void *x,
                                                          int64_t N, int64_t IC, int64_t OC,
                                                          tri_dtype dtype)
{
  return dtype == TRI_DTYPE_BF16 ? backward_weight<tri_bf16>(launch, dw, dout, x, N, IC, OC)
                                 : backward_weight<float>(launch, dw, dout, x, N, IC, OC);
}
