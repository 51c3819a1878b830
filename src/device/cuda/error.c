#include <string.h>

#include "device/cuda/cuda.h"

tri_status tri_cuda_error_set(cudaError_t error, const char *call, const char *function,
                              const char *file, int line)
{
  // The runtime remembers the last error of the thread; it has been said now.
  (void)cudaGetLastError();
  const tri_status code = error == cudaErrorMemoryAllocation ? TRI_ERR_MEMORY : TRI_ERR_DEVICE;
  const int name = (int)strcspn(call, "(");
  return tri_error_set(code, function, file, line, "CUDA: %.*s: %s, %s", name, call,
                       cudaGetErrorName(error), cudaGetErrorString(error));
}
