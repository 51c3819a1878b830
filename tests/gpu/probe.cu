// The kernels of probe.h. tests/cuda/emulation_test.cpp asks the emulation the same questions.
#include "portable.cuh"

#include <cstring>

#include "probe.h"

static __device__ uint32_t pack(bool f16, float low, float high)
{
  uint32_t word;
  if (f16) {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&word, &pair, sizeof word);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&word, &pair, sizeof word);
  }
  return word;
}

template <bool F16> static __global__ void mma_kernel(float *D, const float *A, const float *B)
{
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  uint32_t a[4], b[2];
  float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int r = 0; r < 4; r++) {
    const float *at = A + (g + 8 * (r % 2)) * 16 + 2 * t + 8 * (r / 2);
    a[r] = pack(F16, at[0], at[1]);
  }
  for (int r = 0; r < 2; r++) {
    const float *at = B + (2 * t + 8 * r) * 8 + g;
    b[r] = pack(F16, at[0], at[8]);
  }
  if (F16) {
    mma_m16n8k16_f16(c, a, b, c);
  } else {
    mma_m16n8k16_bf16(c, a, b, c);
  }
  for (int i = 0; i < 4; i++)
    D[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = c[i];
}

extern "C" cudaError_t probe_mma(cudaStream_t stream, int f16, float *D, const float *A,
                                 const float *B)
{
  if (f16) {
    TRI_LAUNCH((mma_kernel<true>), 1, 32, 0, stream, D, A, B);
  } else {
    TRI_LAUNCH((mma_kernel<false>), 1, 32, 0, stream, D, A, B);
  }
  return cudaGetLastError();
}

static __global__ void ldmatrix_kernel(uint32_t *x4, uint32_t *x4_trans, uint32_t *x2,
                                       uint32_t *x2_trans)
{
  TRI_SHARED(uint16_t, s, [32][8]);
  const int lane = static_cast<int>(threadIdx.x);
  for (int c = 0; c < 8; c++)
    s[lane][c] = static_cast<uint16_t>(lane * 8 + c);
  __syncwarp();
  uint32_t a[4], b[4], c[2], d[2];
  ldmatrix_x4(a, s[lane]);
  ldmatrix_x4_trans(b, s[lane]);
  ldmatrix_x2(c, s[lane % 16]);
  ldmatrix_x2_trans(d, s[lane % 16]);
  for (int m = 0; m < 4; m++) {
    x4[lane * 4 + m] = a[m];
    x4_trans[lane * 4 + m] = b[m];
  }
  for (int m = 0; m < 2; m++) {
    x2[lane * 2 + m] = c[m];
    x2_trans[lane * 2 + m] = d[m];
  }
}

extern "C" cudaError_t probe_ldmatrix(cudaStream_t stream, uint32_t *x4, uint32_t *x4_trans,
                                      uint32_t *x2, uint32_t *x2_trans)
{
  TRI_LAUNCH(ldmatrix_kernel, 1, 32, 0, stream, x4, x4_trans, x2, x2_trans);
  return cudaGetLastError();
}

// 64 threads, 16 bytes each of either group; thread i reads what thread 63 - i copied.
static __global__ void cp_async_kernel(float *out, const float *in)
{
  TRI_SHARED(float4, s, [2][64]);
  const int i = static_cast<int>(threadIdx.x), other = 63 - i;
  const float4 *from = reinterpret_cast<const float4 *>(in);
  for (int group = 0; group < 2; group++) {
    cp_async16(&s[group][i], &from[group * 64 + i]);
    cp_async_commit();
  }
  cp_async_wait<1>();
  __syncthreads();
  for (int group = 0; group < 2; group++) {
    const float4 x = s[group][other];
    float *to = out + (group * 64 + other) * 4;
    to[0] = x.x + 1.0f;
    to[1] = x.y + 1.0f;
    to[2] = x.z + 1.0f;
    to[3] = x.w + 1.0f;
    cp_async_wait<0>();
    __syncthreads();
  }
}

extern "C" cudaError_t probe_cp_async(cudaStream_t stream, float *out, const float *in)
{
  TRI_LAUNCH(cp_async_kernel, 1, 64, 0, stream, out, in);
  return cudaGetLastError();
}
