// What other floors need of the CUDA backend beside device.h. Only in builds with --with-cuda.
#pragma once

#include "trireme/device/device.h"

// The CUDA stream (cudaStream_t) behind a stream of a "cuda" device, for libraries that queue their
// own work, and the number of its device as the CUDA runtime counts. Borrowed. Local.
void *tri_cuda_native_stream(const tri_stream *stream);
int tri_cuda_ordinal(const tri_device *device);

// Makes `device` the calling thread's current one, as calls of such libraries want it.
TRI_MUST_CHECK tri_status tri_cuda_select(const tri_device *device);
