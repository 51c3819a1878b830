// Double of the devices: how many, what they are, which is current.
#include "doubles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MULTIPROCESSORS = 132, SHARED_OPT_IN = 232448, SHARED_PER_MULTIPROCESSOR = 233472 };

static _Thread_local int current;
static int largest_shared_bytes = 48 << 10;

// The devices this process sees: the physical number of each, after CUDA_VISIBLE_DEVICES.
static cudaError_t find_devices(int physical[DOUBLE_MAX_DEVICES], int *n)
{
  const char *text = getenv("TRI_DOUBLE_DEVICES");
  *n = 0;
  if (text != NULL && strcmp(text, "none") == 0) return cudaErrorInsufficientDriver;
  const long all = text == NULL ? 1 : strtol(text, NULL, 10);
  if (all < 0 || all > DOUBLE_MAX_DEVICES)
    double_die("TRI_DOUBLE_DEVICES=%s: wanted none or 0 to %d", text, DOUBLE_MAX_DEVICES);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible == NULL) {
    for (int i = 0; i < all; i++)
      physical[(*n)++] = i;
    return *n == 0 ? cudaErrorNoDevice : cudaSuccess;
  }
  while (*n < DOUBLE_MAX_DEVICES) { // the list ends at its first mistake
    char *end = NULL;
    const long device = strtol(visible, &end, 10);
    if (end == visible || device < 0 || device >= all) break;
    physical[(*n)++] = (int)device;
    if (*end != ',') break;
    visible = end + 1;
  }
  return *n == 0 ? cudaErrorNoDevice : cudaSuccess;
}

int double_current_device(void)
{
  return current;
}

size_t double_memory_bytes(void)
{
  const char *text = getenv("TRI_DOUBLE_MEMORY_MIB");
  return (text == NULL ? (size_t)8192 : (size_t)strtoull(text, NULL, 10)) << 20;
}

int double_compute_capability(void)
{
  const char *text = getenv("TRI_DOUBLE_CAPABILITY");
  return text == NULL ? 90 : atoi(text);
}

cudaError_t cudaGetDeviceCount(int *n)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInitializationError));
  int physical[DOUBLE_MAX_DEVICES];
  return double_set_error(find_devices(physical, n));
}

// The number behind what a process calls `device`; false sets the error that the call returns.
static bool physical_device(int device, int *out, cudaError_t *error)
{
  int physical[DOUBLE_MAX_DEVICES], n = 0;
  *error = find_devices(physical, &n);
  if (*error == cudaSuccess && (device < 0 || device >= n)) *error = cudaErrorInvalidDevice;
  if (*error == cudaSuccess) *out = physical[device];
  (void)double_set_error(*error);
  return *error == cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidDevice));
  cudaError_t error = cudaSuccess;
  int physical = 0;
  if (!physical_device(device, &physical, &error)) return error;
  current = device;
  return double_set_error(double_sticky_error());
}

cudaError_t cudaGetDevice(int *device)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidDevice));
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidDevice));
  cudaError_t error = cudaSuccess;
  int physical = 0;
  if (!physical_device(device, &physical, &error)) return error;
  const int capability = double_compute_capability();
  *out = (struct cudaDeviceProp){.major = capability / 10,
                                 .minor = capability % 10,
                                 .multiProcessorCount = MULTIPROCESSORS,
                                 .totalGlobalMem = double_memory_bytes(),
                                 .warpSize = 32,
                                 .maxThreadsPerBlock = 1024,
                                 .maxThreadsPerMultiProcessor = 2048,
                                 .sharedMemPerBlock = 48 << 10,
                                 .sharedMemPerBlockOptin = SHARED_OPT_IN,
                                 .sharedMemPerMultiprocessor = SHARED_PER_MULTIPROCESSOR,
                                 .regsPerBlock = 65536,
                                 .asyncEngineCount = 3,
                                 .concurrentKernels = 1,
                                 .pciBusID = physical + 1};
  snprintf(out->name, sizeof out->name, "double of a GPU, sm_%d", capability);
  out->uuid.bytes[0] = (char)(physical + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidDevice));
  cudaError_t error = cudaSuccess;
  int physical = 0;
  if (!physical_device(device, &physical, &error)) return error;
  switch (attribute) {
  case cudaDevAttrMultiProcessorCount: *value = MULTIPROCESSORS; break;
  case cudaDevAttrComputeCapabilityMajor: *value = double_compute_capability() / 10; break;
  case cudaDevAttrComputeCapabilityMinor: *value = double_compute_capability() % 10; break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_OPT_IN; break;
  case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
  case cudaDevAttrPciBusId: *value = physical + 1; break;
  default: double_die("cudaDeviceGetAttribute: attribute %d is not modelled", (int)attribute);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int size, int device)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidDevice));
  cudaError_t error = cudaSuccess;
  int physical = 0;
  if (!physical_device(device, &physical, &error)) return error;
  if (size < 13) return double_set_error(cudaErrorInvalidValue);
  snprintf(out, (size_t)size, "0000:%02X:00.0", (unsigned)(physical + 1) & 0xffu);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  const char *text = getenv("TRI_DOUBLE_DEVICES");
  *version = text != NULL && strcmp(text, "none") == 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidDeviceFunction));
  if (function == NULL) return double_set_error(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > SHARED_OPT_IN) return double_set_error(cudaErrorInvalidValue);
  if (value > largest_shared_bytes) largest_shared_bytes = value;
  return cudaSuccess;
}

// Whether some kernel asked for that much; the launch does not say which kernel it is.
bool double_shared_allowed(size_t shared_bytes)
{
  return shared_bytes <= (size_t)largest_shared_bytes;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int block_size, size_t shared_bytes)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  if (function == NULL || block_size < 1 || block_size > 1024)
    return double_set_error(cudaErrorInvalidValue);
  const int by_threads = 2048 / ((block_size + 31) / 32 * 32);
  const int by_memory = (int)(SHARED_PER_MULTIPROCESSOR / (shared_bytes + 1024));
  *blocks = by_threads < by_memory ? by_threads : by_memory;
  if (*blocks > 32) *blocks = 32;
  return cudaSuccess;
}

static const struct {
  cudaError_t error;
  const char *name, *text;
} error_texts[] = {
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
};

const char *cudaGetErrorName(cudaError_t error)
{
  for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++)
    if (error_texts[i].error == error) return error_texts[i].name;
  return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
  for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++)
    if (error_texts[i].error == error) return error_texts[i].text;
  return "unknown error";
}
