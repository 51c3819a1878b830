// The CUDA backend's parts: private to src/device.
//
// Plain C over the CUDA runtime, cuBLASLt and the launchers of kernels/. Everything a device owns
// is made for the device's ordinal, and each call makes that the thread's current device first.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "device/device_operations.h"
#include "kernels/launchers.h"

typedef struct tri_cuda_products tri_cuda_products;

typedef struct tri_cuda_device {
  tri_device base; // first
  int ordinal;     // as the runtime counts, after CUDA_VISIBLE_DEVICES
  int compute_capability;
  tri_cuda_products *products; // of the linear layers; owned
  char isa[16];                // "sm_90"
  char bus_id[TRI_DEVICE_BUS_ID_BYTES];
  char description[400];
} tri_cuda_device;

typedef struct tri_cuda_stream {
  tri_stream base; // first
  tri_launch launch;
  bool recording; // between tri_graph_begin and tri_graph_end
} tri_cuda_stream;

typedef struct tri_cuda_event {
  tri_event base; // first
  cudaEvent_t event;
} tri_cuda_event;

// Opens the device of this number, 0 when `number` is NULL.
TRI_MUST_CHECK tri_status tri_cuda_open(const char *number, const tri_device_options *options,
                                        tri_device **out);
// The devices that numbers can name.
TRI_MUST_CHECK tri_status tri_cuda_list(tri_device_place places[TRI_DEVICE_MAX_PLACES], int *n);

// What the streams, events and memory of the device are: the table of operations.
extern const tri_device_operations tri_cuda_operations;

// Fills every entry of the table but linear_*.
void tri_cuda_fill_kernels(tri_kernels *table);

// linear_* by cuBLASLt. *out is owned by the device, which the entries find through their stream.
TRI_MUST_CHECK tri_status tri_cuda_products_create(tri_kernels *table, tri_cuda_products **out);
void tri_cuda_products_destroy(tri_cuda_products **products);

// Fourier transforms by cuFFT.
TRI_MUST_CHECK tri_status tri_cuda_fft_create(tri_device *device, const tri_fft_shape *shape,
                                              tri_fft **out);
void tri_cuda_fft_destroy(tri_fft *fft);
TRI_MUST_CHECK tri_status tri_cuda_fft_execute(const tri_fft *fft, tri_stream *stream, void *out,
                                               void *in, void *work);

TRI_MUST_CHECK tri_status tri_cuda_graph_begin(tri_stream *stream);
TRI_MUST_CHECK tri_status tri_cuda_graph_end(tri_stream *stream, tri_graph **out);
TRI_MUST_CHECK tri_status tri_cuda_graph_launch(tri_graph *graph, tri_stream *stream);
void tri_cuda_graph_destroy(tri_graph *graph);

static inline tri_cuda_device *tri_cuda_device_of(tri_device *device)
{
  return (tri_cuda_device *)device;
}

// What a launcher gets of a stream.
static inline const tri_launch *tri_cuda_launch(const tri_stream *stream)
{
  return &((const tri_cuda_stream *)stream)->launch;
}

// An error of the runtime as a status with "CALL: NAME, TEXT". TRI_ERR_MEMORY for a full device,
// else TRI_ERR_DEVICE. Used through the macros.
tri_status tri_cuda_error_set(cudaError_t error, const char *call, const char *function,
                              const char *file, int line);

#define TRI_CALL_CUDA(call) \
  do { \
    const cudaError_t error_ = (call); \
    if (error_ != cudaSuccess) \
      return tri_cuda_error_set(error_, #call, __func__, __FILE__, __LINE__); \
  } while (0)

// The function holds a variable `status`.
#define TRI_CALL_CUDA_GOTO(label, call) \
  do { \
    const cudaError_t error_ = (call); \
    if (error_ != cudaSuccess) { \
      status = tri_cuda_error_set(error_, #call, __func__, __FILE__, __LINE__); \
      goto label; \
    } \
  } while (0)
