#include "trireme/device/fft.h"

#include "device/device_operations.h"

static bool has_complex_input(tri_fft_kind kind)
{
  return kind != TRI_FFT_R2C;
}

static bool has_complex_output(tri_fft_kind kind)
{
  return kind != TRI_FFT_C2R;
}

int64_t tri_fft_in_elements(const tri_fft_shape *shape)
{
  return shape->kind == TRI_FFT_C2R ? shape->n / 2 + 1 : shape->n;
}

int64_t tri_fft_out_elements(const tri_fft_shape *shape)
{
  return shape->kind == TRI_FFT_R2C ? shape->n / 2 + 1 : shape->n;
}

static int64_t element_bytes(const tri_fft_shape *shape, bool is_complex)
{
  return (int64_t)tri_dtype_size(shape->dtype) * (is_complex ? 2 : 1);
}

// --- shapes

// Bytes from the first element of the first row to behind the last element of the last row.
static tri_status measure_side(const char *side, const tri_fft_rows *rows, int64_t elements,
                               int64_t batch, int64_t size, int64_t *bytes)
{
  TRI_CHECK(rows->stride >= 1 && rows->distance >= 1, TRI_ERR_ARGUMENT,
            "fft: %s stride %lld, distance %lld: each must be at least 1", side,
            (long long)rows->stride, (long long)rows->distance);
  const int64_t last_row = batch > 0 ? batch - 1 : 0;
  int64_t row = 0, between = 0, all = 0;
  const bool overflow = __builtin_mul_overflow(elements - 1, rows->stride, &row) ||
                        __builtin_mul_overflow(last_row, rows->distance, &between) ||
                        __builtin_add_overflow(row, between, &all) ||
                        __builtin_add_overflow(all, 1, &all) ||
                        __builtin_mul_overflow(all, size, &all);
  TRI_CHECK(!overflow, TRI_ERR_ARGUMENT,
            "fft: %lld %s rows of %lld elements with stride %lld and distance %lld are more than "
            "2^63 bytes",
            (long long)batch, side, (long long)elements, (long long)rows->stride,
            (long long)rows->distance);
  TRI_CHECK(batch <= 1 || rows->distance > row || rows->stride > between, TRI_ERR_ARGUMENT,
            "fft: the %s rows overlap: %lld rows of %lld elements with stride %lld need a distance "
            "of %lld or a stride of %lld",
            side, (long long)batch, (long long)elements, (long long)rows->stride,
            (long long)row + 1, (long long)between + 1);
  *bytes = all;
  return TRI_OK;
}

static tri_status measure(const tri_fft_shape *shape, int64_t *in_bytes, int64_t *out_bytes)
{
  TRI_CALL(measure_side("input", &shape->in, tri_fft_in_elements(shape), shape->batch,
                        element_bytes(shape, has_complex_input(shape->kind)), in_bytes));
  TRI_CALL(measure_side("output", &shape->out, tri_fft_out_elements(shape), shape->batch,
                        element_bytes(shape, has_complex_output(shape->kind)), out_bytes));
  return TRI_OK;
}

static tri_status check_shape(const tri_fft_shape *shape)
{
  TRI_CHECK((unsigned)shape->kind < TRI_FFT_KINDS, TRI_ERR_ARGUMENT, "fft: there is no kind %d",
            (int)shape->kind);
  TRI_CHECK(shape->dtype == TRI_DTYPE_F32 || shape->dtype == TRI_DTYPE_F64, TRI_ERR_ARGUMENT,
            "fft: dtype is %s, not one of f32, f64", tri_dtype_name(shape->dtype));
  TRI_CHECK(shape->n >= 1, TRI_ERR_ARGUMENT, "fft: length %lld: at least 1 is needed",
            (long long)shape->n);
  TRI_CHECK(shape->batch >= 0, TRI_ERR_ARGUMENT, "fft: batch %lld: at least 0 is needed",
            (long long)shape->batch);
  return TRI_OK;
}

// --- plans

tri_status tri_fft_create(tri_device *device, const tri_fft_shape *shape, tri_fft **out)
{
  int64_t in_bytes = 0, out_bytes = 0;
  tri_fft *fft = NULL;
  TRI_CALL(check_shape(shape));
  TRI_CALL(measure(shape, &in_bytes, &out_bytes));
  TRI_CALL(device->operations->fft_create(device, shape, &fft));
  fft->device = device;
  fft->shape = *shape;
  fft->in_bytes = in_bytes;
  fft->out_bytes = out_bytes;
  *out = fft;
  return TRI_OK;
}

void tri_fft_destroy(tri_fft **fft)
{
  if (*fft != NULL) (*fft)->device->operations->fft_destroy(*fft);
  *fft = NULL;
}

size_t tri_fft_work_bytes(const tri_fft *fft)
{
  return fft->work_bytes;
}

// --- execution

static tri_status check_in_place(const tri_fft_shape *shape)
{
  const tri_fft_rows *in = &shape->in, *out = &shape->out;
  if (has_complex_input(shape->kind) && has_complex_output(shape->kind)) {
    TRI_CHECK(in->stride == out->stride && in->distance == out->distance, TRI_ERR_ARGUMENT,
              "fft: in place, but input rows (stride %lld, distance %lld) are not output rows "
              "(stride %lld, distance %lld)",
              (long long)in->stride, (long long)in->distance, (long long)out->stride,
              (long long)out->distance);
    return TRI_OK;
  }
  const int64_t real = shape->kind == TRI_FFT_R2C ? in->distance : out->distance;
  const int64_t pairs = shape->kind == TRI_FFT_R2C ? out->distance : in->distance;
  TRI_CHECK(in->stride == 1 && out->stride == 1, TRI_ERR_ARGUMENT,
            "fft: in place between real and complex takes strides of 1, not %lld and %lld",
            (long long)in->stride, (long long)out->stride);
  // One row overwrites nothing but itself, whatever the distances are.
  TRI_CHECK(shape->batch <= 1 || (real % 2 == 0 && real / 2 == pairs), TRI_ERR_ARGUMENT,
            "fft: in place, but the real distance %lld is not twice the complex one %lld",
            (long long)real, (long long)pairs);
  return TRI_OK;
}

static bool are_apart(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
  const uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
  return first <= second ? second - first >= (uintptr_t)a_bytes
                         : first - second >= (uintptr_t)b_bytes;
}

static tri_status check_arrays(const tri_fft *fft, const void *out, const void *in,
                               const void *work)
{
  TRI_CHECK(out != NULL && in != NULL, TRI_ERR_ARGUMENT, "fft: no %s array for %lld rows",
            out == NULL ? "output" : "input", (long long)fft->shape.batch);
  if (in == out) {
    TRI_CALL(check_in_place(&fft->shape));
  } else {
    TRI_CHECK(are_apart(in, fft->in_bytes, out, fft->out_bytes), TRI_ERR_ARGUMENT,
              "fft: input (%lld bytes) and output (%lld bytes) overlap without beginning at the "
              "same address",
              (long long)fft->in_bytes, (long long)fft->out_bytes);
  }
  TRI_CHECK(fft->work_bytes == 0 || work != NULL, TRI_ERR_ARGUMENT,
            "fft: no work area: it needs %zu bytes (tri_fft_work_bytes)", fft->work_bytes);
  TRI_CHECK((uintptr_t)work % 256 == 0, TRI_ERR_ARGUMENT,
            "fft: the work area is not aligned to 256 bytes");
  return TRI_OK;
}

tri_status tri_fft_execute(const tri_fft *fft, tri_stream *stream, void *out, void *in, void *work)
{
  TRI_CHECK(stream->device == fft->device, TRI_ERR_ARGUMENT,
            "fft: the plan and the stream are of different devices");
  if (fft->shape.batch == 0) return TRI_OK;
  TRI_CALL(check_arrays(fft, out, in, work));
  TRI_CALL(fft->device->operations->fft_execute(fft, stream, out, in, work));
  return TRI_OK;
}
