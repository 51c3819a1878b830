// Fourier transforms of the CPU backend (trireme/device/fft.h): private to src/device. fft.c, or
// fft_absent.c in a build without FFTW.
#pragma once

#include "device/device_operations.h"

TRI_MUST_CHECK tri_status tri_cpu_fft_create(tri_device *device, const tri_fft_shape *shape,
                                             tri_fft **out);
void tri_cpu_fft_destroy(tri_fft *fft);
TRI_MUST_CHECK tri_status tri_cpu_fft_execute(const tri_fft *fft, tri_stream *stream, void *out,
                                              void *in, void *work);
