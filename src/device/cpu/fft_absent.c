// The build without FFTW: no plan is ever made, so no other entry is ever called with one.
#include "device/cpu/fft.h"

static tri_status refuse(void)
{
  return TRI_ERROR(TRI_ERR_UNSUPPORTED,
                   "Fourier transforms on cpu are not compiled in: this is a build without FFTW; "
                   "./configure --with-fftw and build again");
}

tri_status tri_cpu_fft_create(tri_device *device, const tri_fft_shape *shape, tri_fft **out)
{
  (void)device;
  (void)shape;
  (void)out;
  return refuse();
}

void tri_cpu_fft_destroy(tri_fft *fft)
{
  (void)fft;
}

tri_status tri_cpu_fft_execute(const tri_fft *fft, tri_stream *stream, void *out, void *in,
                               void *work)
{
  (void)fft;
  (void)stream;
  (void)out;
  (void)in;
  (void)work;
  return refuse();
}
