// Speed of batched Fourier transforms on this machine, against the FFTW library called directly:
//
//   make bench/fft && bench/fft [THREADS]
//
// Rate: 5 n log2 n operations a complex transform (half of that a real one), the usual count, over
// the best of several runs. "ratio": our time over that of FFTW's own plan for the whole batch,
// made with FFTW_ESTIMATE and on one thread, so with more threads ours is the only one that uses
// them. Columns: rows that are interlaced, as along the slower axis of a field.
#include <fftw3.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "trireme/device/fft.h"

enum { RUNS = 15, ELEMENTS = 1 << 19 };

static clockid_t clock_id = CLOCK_MONOTONIC;

static double seconds(void)
{
  struct timespec now;
  clock_gettime(clock_id, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check(tri_status status)
{
  if (status == TRI_OK) return;
  fprintf(stderr, "%s: %s\n", tri_status_name(status), tri_error_message());
  exit(1);
}

// FFTW's own plan of the shape: forward or r2c.
static void *plan_directly(const tri_fft_shape *s, void *in, void *out)
{
  const int n = (int)s->n, batch = (int)s->batch;
  const int is = (int)s->in.stride, id = (int)s->in.distance;
  const int os = (int)s->out.stride, od = (int)s->out.distance;
  const unsigned flags = FFTW_ESTIMATE;
  if (s->dtype == TRI_DTYPE_F64 && s->kind == TRI_FFT_R2C)
    return fftw_plan_many_dft_r2c(1, &n, batch, in, NULL, is, id, out, NULL, os, od, flags);
  if (s->dtype == TRI_DTYPE_F64)
    return fftw_plan_many_dft(1, &n, batch, in, NULL, is, id, out, NULL, os, od, -1, flags);
  if (s->kind == TRI_FFT_R2C)
    return fftwf_plan_many_dft_r2c(1, &n, batch, in, NULL, is, id, out, NULL, os, od, flags);
  return fftwf_plan_many_dft(1, &n, batch, in, NULL, is, id, out, NULL, os, od, -1, flags);
}

static double time_directly(const tri_fft_shape *shape, void *in, void *out)
{
  const bool wide = shape->dtype == TRI_DTYPE_F64;
  void *plan = plan_directly(shape, in, out);
  double best = INFINITY;
  if (plan == NULL) exit(1);
  for (int i = 0; i < RUNS; i++) {
    const double start = seconds();
    wide ? fftw_execute(plan) : fftwf_execute(plan);
    best = fmin(best, seconds() - start);
  }
  wide ? fftw_destroy_plan(plan) : fftwf_destroy_plan(plan);
  return best;
}

static double time_ours(tri_device *device, tri_stream *stream, const tri_fft_shape *shape,
                        void *in, void *out)
{
  tri_fft *fft = NULL;
  void *work = NULL;
  double best = INFINITY;
  check(tri_fft_create(device, shape, &fft));
  check(tri_device_alloc(device, tri_fft_work_bytes(fft), &work));
  for (int i = 0; i < RUNS; i++) {
    const double start = seconds();
    check(tri_fft_execute(fft, stream, out, in, work));
    check(tri_stream_synchronize(stream));
    best = fmin(best, seconds() - start);
  }
  tri_device_free(device, &work);
  tri_fft_destroy(&fft);
  return best;
}

static void report(tri_device *device, tri_stream *stream, tri_fft_kind kind, tri_dtype dtype,
                   int64_t n, bool columns, void *in, void *out)
{
  const int64_t batch = ELEMENTS / n;
  tri_fft_shape shape = {kind, dtype, n, batch, {1, n}, {1, n}};
  shape.out.distance = tri_fft_out_elements(&shape);
  if (columns) shape.in = shape.out = (tri_fft_rows){batch, 1};
  const double ours = time_ours(device, stream, &shape, in, out);
  const double direct = time_directly(&shape, in, out);
  const double flops = (kind == TRI_FFT_R2C ? 2.5 : 5.0) * (double)(n * batch) * log2((double)n);
  printf("%-7s %s %-7s n = %-5lld %7.2f GFLOP/s   FFTW %7.2f   ratio %.2f\n",
         kind == TRI_FFT_R2C ? "r2c" : "forward", tri_dtype_name(dtype),
         columns ? "columns" : "rows", (long long)n, 1e-9 * flops / ours, 1e-9 * flops / direct,
         ours / direct);
}

int main(int argc, char **argv)
{
  static const int64_t lengths[] = {16, 64, 128, 256, 512, 1000, 1024, 4096};
  static const tri_fft_kind kinds[] = {TRI_FFT_R2C, TRI_FFT_FORWARD};
  static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_F64};
  const size_t array_bytes = (size_t)ELEMENTS * 2 * 2 * sizeof(double);
  const tri_device_options options = {.n_threads = argc > 1 ? atoi(argv[1]) : 1};
  tri_device *device = NULL;
  tri_stream *stream = NULL;
  void *in = NULL, *out = NULL;
  check(tri_device_open("cpu", &options, &device));
  check(tri_stream_create(device, &stream));
  check(tri_device_alloc(device, array_bytes, &in));
  check(tri_device_alloc(device, array_bytes, &out));
  // Zeros: no arithmetic here takes longer for other values.
  check(tri_device_kernels(device)->fill(stream, in, 0.0f, (int64_t)ELEMENTS * 8));
  if (options.n_threads == 1) clock_id = CLOCK_THREAD_CPUTIME_ID;
  for (int k = 0; k < 2; k++)
    for (int d = 0; d < 2; d++)
      for (int columns = 0; columns < 2; columns++)
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
          report(device, stream, kinds[k], dtypes[d], lengths[l], columns == 1, in, out);
  tri_device_free(device, &in);
  tri_device_free(device, &out);
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  return 0;
}
