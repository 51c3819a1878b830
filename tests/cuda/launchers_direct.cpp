// What launchers_test.c needs of the CUDA runtime: kernels run at once.
#include "cuda/launchers_direct.h"

#include <map>

#include "cuda/emulation.h"

// Dynamic shared memory that a kernel has without asking.
static const size_t DEFAULT_SHARED_BYTES = 48 * 1024;

static std::map<const void *, size_t> allowed_shared; // by kernel, of those that asked
static cudaError_t last_error = cudaSuccess;

extern "C" cudaError_t CUDARTAPI cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int n)
{
  allowed_shared[kernel] = static_cast<size_t>(n);
  return cudaSuccess;
}

extern "C" void emu_enqueue_kernel(cudaStream_t, const char *name, dim3 grid, dim3 block,
                                   size_t shared_bytes, void (*fn)(void *), void *ctx,
                                   void (*del)(void *), const void *const *, int)
{
  const auto asked = allowed_shared.find(*static_cast<const void **>(ctx));
  const size_t allowed = asked == allowed_shared.end() ? DEFAULT_SHARED_BYTES : asked->second;
  if (shared_bytes > allowed) {
    last_error = cudaErrorInvalidValue;
  } else {
    emu_run_kernel(name, grid, block, shared_bytes, fn, ctx);
  }
  del(ctx);
}

extern "C" cudaError_t CUDARTAPI cudaGetLastError(void)
{
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

tensor_core_use tensor_core_use_so_far(void)
{
  const emu_counts counts = emu_get_counts();
  return tensor_core_use{counts.mmas, counts.ldmatrix_conflicts};
}
