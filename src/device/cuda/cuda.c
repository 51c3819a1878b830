// Opening a CUDA device: which there are, which one, what it is.
#include "device/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base/memory.h"
#include "trireme/device/cuda.h"

int tri_cuda_ordinal(const tri_device *device)
{
  return ((const tri_cuda_device *)device)->ordinal;
}

tri_status tri_cuda_select(const tri_device *device)
{
  TRI_CALL_CUDA(cudaSetDevice(tri_cuda_ordinal(device)));
  return TRI_OK;
}

// How many devices this process may use; an error says why there is none.
static tri_status count_devices(int *n)
{
  int runtime = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(n);
  if (error == cudaSuccess && *n > 0) return TRI_OK;
  (void)cudaGetLastError();
  TRI_CALL_CUDA(cudaRuntimeGetVersion(&runtime));
  TRI_CALL_CUDA(cudaDriverGetVersion(&driver));
  TRI_CHECK(driver != 0, TRI_ERR_UNSUPPORTED,
            "this machine has no NVIDIA driver (CUDA runtime %d.%d is compiled in): take a node "
            "with a GPU, or device cpu",
            runtime / 1000, runtime % 1000 / 10);
  TRI_CHECK(driver >= runtime / 1000 * 1000, TRI_ERR_UNSUPPORTED,
            "the NVIDIA driver is for CUDA %d.%d, this program was built with %d.%d: update the "
            "driver, or build with an older toolkit",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  TRI_CHECK(error == cudaErrorNoDevice || error == cudaSuccess, TRI_ERR_DEVICE,
            "CUDA: cudaGetDeviceCount: %s, %s", cudaGetErrorName(error), cudaGetErrorString(error));
  return TRI_ERROR(TRI_ERR_UNSUPPORTED,
                   "no CUDA device to be seen (CUDA_VISIBLE_DEVICES is %s%s): ask the batch "
                   "system for GPUs, or take device cpu",
                   visible == NULL ? "not set" : "set to ", visible == NULL ? "" : visible);
}

static tri_status read_place(int ordinal, tri_device_place *place)
{
  struct cudaDeviceProp properties;
  memset(place, 0, sizeof *place);
  TRI_CALL_CUDA(cudaDeviceGetPCIBusId(place->bus_id, (int)sizeof place->bus_id, ordinal));
  TRI_CALL_CUDA(cudaGetDeviceProperties(&properties, ordinal));
  memcpy(place->uuid, properties.uuid.bytes, sizeof place->uuid);
  snprintf(place->description, sizeof place->description, "%s, sm_%d%d, %.1f GiB", properties.name,
           properties.major, properties.minor, (double)properties.totalGlobalMem / 1073741824.0);
  return TRI_OK;
}

tri_status tri_cuda_list(tri_device_place places[TRI_DEVICE_MAX_PLACES], int *n)
{
  int n_devices = 0;
  TRI_CALL(count_devices(&n_devices));
  if (n_devices > TRI_DEVICE_MAX_PLACES) n_devices = TRI_DEVICE_MAX_PLACES;
  for (int i = 0; i < n_devices; i++)
    TRI_CALL(read_place(i, &places[i]));
  *n = n_devices;
  return TRI_OK;
}

static tri_status parse_number(const char *number, int n_devices, int *out)
{
  char *end = NULL;
  errno = 0;
  const long value = number == NULL ? 0 : strtol(number, &end, 10);
  TRI_CHECK(number == NULL || (errno == 0 && end != number && *end == '\0' && value >= 0),
            TRI_ERR_ARGUMENT, "device cuda:%s: the number of a device is wanted, 0 to %d", number,
            n_devices - 1);
  TRI_CHECK(value < n_devices, TRI_ERR_UNSUPPORTED,
            "device cuda:%ld: this process sees %d CUDA device%s, numbered from 0", value,
            n_devices, n_devices == 1 ? "" : "s");
  *out = (int)value;
  return TRI_OK;
}

static tri_status describe(tri_cuda_device *cuda)
{
  struct cudaDeviceProp properties;
  TRI_CALL_CUDA(cudaGetDeviceProperties(&properties, cuda->ordinal));
  TRI_CALL_CUDA(cudaDeviceGetPCIBusId(cuda->bus_id, (int)sizeof cuda->bus_id, cuda->ordinal));
  cuda->compute_capability = 10 * properties.major + properties.minor;
  snprintf(cuda->isa, sizeof cuda->isa, "sm_%d", cuda->compute_capability);
  snprintf(cuda->description, sizeof cuda->description, "%s, %s at %s", properties.name, cuda->isa,
           cuda->bus_id);
  return TRI_OK;
}

tri_status tri_cuda_open(const char *number, const tri_device_options *options, tri_device **out)
{
  (void)options; // all of them are the CPU's
  tri_status status = TRI_OK;
  int n_devices = 0;
  tri_cuda_device *cuda = NULL;
  TRI_CALL(count_devices(&n_devices));
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &cuda));
  cuda->base.operations = &tri_cuda_operations;
  TRI_CALL_GOTO(undo_cuda, parse_number(number, n_devices, &cuda->ordinal));
  TRI_CALL_GOTO(undo_cuda, describe(cuda));
  TRI_CALL_GOTO(undo_cuda, tri_cuda_select(&cuda->base));
  tri_cuda_fill_kernels(&cuda->base.kernels);
  TRI_CALL_GOTO(undo_cuda, tri_cuda_products_create(&cuda->base.kernels, &cuda->products));
  *out = &cuda->base;
  return TRI_OK;

undo_cuda:
  TRI_FREE(&cuda);
  return status;
}
