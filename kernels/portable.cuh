// The device language of the .cu files: under nvcc the real thing with PTX in small functions,
// under a host compiler the emulation of tests/cuda.
//
// A .cu file includes no other header of the device language, so that every kernel is one source
// for both compilers and is proven without a GPU. What it must do for that:
//   - shared memory through TRI_SHARED and TRI_DYNAMIC_SHARED, launches through TRI_LAUNCH;
//   - PTX only here; no __constant__, no cooperative groups, no barrier that waits for a block;
//   - at most one statement with a barrier or a warp collective on a source line, which is how the
//     emulation tells them apart.
//
// TRI_SHARED(T, name, dims)      static shared array: TRI_SHARED(float, tile, [32][33]);
// TRI_DYNAMIC_SHARED(T, name)    T *name: the dynamic shared memory of the launch, aligned to 16
// TRI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)
//                                kernel<<<...>>>(...); a template kernel stands in parentheses
// mma_m16n8k16_bf16, _f16        D = A B + C of one warp, f32 sums; fragments as the PTX ISA lays
//                                them out, two 16-bit numbers in a word, the lower column first
// ldmatrix_x2, _x4 [_trans]      8x8 matrices of 16-bit numbers; lane 8m+r gives row r of matrix m
// cp_async16, _commit, _wait<N>  16 bytes from global to shared memory in the background; the wait
//                                returns when at most the N last groups of this thread are still
//                                out
// exp2_fast                      2^x in one instruction, to 2 ulp; results below 2^-126 are 0
// Tensor-core and cp.async functions need compute capability 8.0; below it they trap.
#pragma once

#ifdef __CUDACC__

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define TRI_PTX_SM80(...) asm volatile(__VA_ARGS__)
#else
#define TRI_PTX_SM80(...) __trap()
#endif

#define TRI_SHARED(T, name, dims) __shared__ T name dims
// One name for all kernels of a file, hence bytes; a larger alignment here would also pad the
// static shared memory of every other kernel of the file.
#define TRI_DYNAMIC_SHARED(T, name) \
  extern __shared__ __align__(16) unsigned char tri_dynamic_shared[]; \
  T *name = reinterpret_cast<T *>(tri_dynamic_shared)
#define TRI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

__device__ __forceinline__ uint32_t tri_shared_address(const void *shared)
{
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2], const float (&c)[4])
{
  TRI_PTX_SM80("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                 "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2], const float (&c)[4])
{
  TRI_PTX_SM80("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                 "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void *shared)
{
  TRI_PTX_SM80("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1},[%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(tri_shared_address(shared))
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const void *shared)
{
  TRI_PTX_SM80("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(tri_shared_address(shared))
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *shared)
{
  TRI_PTX_SM80("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(tri_shared_address(shared))
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *shared)
{
  TRI_PTX_SM80("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(tri_shared_address(shared))
               : "memory");
}

__device__ __forceinline__ void cp_async16(void *shared, const void *global)
{
  TRI_PTX_SM80("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(tri_shared_address(shared)),
               "l"(__cvta_generic_to_global(global))
               : "memory");
}

__device__ __forceinline__ void cp_async_commit()
{
  TRI_PTX_SM80("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ __forceinline__ void cp_async_wait()
{
  TRI_PTX_SM80("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ float exp2_fast(float x)
{
  float result;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(result) : "f"(x));
  return result;
}

#else

#include "cuda/emulation.h"

#endif
