#include "device/backends.h"

#include "config.h"
#include "device/cpu/cpu.h"
#ifdef TRI_HAVE_CUDA
#include "device/cuda/cuda.h"
#endif

static tri_status open_cpu(const char *number, const tri_device_options *options, tri_device **out)
{
  (void)number; // none: there is no list
  TRI_CALL(tri_cpu_open(options, out));
  return TRI_OK;
}

const tri_backend tri_backends[] = {
    {.kind = "cpu", .open = open_cpu},
#ifdef TRI_HAVE_CUDA
    {.kind = "cuda", .open = tri_cuda_open, .list = tri_cuda_list},
#endif
    {.kind = NULL},
};
