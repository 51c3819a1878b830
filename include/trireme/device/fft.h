// Batches of 1-D discrete Fourier transforms on a device: planned once, executed on a stream.
//
// Neither direction is scaled, so c2r(r2c(x)) = n x and backward(forward(z)) = n z:
//
//   forward, r2c    X[k] = sum over j of x[j] exp(-2 pi i j k / n)
//   backward, c2r   x[j] = sum over k of X[k] exp(+2 pi i j k / n)
//
// A row is one transform. A real row has n elements. A complex row has n elements, each (re, im);
// that of r2c and c2r only its first n / 2 + 1, the others being their conjugates. In what c2r
// reads, the imaginary part of element 0 and, for even n, of element n / 2 must be zero: if not,
// the result depends on the backend.
//
// On the CPU the bits of a row depend on its values, n, kind, dtype, the FFTW library and the
// machine, and on nothing else: not on the batch, the row's place in it, strides, alignment,
// threads, or whether the transform is in place. So any partition of rows among ranks gives the
// same bits. A program that gives FFTW wisdom of its own can change them.
//
// All functions are local. Handles belong to one thread at a time.
#pragma once

#include "trireme/device/device.h"
#include "trireme/tensor/dtype.h"

typedef struct tri_fft tri_fft;

typedef enum tri_fft_kind {
  TRI_FFT_R2C,      // real to complex, the sign of forward
  TRI_FFT_C2R,      // complex to real, the sign of backward
  TRI_FFT_FORWARD,  // complex to complex
  TRI_FFT_BACKWARD, // complex to complex
  TRI_FFT_KINDS
} tri_fft_kind;

// Where element i of row b lies: at base + b * distance + i * stride, counted in elements of that
// side (a real number, or a pair).
typedef struct tri_fft_rows {
  int64_t stride, distance; // each >= 1
} tri_fft_rows;

typedef struct tri_fft_shape {
  tri_fft_kind kind;
  tri_dtype dtype; // of the real numbers: TRI_DTYPE_F32 or TRI_DTYPE_F64, which is also the
                   // precision of the arithmetic
  int64_t n;       // length of the transform, any >= 1 (on the CPU below 2^31)
  int64_t batch;   // rows, >= 0
  tri_fft_rows in, out;
} tri_fft_shape;

// Elements of a row on either side.
int64_t tri_fft_in_elements(const tri_fft_shape *shape);
int64_t tri_fft_out_elements(const tri_fft_shape *shape);

// Plans the transforms of one shape. The rows of a side must lie side by side (distance >= the
// extent of a row) or be interlaced (stride >= the extent of all first elements). Synchronizes
// nothing and touches no array. TRI_ERR_UNSUPPORTED names the configure option when the library is
// not compiled in.
//   device  borrowed: must outlive the plan
//   out     owned by the caller, release with tri_fft_destroy; untouched on error
TRI_MUST_CHECK tri_status tri_fft_create(tri_device *device, const tri_fft_shape *shape,
                                         tri_fft **out);
// The work queued with the plan must be done.
void tri_fft_destroy(tri_fft **fft);

// Bytes of device memory that an execution works in. Plans may share one area, as long as no two
// streams work in it at once: give each the largest.
size_t tri_fft_work_bytes(const tri_fft *fft);

// Queues the transform of all rows. Writes the elements of the rows of `out` and nothing between
// them.
//   out, in  device memory, aligned to the elements. Either the same address (in place), and then
//            c2c has equal `in` and `out` rows, r2c and c2r have strides 1 and a real distance of
//            twice the complex one; or the extents of the two, first to last element, are apart.
//            What `in` holds after c2r is unspecified. Both may be NULL when batch is 0.
//   work     device memory, tri_fft_work_bytes, aligned to 256 bytes; may be NULL when that is 0 or
//            batch is 0. Neither `in` nor `out`.
TRI_MUST_CHECK tri_status tri_fft_execute(const tri_fft *fft, tri_stream *stream, void *out,
                                          void *in, void *work);
