// The bridge from an emulated kernel launch to the queue of its stream.
#include "cuda/emulation.h"

#include "doubles.h"

namespace
{
struct launch {
  const char *name;
  dim3 grid, block;
  size_t shared_bytes;
  void (*function)(void *);
  void *ctx;
  void (*del)(void *);
};

bool run(void *body)
{
  const launch *l = static_cast<launch *>(body);
  emu_run_kernel(l->name, l->grid, l->block, l->shared_bytes, l->function, l->ctx);
  return true;
}

void release(void *body)
{
  launch *l = static_cast<launch *>(body);
  l->del(l->ctx);
  delete l;
}

cudaError_t check(dim3 grid, dim3 block, size_t shared_bytes)
{
  const unsigned long long threads = 1ull * block.x * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 || block.z > 64 ||
      grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  return double_shared_allowed(shared_bytes) ? cudaSuccess : cudaErrorInvalidValue;
}

struct call { // the lock, as DOUBLE_ENTER holds it in C
  const char *name;
  explicit call(const char *n) : name(double_enter(n))
  {
  }
  ~call()
  {
    double_leave(&name);
  }
};
} // namespace

extern "C" void emu_enqueue_kernel(cudaStream_t stream, const char *name, dim3 grid, dim3 block,
                                   size_t shared_bytes, void (*fn)(void *), void *ctx,
                                   void (*del)(void *), const void *const *pointers, int n_pointers)
{
  const call entered("emu_enqueue_kernel");
  double_launched(name);
  cudaError_t error =
      double_must_fail("launch") ? cudaErrorLaunchOutOfResources : check(grid, block, shared_bytes);
  if (error == cudaSuccess) error = double_sticky_error();
  const int device = double_stream_device(stream);
  if (error == cudaSuccess && device != double_current_device())
    error = cudaErrorInvalidResourceHandle;
  if (error != cudaSuccess) {
    (void)double_set_error(error);
    del(ctx);
    return;
  }
  for (int i = 0; i < n_pointers; i++)
    if (pointers[i] != nullptr) double_check_device(pointers[i], 0, device, name);
  double_count.kernels++;
  double_enqueue(stream, {name, run, release,
                          new launch{name, grid, block, shared_bytes, fn, ctx, del}, false});
}
