// Kernels with a planted mistake (the name says which), and right ones that look alike.
#include "emulation_faults.h"

#include <cstring>

static __global__ void right_barrier(float *out)
{
  TRI_SHARED(float, s, [64]);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x + 64 * blockIdx.x] = s[63 - threadIdx.x];
}

static __global__ void dropped_barrier(float *out)
{
  TRI_SHARED(float, s, [64]);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x + 64 * blockIdx.x] = s[63 - threadIdx.x];
}

// Two sums through one array: the second write must not overtake the first read. Warp 1 of block 0
// reads what warp 0 wrote.
template <bool BARRIER> static __device__ float two_rounds()
{
  TRI_SHARED(float, s, [2]);
  float total = 0.0f;
  for (int round = 0; round < 3; round++) {
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = static_cast<float>(round * 100 + 1);
    __syncthreads();
    total = 2.0f * total + s[0] + s[1];
    if (BARRIER) __syncthreads();
  }
  return total;
}

static __global__ void right_reuse(float *out)
{
  out[threadIdx.x + 64 * blockIdx.x] = two_rounds<true>();
}

static __global__ void write_after_read(float *out)
{
  out[threadIdx.x + 64 * blockIdx.x] = two_rounds<false>();
}

static __global__ void divergent_barrier(float *out)
{
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1.0f;
}

static __global__ void divergent_collective(float *out)
{
  float x = 1.0f;
  if (threadIdx.x < 8) {
    x = __shfl_xor_sync(~0u, x, 1);
  } else {
    x = __shfl_xor_sync(~0u, x, 2);
  }
  out[threadIdx.x] = x;
}

static __global__ void exited_lane(float *out)
{
  if (threadIdx.x >= 50) return;
  out[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 1);
}

static __global__ void waits_for_ever(float *out)
{
  if (threadIdx.x < 16) __syncwarp();
  __syncthreads();
  out[threadIdx.x] = 1.0f;
}

static __global__ void shared_overrun(float *out)
{
  TRI_SHARED(float, s, [64]);
  s[threadIdx.x + 1] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}

static __global__ void global_overrun(float *out)
{
  out[threadIdx.x + 193] = 1.0f;
}

static __global__ void unwritten_shared(float *out)
{
  TRI_SHARED(float, s, [65]);
  s[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x + 1];
}

template <int IN_FLIGHT> static __device__ float copied(float *out)
{
  TRI_SHARED(float, s, [256]);
  cp_async16(s + 4 * threadIdx.x, out + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<IN_FLIGHT>();
  __syncthreads();
  return s[255 - threadIdx.x];
}

static __global__ void right_copy(float *out)
{
  const float x = copied<0>(out);
  __syncthreads();
  out[threadIdx.x] = x;
}

static __global__ void missing_wait(float *out)
{
  const float x = copied<1>(out);
  __syncthreads();
  out[threadIdx.x] = x;
}

static __global__ void misaligned_copy(float *out)
{
  TRI_SHARED(float, s, [260]);
  cp_async16(s + threadIdx.x, out + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  out[threadIdx.x] = s[threadIdx.x];
}

// Every lane of a warp writes, its neighbour reads: the lanes need __syncwarp.
template <bool SYNC> static __device__ float neighbour()
{
  TRI_SHARED(float, s, [64]);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (SYNC) __syncwarp();
  return s[threadIdx.x ^ 31];
}

static __global__ void right_syncwarp(float *out)
{
  out[threadIdx.x + 64 * blockIdx.x] = neighbour<true>();
}

static __global__ void missing_syncwarp(float *out)
{
  out[threadIdx.x + 64 * blockIdx.x] = neighbour<false>();
}

static __global__ void race_of_blocks(float *out)
{
  if (threadIdx.x == 0) out[0] += 1.0f;
}

static __global__ void right_atomic(float *out)
{
  if (threadIdx.x == 0) atomicAdd(reinterpret_cast<int *>(out), 1);
}

const emu_fault emu_faults[] = {
    {"right_barrier", 3, right_barrier},
    {"right_reuse", 2, right_reuse},
    {"right_copy", 1, right_copy},
    {"right_syncwarp", 3, right_syncwarp},
    {"right_atomic", 4, right_atomic},
    {"dropped_barrier", 1, dropped_barrier},
    {"write_after_read", 2, write_after_read},
    {"divergent_barrier", 1, divergent_barrier},
    {"divergent_collective", 1, divergent_collective},
    {"exited_lane", 1, exited_lane},
    {"waits_for_ever", 1, waits_for_ever},
    {"shared_overrun", 1, shared_overrun},
    {"global_overrun", 1, global_overrun},
    {"unwritten_shared", 1, unwritten_shared},
    {"missing_wait", 1, missing_wait},
    {"misaligned_copy", 1, misaligned_copy},
    {"missing_syncwarp", 1, missing_syncwarp},
    {"race_of_blocks", 4, race_of_blocks},
};
const int emu_n_faults = sizeof emu_faults / sizeof emu_faults[0];

const emu_fault *emu_find_fault(const char *name)
{
  for (int i = 0; i < emu_n_faults; i++)
    if (strcmp(emu_faults[i].name, name) == 0) return &emu_faults[i];
  return nullptr;
}
