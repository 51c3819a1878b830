// Elements and runs of elements: how the kernels read and write f32 and bf16 arrays.
//
// A run is W consecutive elements that travel in one access of 16 bytes (f32 beside bf16: in two,
// or 8 bytes), so it lies at a multiple of 16 bytes. A launcher picks W = RUN<T> where pointers and
// row lengths allow it, else W = 1, which takes any alignment and any length. All arithmetic is in
// f32.
#pragma once

#include <cstdint>
#include <type_traits>

#include "portable.cuh"
#include "trireme/tensor/dtype.h"

// Elements of one 16-byte access. T is float or tri_bf16 throughout.
template <class T> constexpr int RUN = 16 / (int)sizeof(T);

template <class T, int W> struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) run {
  T element[W];
};

__device__ __forceinline__ float to_float(float x)
{
  return x;
}

__device__ __forceinline__ float to_float(tri_bf16 x)
{
  return __uint_as_float((uint32_t)x << 16);
}

template <class T> __device__ __forceinline__ T from_float(float value)
{
  if constexpr (std::is_same<T, float>::value) {
    return value;
  } else {
    // The instruction makes one number of all NaN; tri_bf16_from_float keeps their upper bits.
    if (value != value) return (tri_bf16)((__float_as_uint(value) >> 16) | 0x40u);
    return static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x;
  }
}

// What is left of a value that was stored as a T.
template <class T> __device__ __forceinline__ float rounded(float value)
{
  return to_float(from_float<T>(value));
}

template <int W, class T> __device__ __forceinline__ run<T, W> load_run(const T *x)
{
  return *reinterpret_cast<const run<T, W> *>(x);
}

template <class T, int W>
__device__ __forceinline__ void unpack(float (&values)[W], const run<T, W> &x)
{
#pragma unroll
  for (int i = 0; i < W; i++)
    values[i] = to_float(x.element[i]);
}

template <class T, int W> __device__ __forceinline__ run<T, W> pack(const float (&values)[W])
{
  run<T, W> x;
#pragma unroll
  for (int i = 0; i < W; i++)
    x.element[i] = from_float<T>(values[i]);
  return x;
}

template <class T, int W> __device__ __forceinline__ void load(float (&values)[W], const T *x)
{
  unpack(values, load_run<W>(x));
}

template <class T, int W> __device__ __forceinline__ void store_run(T *x, const run<T, W> &from)
{
  *reinterpret_cast<run<T, W> *>(x) = from;
}

template <class T, int W> __device__ __forceinline__ void store(T *x, const float (&values)[W])
{
  store_run(x, pack<T>(values));
}

template <int W> using width = std::integral_constant<int, W>;

// Shares out n elements of flat arrays among all threads of the grid, a run at a time: calls
// body(i, width<W>()) for the run at i, and body(i, width<1>()) for each element behind the last
// whole run.
template <int W, class Body> __device__ __forceinline__ void each_run(int64_t n, Body body)
{
  const int64_t stride = (int64_t)gridDim.x * blockDim.x * W;
  for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W; i < n; i += stride) {
    if (i + W <= n) {
      body(i, width<W>());
    } else {
      for (int64_t j = i; j < n; j++)
        body(j, width<1>());
    }
  }
}
