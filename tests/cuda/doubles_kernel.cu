// A kernel for the tests of the doubles: y = 2 x + 1, n elements.
#include "portable.cuh"

#include "doubles_kernel.h"

static __global__ void affine(float *y, const float *x, int n)
{
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = 2 * x[i] + 1;
}

extern "C" void launch_affine(float *y, const float *x, int n, cudaStream_t stream)
{
  TRI_LAUNCH(affine, (n + 63) / 64, 64, 0, stream, y, x, n);
}
