// Kernels that show what the instructions behind kernels/portable.cuh do: one warp or block each,
// all memory the device's.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PROBE_ASYNC_FLOATS = 256 }; // of one group of copies

// D (16, 8) = A (16, 16) B (16, 8), row-major, numbers exact in 16 bits; in bf16 or in f16.
cudaError_t probe_mma(cudaStream_t stream, int f16, float *D, const float *A, const float *B);

// The words that each lane gets of four (of two) 8x8 matrices whose element (row, column) of matrix
// m is 64 m + 8 row + column: words (32, 4) of x4, the same transposed, (32, 2) of x2, transposed.
cudaError_t probe_ldmatrix(cudaStream_t stream, uint32_t *x4, uint32_t *x4_trans, uint32_t *x2,
                           uint32_t *x2_trans);

// out (2, PROBE_ASYNC_FLOATS) = in + 1 through shared memory in two groups of cp.async: the first
// group is read, by other threads than copied it, while the second may still be under way.
cudaError_t probe_cp_async(cudaStream_t stream, float *out, const float *in);

#ifdef __cplusplus
}
#endif
