// Sums and maxima over a warp and over a block, in a fixed order.
//
// Every thread of the warp or block must call them, and every one gets the result, with the same
// bits: partners of a shuffle add the same two numbers. Blocks are one-dimensional, whole warps.
#pragma once

#include "portable.cuh"

enum { WARP = 32 };
constexpr unsigned ALL_LANES = 0xffffffffu;

template <class S> __device__ __forceinline__ S warp_sum(S value)
{
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(ALL_LANES, value, offset);
  return value;
}

__device__ __forceinline__ float warp_max(float value)
{
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, offset));
  return value;
}

// `part` holds one number of each warp; the barrier before it is written waits for the readers of
// the call before.
template <class S> __device__ __forceinline__ S block_sum(S value)
{
  TRI_SHARED(S, part, [WARP]);
  const int n_warps = (int)blockDim.x / WARP;
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = value;
  __syncthreads();
  S sum = part[0];
  for (int k = 1; k < n_warps; k++)
    sum += part[k];
  return sum;
}

__device__ __forceinline__ float block_max(float value)
{
  TRI_SHARED(float, part, [WARP]);
  const int n_warps = (int)blockDim.x / WARP;
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = value;
  __syncthreads();
  float largest = part[0];
  for (int k = 1; k < n_warps; k++)
    largest = fmaxf(largest, part[k]);
  return largest;
}
