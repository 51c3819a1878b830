// Fourier transforms of a device: against the sum that defines them, identities, adjoints, rows
// that lie in every way, and what is refused.
//
// Tolerances: the norm of the error of a row is within eps (2 + log2 n) of the row's norm. That is
// the form of the bound of a fast transform, with a factor for lengths that are large primes.
// timeout: 120
#include "trireme/device/fft.h"

#include <float.h>
#include <math.h>

#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

static const int64_t lengths[] = {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 100, 128, 257, 1000};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], GUARD = 8 };
static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_F64};
static const double POISON = -12345.0;

// tests/cuda builds this file for the other backend.
#ifndef TEST_DEVICE
#define TEST_DEVICE "cpu"
#endif
static tri_device *device;
static tri_stream *stream;

static double tolerance(tri_dtype dtype, int64_t n)
{
  return (dtype == TRI_DTYPE_F32 ? FLT_EPSILON : DBL_EPSILON) * (2 + log2((double)n));
}

// --- one side of a transform: values in double on the host, packed by rows

typedef struct side {
  int64_t elements, reals; // of a row; real numbers of an element, 1 or 2
  tri_fft_rows rows;
  int64_t array; // real numbers of the device array: from the first to the last element
} side;

static side side_of(const tri_fft_shape *shape, bool output)
{
  side s;
  s.elements = output ? tri_fft_out_elements(shape) : tri_fft_in_elements(shape);
  s.reals = shape->kind == (output ? TRI_FFT_C2R : TRI_FFT_R2C) ? 1 : 2;
  s.rows = output ? shape->out : shape->in;
  s.array =
      shape->batch == 0
          ? 0
          : s.reals * ((shape->batch - 1) * s.rows.distance + (s.elements - 1) * s.rows.stride + 1);
  return s;
}

static void *room(int64_t n, size_t size)
{
  void *memory = tri_calloc(TRI_MODULE_TEST, (size_t)(n > 0 ? n : 1), size);
  if (memory == NULL) exit(1);
  return memory;
}

// Host memory that a device copies from and to.
static void *pinned(size_t size_bytes)
{
  void *memory = NULL;
  EXPECT_OK(tri_device_alloc_host(device, size_bytes, &memory));
  if (memory == NULL) exit(1);
  return memory;
}

static double get(const void *array, tri_dtype dtype, int64_t i)
{
  return dtype == TRI_DTYPE_F32 ? ((const float *)array)[i] : ((const double *)array)[i];
}

static void put(void *array, tri_dtype dtype, int64_t i, double value)
{
  if (dtype == TRI_DTYPE_F32) {
    ((float *)array)[i] = (float)value;
  } else {
    ((double *)array)[i] = value;
  }
}

// Where real number `part` of element i of row b is in the array of that side.
static int64_t place(const side *s, int64_t b, int64_t i, int64_t part)
{
  return s->reals * (b * s->rows.distance + i * s->rows.stride) + part;
}

// An array on the device of `reals` numbers of poison, and the rows in it.
static void *upload(const side *s, int64_t batch, tri_dtype dtype, int64_t reals,
                    const double *rows)
{
  const size_t size_bytes = (size_t)(reals + GUARD) * tri_dtype_size(dtype);
  void *host = pinned(size_bytes), *array = NULL;
  for (int64_t i = 0; i < reals + GUARD; i++)
    put(host, dtype, i, POISON);
  for (int64_t b = 0; b < batch && rows != NULL; b++)
    for (int64_t i = 0; i < s->elements; i++)
      for (int64_t part = 0; part < s->reals; part++)
        put(host, dtype, place(s, b, i, part), rows[(b * s->elements + i) * s->reals + part]);
  EXPECT_OK(tri_device_alloc(device, size_bytes, &array));
  EXPECT_OK(tri_stream_copy_to_device(stream, array, host, size_bytes));
  EXPECT_OK(tri_stream_synchronize(stream));
  tri_device_free_host(device, &host);
  return array;
}

// The rows of an array; everything else in it must still be what it was, unless in place.
static void download(const side *s, int64_t batch, tri_dtype dtype, int64_t reals, bool in_place,
                     const void *array, double *rows)
{
  const size_t size_bytes = (size_t)(reals + GUARD) * tri_dtype_size(dtype);
  void *host = pinned(size_bytes);
  EXPECT_OK(tri_stream_copy_to_host(stream, host, array, size_bytes));
  EXPECT_OK(tri_stream_synchronize(stream));
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < s->elements; i++)
      for (int64_t part = 0; part < s->reals; part++) {
        const int64_t at = place(s, b, i, part);
        rows[(b * s->elements + i) * s->reals + part] = get(host, dtype, at);
        put(host, dtype, at, POISON);
      }
  for (int64_t i = in_place ? reals : 0; i < reals + GUARD; i++)
    EXPECT(get(host, dtype, i) == POISON);
  tri_device_free_host(device, &host);
}

// A work area of numbers that must not reach a result, and 256 bytes of them behind it.
static void *poisoned_work(size_t work_bytes)
{
  void *work = NULL;
  EXPECT_OK(tri_device_alloc(device, work_bytes + 256, &work));
  EXPECT_OK(tri_device_kernels(device)->fill(stream, work, (float)POISON,
                                             (int64_t)(work_bytes + 256) / 4));
  return work;
}

static void expect_guard(const void *work, size_t work_bytes)
{
  enum { N = 64 };
  void *host = pinned(N * sizeof(float));
  EXPECT_OK(
      tri_stream_copy_to_host(stream, host, (const char *)work + work_bytes, N * sizeof(float)));
  EXPECT_OK(tri_stream_synchronize(stream));
  for (int i = 0; i < N; i++)
    EXPECT(get(host, TRI_DTYPE_F32, i) == (float)POISON);
  tri_device_free_host(device, &host);
}

// rows of `in` transformed to rows of `out`, both packed on the host.
static void transform(const tri_fft_shape *shape, bool in_place, const double *in, double *out)
{
  const side from = side_of(shape, false), to = side_of(shape, true);
  const int64_t larger = from.array > to.array ? from.array : to.array;
  tri_fft *fft = NULL;
  void *a = upload(&from, shape->batch, shape->dtype, in_place ? larger : from.array, in);
  void *b = in_place ? a : upload(&to, shape->batch, shape->dtype, to.array, NULL);
  EXPECT_OK(tri_fft_create(device, shape, &fft));
  if (fft == NULL) return;
  const size_t work_bytes = tri_fft_work_bytes(fft);
  void *work = poisoned_work(work_bytes);
  EXPECT_OK(tri_fft_execute(fft, stream, b, a, work));
  expect_guard(work, work_bytes);
  download(&to, shape->batch, shape->dtype, in_place ? larger : to.array, in_place, b, out);
  if (!in_place) tri_device_free(device, &b);
  tri_device_free(device, &a);
  tri_device_free(device, &work);
  tri_fft_destroy(&fft);
  EXPECT(fft == NULL);
}

// --- shapes

static tri_fft_shape packed(tri_fft_kind kind, tri_dtype dtype, int64_t n, int64_t batch)
{
  tri_fft_shape shape = {kind, dtype, n, batch, {1, 1}, {1, 1}};
  shape.in.distance = tri_fft_in_elements(&shape);
  shape.out.distance = tri_fft_out_elements(&shape);
  return shape;
}

enum { PACKED, GAPS, STRIDED, INTERLACED, TO_COLUMNS, FROM_COLUMNS, LAYOUTS };

static tri_fft_shape laid_out(int layout, tri_fft_kind kind, tri_dtype dtype, int64_t n,
                              int64_t batch)
{
  tri_fft_shape s = packed(kind, dtype, n, batch);
  const int64_t in = s.in.distance, out = s.out.distance, columns = batch > 0 ? batch : 1;
  if (layout == GAPS) {
    s.in = (tri_fft_rows){1, in + 3};
    s.out = (tri_fft_rows){1, out + 5};
  } else if (layout == STRIDED) {
    s.in = (tri_fft_rows){3, 3 * in + 1};
    s.out = (tri_fft_rows){2, 2 * out + 7};
  } else if (layout == INTERLACED) {
    s.in = s.out = (tri_fft_rows){columns + 2, 1};
  } else if (layout == TO_COLUMNS) {
    s.out = (tri_fft_rows){columns, 1};
  } else if (layout == FROM_COLUMNS) {
    s.in = (tri_fft_rows){columns, 1};
  }
  return s;
}

static int64_t in_reals(const tri_fft_shape *shape)
{
  const side s = side_of(shape, false);
  return shape->batch * s.elements * s.reals;
}

static int64_t out_reals(const tri_fft_shape *shape)
{
  const side s = side_of(shape, true);
  return shape->batch * s.elements * s.reals;
}

// Normal numbers of the shape's precision; for c2r the imaginary parts that must be zero are.
static double *random_rows(const tri_fft_shape *shape, uint64_t key)
{
  const int64_t n = in_reals(shape);
  float *normal = room(n, sizeof *normal);
  double *rows = room(n, sizeof *rows);
  tri_random_normal(key, 0, n, 0.0f, 1.0f, normal);
  for (int64_t i = 0; i < n; i++)
    rows[i] = normal[i];
  const int64_t elements = tri_fft_in_elements(shape);
  for (int64_t b = 0; b < shape->batch && shape->kind == TRI_FFT_C2R; b++) {
    rows[2 * b * elements + 1] = 0;
    if (shape->n % 2 == 0) rows[2 * (b * elements + shape->n / 2) + 1] = 0;
  }
  tri_free(normal);
  return rows;
}

// --- against the definition

// The sum that defines a transform, in long double, for one packed row.
static void define(const tri_fft_shape *shape, const long double *cosine, const long double *sine,
                   const double *in, double *out)
{
  const int64_t n = shape->n, last = tri_fft_out_elements(shape);
  const long double sign = shape->kind == TRI_FFT_R2C || shape->kind == TRI_FFT_FORWARD ? -1 : 1;
  for (int64_t k = 0; k < last; k++) {
    long double re = 0, im = 0;
    for (int64_t j = 0; j < n; j++) {
      const long double c = cosine[j * k % n], s = sign * sine[j * k % n];
      const int64_t half = shape->kind == TRI_FFT_C2R && j > n / 2 ? n - j : j;
      const long double x = shape->kind == TRI_FFT_R2C ? in[j] : in[2 * half];
      long double y = shape->kind == TRI_FFT_R2C ? 0 : in[2 * half + 1];
      if (half != j) y = -y;
      re += x * c - y * s;
      im += x * s + y * c;
    }
    if (shape->kind == TRI_FFT_C2R) {
      out[k] = (double)re;
    } else {
      out[2 * k] = (double)re;
      out[2 * k + 1] = (double)im;
    }
  }
}

static double *defined_rows(const tri_fft_shape *shape, const double *in)
{
  const long double turn = 2 * acosl(-1.0L) / (long double)shape->n;
  long double *cosine = room(shape->n, sizeof *cosine), *sine = room(shape->n, sizeof *sine);
  double *out = room(out_reals(shape), sizeof *out);
  for (int64_t j = 0; j < shape->n; j++) {
    cosine[j] = cosl(turn * (long double)j);
    sine[j] = sinl(turn * (long double)j);
  }
  const int64_t in_row = shape->batch > 0 ? in_reals(shape) / shape->batch : 0;
  const int64_t out_row = shape->batch > 0 ? out_reals(shape) / shape->batch : 0;
  for (int64_t b = 0; b < shape->batch; b++)
    define(shape, cosine, sine, in + b * in_row, out + b * out_row);
  tri_free(cosine);
  tri_free(sine);
  return out;
}

static double norm(const double *x, int64_t n)
{
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * x[i];
  return sqrt(sum);
}

// `got` is `wanted` times `scale`, row by row.
static void expect_rows(const tri_fft_shape *shape, int64_t batch, int64_t row, const double *got,
                        const double *wanted, double scale)
{
  for (int64_t b = 0; b < batch; b++) {
    double error = 0;
    for (int64_t i = b * row; i < (b + 1) * row; i++) {
      const double apart = got[i] - scale * wanted[i];
      error += apart * apart;
    }
    const double size = fabs(scale) * norm(wanted + b * row, row);
    EXPECT_NEAR(sqrt(error), 0.0, tolerance(shape->dtype, shape->n) * size);
  }
}

static bool on_cpu(void)
{
  return strcmp(TEST_DEVICE, "cpu") == 0;
}

// Rows of one transform, computed in two ways: the same bits where the backend promises them.
static void expect_same_rows(const tri_fft_shape *shape, const double *got, const double *wanted)
{
  if (on_cpu())
    EXPECT(memcmp(got, wanted, (size_t)out_reals(shape) * sizeof *got) == 0);
  else
    expect_rows(shape, shape->batch, shape->batch > 0 ? out_reals(shape) / shape->batch : 0, got,
                wanted, 1);
}

// Every layout also gives the rows of the packed one.
static void check_definition(tri_fft_kind kind, tri_dtype dtype, int64_t n, int64_t batch)
{
  const tri_fft_shape plain = packed(kind, dtype, n, batch);
  double *in = random_rows(&plain, (uint64_t)(n * 8 + batch));
  double *wanted = defined_rows(&plain, in);
  double *first = room(out_reals(&plain), sizeof *first);
  double *out = room(out_reals(&plain), sizeof *out);
  transform(&plain, false, in, first);
  expect_rows(&plain, batch, batch > 0 ? out_reals(&plain) / batch : 0, first, wanted, 1);
  for (int layout = GAPS; layout < LAYOUTS; layout++) {
    const tri_fft_shape shape = laid_out(layout, kind, dtype, n, batch);
    transform(&shape, false, in, out);
    expect_same_rows(&plain, out, first);
  }
  tri_free(in);
  tri_free(wanted);
  tri_free(first);
  tri_free(out);
}

TEST(every_kind_is_the_sum_that_defines_it_in_every_layout)
{
  static const int64_t batches[] = {0, 1, 3};
  for (tri_fft_kind kind = 0; kind < TRI_FFT_KINDS; kind++)
    for (int d = 0; d < 2; d++)
      for (int l = 0; l < LENGTHS; l++)
        for (int b = 0; b < 3; b++)
          check_definition(kind, dtypes[d], lengths[l], batches[b]);
}

// In place: equal rows of c2c, in two layouts; padded real rows of r2c and c2r.
TEST(in_place_gives_the_rows_of_out_of_place)
{
  for (tri_fft_kind kind = 0; kind < TRI_FFT_KINDS; kind++)
    for (int l = 0; l < LENGTHS; l++)
      for (int layout = 0; layout < (kind >= TRI_FFT_FORWARD ? 2 : 1); layout++) {
        tri_fft_shape shape = packed(kind, dtypes[l % 2], lengths[l], 11);
        double *in = random_rows(&shape, 5), *out = room(out_reals(&shape), sizeof *out);
        double *wanted = room(out_reals(&shape), sizeof *wanted);
        transform(&shape, false, in, wanted);
        if (kind == TRI_FFT_R2C) shape.in.distance = 2 * shape.out.distance;
        if (kind == TRI_FFT_C2R) shape.out.distance = 2 * shape.in.distance;
        if (layout == 1) shape.in = shape.out = (tri_fft_rows){13, 1};
        transform(&shape, true, in, out);
        expect_same_rows(&shape, out, wanted);
        tri_free(in);
        tri_free(out);
        tri_free(wanted);
      }
}

// A row's bits are the same alone, among many, at another place and with other threads.
TEST(batch_and_threads_change_no_bit)
{
  enum { N = 96, BATCH = 37 };
  for (tri_fft_kind kind = 0; kind < TRI_FFT_KINDS; kind++)
    for (int threads = 1; threads <= 3; threads++)
      for (int layout = PACKED; layout <= INTERLACED; layout += INTERLACED) {
        const tri_fft_shape many = laid_out(layout, kind, TRI_DTYPE_F32, N, BATCH);
        const tri_fft_shape one = packed(kind, TRI_DTYPE_F32, N, 1);
        double *in = random_rows(&many, 9), *out = room(out_reals(&many), sizeof *out);
        double *single = room(out_reals(&one), sizeof *single);
        const tri_device_options options = {.n_threads = threads};
        tri_device *const saved_device = device;
        tri_stream *const saved_stream = stream;
        EXPECT_OK(tri_device_open("cpu", &options, &device));
        EXPECT_OK(tri_stream_create(device, &stream));
        transform(&many, false, in, out);
        tri_stream_destroy(&stream);
        tri_device_close(&device);
        device = saved_device;
        stream = saved_stream;
        for (int b = 0; b < BATCH; b++) {
          transform(&one, false, in + b * in_reals(&one), single);
          EXPECT(memcmp(single, out + b * out_reals(&one),
                        (size_t)out_reals(&one) * sizeof *single) == 0);
        }
        tri_free(in);
        tri_free(out);
        tri_free(single);
      }
}

// --- identities

// An impulse at 0 and a constant are each other's transforms; both are exact but for rounding.
static void check_impulse(tri_fft_kind kind, tri_dtype dtype, int64_t n)
{
  const tri_fft_shape shape = packed(kind, dtype, n, 1);
  const side from = side_of(&shape, false), to = side_of(&shape, true);
  double *in = room(in_reals(&shape), sizeof *in), *out = room(out_reals(&shape), sizeof *out);
  double *wanted = room(out_reals(&shape), sizeof *wanted);
  in[0] = 1;
  for (int64_t k = 0; k < to.elements; k++)
    wanted[k * to.reals] = 1;
  transform(&shape, false, in, out);
  expect_rows(&shape, 1, out_reals(&shape), out, wanted, 1);
  for (int64_t j = 0; j < from.elements; j++)
    in[j * from.reals] = 1;
  memset(wanted, 0, (size_t)out_reals(&shape) * sizeof *wanted);
  wanted[0] = 1;
  transform(&shape, false, in, out);
  expect_rows(&shape, 1, out_reals(&shape), out, wanted, (double)n);
  tri_free(in);
  tri_free(out);
  tri_free(wanted);
}

TEST(impulse_and_constant)
{
  for (tri_fft_kind kind = 0; kind < TRI_FFT_KINDS; kind++)
    for (int l = 0; l < 2 * LENGTHS; l++)
      check_impulse(kind, dtypes[l % 2], lengths[l / 2]);
}

// F(2 x - 3 y) = 2 F x - 3 F y.
TEST(linearity)
{
  for (tri_fft_kind kind = 0; kind < TRI_FFT_KINDS; kind++)
    for (int l = 0; l < 2 * LENGTHS; l++) {
      const tri_fft_shape shape = packed(kind, dtypes[l % 2], lengths[l / 2], 2);
      const int64_t n_in = in_reals(&shape), n_out = out_reals(&shape);
      double *x = random_rows(&shape, 1), *y = random_rows(&shape, 2);
      double *z = room(n_in, sizeof *z), *Fx = room(n_out, sizeof *Fx);
      double *Fy = room(n_out, sizeof *Fy), *Fz = room(n_out, sizeof *Fz);
      for (int64_t i = 0; i < n_in; i++)
        z[i] = 2 * x[i] - 3 * y[i];
      transform(&shape, false, x, Fx);
      transform(&shape, false, y, Fy);
      transform(&shape, false, z, Fz);
      double error = 0;
      for (int64_t i = 0; i < n_out; i++)
        error = hypot(error, Fz[i] - (2 * Fx[i] - 3 * Fy[i]));
      EXPECT(error <=
             tolerance(shape.dtype, shape.n) * (2 * norm(Fx, n_out) + 3 * norm(Fy, n_out)));
      tri_free(x);
      tri_free(y);
      tri_free(z);
      tri_free(Fx);
      tri_free(Fy);
      tri_free(Fz);
    }
}

// sum |X|^2 = n sum |x|^2; in half a spectrum the inner elements stand for two.
TEST(parseval)
{
  static const tri_fft_kind kinds[] = {TRI_FFT_R2C, TRI_FFT_FORWARD, TRI_FFT_BACKWARD};
  for (int t = 0; t < 3; t++)
    for (int l = 0; l < 2 * LENGTHS; l++) {
      const tri_fft_shape shape = packed(kinds[t], dtypes[l % 2], lengths[l / 2], 1);
      const int64_t n = shape.n;
      double *x = random_rows(&shape, 3), *X = room(out_reals(&shape), sizeof *X);
      transform(&shape, false, x, X);
      double energy = 0;
      for (int64_t k = 0; k < tri_fft_out_elements(&shape); k++) {
        const bool twice = kinds[t] == TRI_FFT_R2C && k > 0 && 2 * k != n;
        energy += (twice ? 2 : 1) * (X[2 * k] * X[2 * k] + X[2 * k + 1] * X[2 * k + 1]);
      }
      const double wanted = (double)n * norm(x, in_reals(&shape)) * norm(x, in_reals(&shape));
      EXPECT_NEAR(energy, wanted, 2 * tolerance(shape.dtype, n) * wanted);
      tri_free(x);
      tri_free(X);
    }
}

// x shifted by one element: element k of the spectrum turns by exp(-2 pi i k / n).
TEST(shift_theorem)
{
  static const tri_fft_kind kinds[] = {TRI_FFT_R2C, TRI_FFT_FORWARD};
  for (int t = 0; t < 2; t++)
    for (int l = 0; l < 2 * LENGTHS; l++) {
      const tri_fft_shape shape = packed(kinds[t], dtypes[l % 2], lengths[l / 2], 1);
      const side from = side_of(&shape, false), to = side_of(&shape, true);
      double *x = random_rows(&shape, 4), *shifted = room(in_reals(&shape), sizeof *shifted);
      double *X = room(out_reals(&shape), sizeof *X), *Y = room(out_reals(&shape), sizeof *Y);
      double *turned = room(out_reals(&shape), sizeof *turned);
      for (int64_t j = 0; j < from.elements * from.reals; j++)
        shifted[(j + from.reals) % (from.elements * from.reals)] = x[j];
      transform(&shape, false, x, X);
      transform(&shape, false, shifted, Y);
      for (int64_t k = 0; k < to.elements; k++) {
        const double angle = -2 * acos(-1) * (double)k / (double)shape.n;
        turned[2 * k] = X[2 * k] * cos(angle) - X[2 * k + 1] * sin(angle);
        turned[2 * k + 1] = X[2 * k] * sin(angle) + X[2 * k + 1] * cos(angle);
      }
      expect_rows(&shape, 1, out_reals(&shape), Y, turned, 1);
      tri_free(x);
      tri_free(shifted);
      tri_free(X);
      tri_free(Y);
      tri_free(turned);
    }
}

// There and back is n times the start: two transforms, so twice the bound of one.
TEST(round_trips)
{
  for (tri_fft_kind kind = TRI_FFT_R2C; kind <= TRI_FFT_FORWARD; kind += TRI_FFT_FORWARD)
    for (int l = 0; l < 2 * LENGTHS; l++) {
      const tri_fft_kind back = kind == TRI_FFT_R2C ? TRI_FFT_C2R : TRI_FFT_BACKWARD;
      const tri_fft_shape there = packed(kind, dtypes[l % 2], lengths[l / 2], 3);
      const tri_fft_shape again = packed(back, dtypes[l % 2], lengths[l / 2], 3);
      const int64_t n = in_reals(&there);
      double *x = random_rows(&there, 6), *X = room(out_reals(&there), sizeof *X);
      double *y = room(n, sizeof *y);
      transform(&there, false, x, X);
      transform(&again, false, X, y);
      double error = 0;
      for (int64_t i = 0; i < n; i++)
        error = hypot(error, y[i] - (double)there.n * x[i]);
      EXPECT(error <= 2 * tolerance(there.dtype, there.n) * (double)there.n * norm(x, n));
      tri_free(x);
      tri_free(X);
      tri_free(y);
    }
}

static double dot(const double *x, const double *y, int64_t n)
{
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * y[i];
  return sum;
}

// <F x, y> = <x, F* y> over real numbers. F* of forward is backward. F* of r2c is c2r with the
// inner elements halved, which c2r counts twice.
static void check_adjoint(tri_fft_kind kind, tri_dtype dtype, int64_t n)
{
  const tri_fft_kind other = kind == TRI_FFT_R2C ? TRI_FFT_C2R : TRI_FFT_BACKWARD;
  const tri_fft_shape F = packed(kind, dtype, n, 2), adjoint = packed(other, dtype, n, 2);
  const int64_t n_x = in_reals(&F), n_y = out_reals(&F), elements = tri_fft_out_elements(&F);
  double *x = random_rows(&F, 7), *y = random_rows(&adjoint, 8);
  double *Fx = room(n_y, sizeof *Fx), *Fy = room(n_x, sizeof *Fy);
  double *halved = room(n_y, sizeof *halved);
  transform(&F, false, x, Fx);
  for (int64_t i = 0; i < n_y; i++) {
    const int64_t k = i / 2 % elements;
    halved[i] = kind == TRI_FFT_R2C && k > 0 && 2 * k != n ? y[i] / 2 : y[i];
  }
  transform(&adjoint, false, halved, Fy);
  EXPECT_NEAR(dot(Fx, y, n_y), dot(x, Fy, n_x),
              tolerance(dtype, n) * (norm(Fx, n_y) * norm(y, n_y) + norm(x, n_x) * norm(Fy, n_x)));
  tri_free(x);
  tri_free(y);
  tri_free(Fx);
  tri_free(Fy);
  tri_free(halved);
}

TEST(adjoints)
{
  for (int l = 0; l < 2 * LENGTHS; l++) {
    check_adjoint(TRI_FFT_R2C, dtypes[l % 2], lengths[l / 2]);
    check_adjoint(TRI_FFT_FORWARD, dtypes[l % 2], lengths[l / 2]);
  }
}

// --- plans and what is refused

TEST(plans_share_one_work_area_and_executions_allocate_nothing)
{
  const tri_fft_shape shapes[] = {packed(TRI_FFT_FORWARD, TRI_DTYPE_F64, 100, 5),
                                  packed(TRI_FFT_FORWARD, TRI_DTYPE_F64, 33, 2)};
  tri_fft *plans[2] = {NULL, NULL};
  void *in = NULL, *out = NULL, *work = NULL;
  size_t work_bytes = 0;
  for (int i = 0; i < 2; i++) {
    EXPECT_OK(tri_fft_create(device, &shapes[i], &plans[i]));
    if (tri_fft_work_bytes(plans[i]) > work_bytes) work_bytes = tri_fft_work_bytes(plans[i]);
  }
  EXPECT_OK(tri_device_alloc(device, 500 * 16, &in));
  EXPECT_OK(tri_device_alloc(device, 500 * 16, &out));
  EXPECT_OK(tri_device_alloc(device, work_bytes, &work));
  const int64_t before = tri_memory_allocations();
  for (int i = 0; i < 4; i++)
    EXPECT_OK(tri_fft_execute(plans[i % 2], stream, out, in, work));
  EXPECT(tri_memory_allocations() == before);
  EXPECT_OK(tri_stream_synchronize(stream));
  tri_device_free(device, &in);
  tri_device_free(device, &out);
  tri_device_free(device, &work);
  for (int i = 0; i < 2; i++)
    tri_fft_destroy(&plans[i]);
}

TEST(shapes_that_are_wrong_are_refused)
{
  tri_fft *fft = NULL;
  const tri_fft_shape good = packed(TRI_FFT_R2C, TRI_DTYPE_F32, 8, 3);
  tri_fft_shape bad = good;
#define REFUSED(code, part) \
  do { \
    EXPECT_ERROR(code, part, tri_fft_create(device, &bad, &fft)); \
    EXPECT(fft == NULL); \
    bad = good; \
  } while (0)
  bad.kind = TRI_FFT_KINDS;
  REFUSED(TRI_ERR_ARGUMENT, "no kind 4");
  bad.dtype = TRI_DTYPE_BF16;
  REFUSED(TRI_ERR_ARGUMENT, "dtype is bf16");
  bad.n = 0;
  REFUSED(TRI_ERR_ARGUMENT, "length 0");
  bad.batch = -1;
  REFUSED(TRI_ERR_ARGUMENT, "batch -1");
  bad.in.stride = 0;
  REFUSED(TRI_ERR_ARGUMENT, "input stride 0");
  bad.out.distance = -4;
  REFUSED(TRI_ERR_ARGUMENT, "distance -4");
  bad.out.distance = 4;
  REFUSED(TRI_ERR_ARGUMENT, "a distance of 5 or a stride of 9");
  bad.in = (tri_fft_rows){2, 1};
  REFUSED(TRI_ERR_ARGUMENT, "a distance of 15 or a stride of 3");
  bad.in = (tri_fft_rows){4, 2};
  REFUSED(TRI_ERR_ARGUMENT, "a distance of 29 or a stride of 5");
  bad.in.stride = INT64_MAX / 4;
  REFUSED(TRI_ERR_ARGUMENT, "2^63 bytes");
  bad.batch = 1;
  bad.n = (int64_t)1 << 31;
  if (on_cpu()) REFUSED(TRI_ERR_UNSUPPORTED, "fewer than 2^31");
#undef REFUSED
}

TEST(arrays_that_are_wrong_are_refused)
{
  tri_fft_shape shape = packed(TRI_FFT_FORWARD, TRI_DTYPE_F32, 8, 2);
  tri_fft *fft = NULL, *half = NULL, *odd = NULL;
  void *memory = NULL, *work = NULL;
  EXPECT_OK(tri_fft_create(device, &shape, &fft));
  shape = packed(TRI_FFT_R2C, TRI_DTYPE_F32, 8, 2);
  EXPECT_OK(tri_fft_create(device, &shape, &half));
  shape.in.distance = 11;
  EXPECT_OK(tri_fft_create(device, &shape, &odd));
  EXPECT_OK(tri_device_alloc(device, 1024, &memory));
  EXPECT_OK(tri_device_alloc(device, tri_fft_work_bytes(fft) + 64, &work));
  char *const a = memory;
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no input", tri_fft_execute(fft, stream, a, NULL, work));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no output", tri_fft_execute(fft, stream, NULL, a, work));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "overlap", tri_fft_execute(fft, stream, a, a + 120, work));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "overlap", tri_fft_execute(fft, stream, a + 120, a, work));
  // Arrays that touch are apart.
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no work area", tri_fft_execute(fft, stream, a, a + 128, NULL));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no work area", tri_fft_execute(fft, stream, a + 128, a, NULL));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "256 bytes",
               tri_fft_execute(fft, stream, a, a + 128, (char *)work + 64));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "8 is not twice the complex one 5",
               tri_fft_execute(half, stream, a, a, work));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "11 is not twice the complex one 5",
               tri_fft_execute(odd, stream, a, a, work));
  tri_device *other = NULL;
  tri_stream *elsewhere = NULL;
  EXPECT_OK(tri_device_open("cpu", NULL, &other));
  EXPECT_OK(tri_stream_create(other, &elsewhere));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "different devices",
               tri_fft_execute(fft, elsewhere, a, a + 128, work));
  tri_stream_destroy(&elsewhere);
  tri_device_close(&other);
  tri_device_free(device, &memory);
  tri_device_free(device, &work);
  tri_fft_destroy(&fft);
  tri_fft_destroy(&half);
  tri_fft_destroy(&odd);
}

TEST(an_empty_batch_needs_no_arrays)
{
  const tri_fft_shape shape = packed(TRI_FFT_C2R, TRI_DTYPE_F64, 12, 0);
  tri_fft *fft = NULL;
  EXPECT_OK(tri_fft_create(device, &shape, &fft));
  EXPECT_OK(tri_fft_execute(fft, stream, NULL, NULL, NULL));
  tri_fft_destroy(&fft);
}

int main(void)
{
  const tri_device_options options = {.n_threads = 2};
  if (tri_device_open(TEST_DEVICE, &options, &device) != TRI_OK) return 1;
  if (tri_stream_create(device, &stream) != TRI_OK) return 1;
  TEST_RUN(every_kind_is_the_sum_that_defines_it_in_every_layout);
  TEST_RUN(in_place_gives_the_rows_of_out_of_place);
  if (on_cpu()) TEST_RUN(batch_and_threads_change_no_bit);
  TEST_RUN(impulse_and_constant);
  TEST_RUN(linearity);
  TEST_RUN(parseval);
  TEST_RUN(shift_theorem);
  TEST_RUN(round_trips);
  TEST_RUN(adjoints);
  TEST_RUN(plans_share_one_work_area_and_executions_allocate_nothing);
  TEST_RUN(shapes_that_are_wrong_are_refused);
  TEST_RUN(arrays_that_are_wrong_are_refused);
  TEST_RUN(an_empty_batch_needs_no_arrays);
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  if (tri_memory_check_balance() != TRI_OK) {
    printf("not ok memory: %s\n", tri_error_message());
    return 1;
  }
  return test_end();
}
