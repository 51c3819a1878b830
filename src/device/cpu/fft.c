// Every row is transformed by one and the same FFTW plan: a single transform, out of place, between
// packed rows on cache lines. Rows that lie otherwise pass through scratch rows of the work area.
// So neither batch, strides, alignment nor threads choose the algorithm, and the bits stay the
// same; FFTW's own batches choose by all of them. FFTW_ESTIMATE looks at no clock.
#include "device/cpu/fft.h"

#include <fftw3.h>
#include <limits.h>
#include <omp.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "trireme/base/memory.h"

// Strided rows are packed a few at once, so that what comes with a cache line is used, as long as
// they stay in the second-level cache.
enum { LINE = 64, TILE_ROWS = 8, TILE_BYTES = 1 << 19 };

typedef struct cpu_fft {
  tri_fft base; // first
  void *plan;   // fftw_plan or fftwf_plan
  int n_threads;
  int64_t tile_rows;                  // rows that a thread takes at once
  size_t in_element, out_element;     // bytes
  size_t in_row_bytes, out_row_bytes; // of a scratch row: whole cache lines
} cpu_fft;

// --- FFTW's two precisions

#define ROW_FUNCTIONS(fftw) \
  static fftw##_plan fftw##_plan_row(tri_fft_kind kind, int n, void *in, void *out) \
  { \
    if (kind == TRI_FFT_R2C) return fftw##_plan_dft_r2c_1d(n, in, out, FFTW_ESTIMATE); \
    if (kind == TRI_FFT_C2R) return fftw##_plan_dft_c2r_1d(n, in, out, FFTW_ESTIMATE); \
    const int sign = kind == TRI_FFT_FORWARD ? FFTW_FORWARD : FFTW_BACKWARD; \
    return fftw##_plan_dft_1d(n, in, out, sign, FFTW_ESTIMATE); \
  } \
\
  static void fftw##_execute_row(tri_fft_kind kind, fftw##_plan plan, void *in, void *out) \
  { \
    if (kind == TRI_FFT_R2C) { \
      fftw##_execute_dft_r2c(plan, in, out); \
    } else if (kind == TRI_FFT_C2R) { \
      fftw##_execute_dft_c2r(plan, in, out); \
    } else { \
      fftw##_execute_dft(plan, in, out); \
    } \
  }

ROW_FUNCTIONS(fftw)
ROW_FUNCTIONS(fftwf)

static void execute_row(const cpu_fft *fft, void *in, void *out)
{
  if (fft->base.shape.dtype == TRI_DTYPE_F64) {
    fftw_execute_row(fft->base.shape.kind, fft->plan, in, out);
  } else {
    fftwf_execute_row(fft->base.shape.kind, fft->plan, in, out);
  }
}

// --- plans

static size_t whole_lines(size_t size_bytes)
{
  return (size_bytes + LINE - 1) / LINE * LINE;
}

static void choose_tiles(cpu_fft *fft, const tri_fft_shape *shape, int n_threads)
{
  const size_t single = tri_dtype_size(shape->dtype);
  fft->in_element = shape->kind == TRI_FFT_R2C ? single : 2 * single;
  fft->out_element = shape->kind == TRI_FFT_C2R ? single : 2 * single;
  fft->in_row_bytes = whole_lines((size_t)tri_fft_in_elements(shape) * fft->in_element);
  fft->out_row_bytes = whole_lines((size_t)tri_fft_out_elements(shape) * fft->out_element);
  const size_t row_bytes = fft->in_row_bytes + fft->out_row_bytes;

  const bool packed = shape->in.stride == 1 && shape->out.stride == 1;
  fft->tile_rows = packed || row_bytes * 2 > TILE_BYTES ? 1 : (int64_t)(TILE_BYTES / row_bytes);
  if (fft->tile_rows > TILE_ROWS) fft->tile_rows = TILE_ROWS;
  const int64_t tiles = (shape->batch + fft->tile_rows - 1) / fft->tile_rows;
  fft->n_threads = tiles < n_threads ? (int)tiles : n_threads;
  fft->base.work_bytes = (size_t)fft->n_threads * (size_t)fft->tile_rows * row_bytes;
}

// FFTW plans for the alignment of the arrays it is shown; it does not touch them. Its planner is
// one for the whole process.
static tri_status make_plan(cpu_fft *fft, const tri_fft_shape *shape)
{
  char *in = NULL, *out = NULL;
  tri_status status = TRI_OK;
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, fft->in_row_bytes, &in));
  TRI_CALL_GOTO(free_in, TRI_NEW(TRI_MODULE_DEVICE, fft->out_row_bytes, &out));
#pragma omp critical(tri_cpu_fft_planner)
  fft->plan = shape->dtype == TRI_DTYPE_F64
                  ? (void *)fftw_plan_row(shape->kind, (int)shape->n, in, out)
                  : (void *)fftwf_plan_row(shape->kind, (int)shape->n, in, out);
  if (fft->plan == NULL)
    status = TRI_ERROR(TRI_ERR_UNSUPPORTED,
                       "fft: the FFTW library has no plan of kind %d for %lld "
                       "%s elements: use another library, or another length",
                       (int)shape->kind, (long long)shape->n, tri_dtype_name(shape->dtype));
  tri_free(out);
free_in:
  tri_free(in);
  return status;
}

tri_status tri_cpu_fft_create(tri_device *device, const tri_fft_shape *shape, tri_fft **out)
{
  cpu_fft *fft = NULL;
  tri_status status = TRI_OK;
  TRI_CHECK(shape->n <= INT_MAX, TRI_ERR_UNSUPPORTED,
            "fft: length %lld: on cpu a transform has fewer than 2^31 elements",
            (long long)shape->n);
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &fft));
  choose_tiles(fft, shape, ((const tri_cpu_device *)device)->n_threads);
  TRI_CALL_GOTO(undo_fft, make_plan(fft, shape));
  *out = &fft->base;
  return TRI_OK;

undo_fft:
  TRI_FREE(&fft);
  return status;
}

void tri_cpu_fft_destroy(tri_fft *base)
{
  cpu_fft *fft = (cpu_fft *)base;
#pragma omp critical(tri_cpu_fft_planner)
  {
    if (base->shape.dtype == TRI_DTYPE_F64) {
      fftw_destroy_plan(fft->plan);
    } else {
      fftwf_destroy_plan(fft->plan);
    }
  }
  tri_free(fft);
}

// --- rows between their arrays and scratch

// Bytes between elements and between rows of an array.
typedef struct steps {
  size_t element, row;
} steps;

static inline void copy_elements(char *to, steps to_step, const char *from, steps from_step,
                                 int64_t n, int64_t rows, size_t size)
{
  for (int64_t i = 0; i < n; i++) {
    for (int64_t r = 0; r < rows; r++)
      memcpy(to + (size_t)i * to_step.element + (size_t)r * to_step.row,
             from + (size_t)i * from_step.element + (size_t)r * from_step.row, size);
  }
}

static void copy_rows(char *to, steps to_step, const char *from, steps from_step, int64_t n,
                      int64_t rows, size_t size)
{
  if (to_step.element == size && from_step.element == size) {
    for (int64_t r = 0; r < rows; r++)
      memcpy(to + (size_t)r * to_step.row, from + (size_t)r * from_step.row, (size_t)n * size);
  } else if (size == 4) {
    copy_elements(to, to_step, from, from_step, n, rows, 4);
  } else if (size == 8) {
    copy_elements(to, to_step, from, from_step, n, rows, 8);
  } else {
    copy_elements(to, to_step, from, from_step, n, rows, 16);
  }
}

// Rows that the plan can take where they are.
static bool is_packed(const char *rows, steps step, size_t size, int64_t n_rows)
{
  return step.element == size && (uintptr_t)rows % LINE == 0 &&
         (n_rows == 1 || step.row % LINE == 0);
}

// `rows` rows from `in` to `out`, which may be the same memory: all are read before one is written.
static void transform_tile(const cpu_fft *fft, char *out, char *in, char *scratch, int64_t rows)
{
  const tri_fft_shape *shape = &fft->base.shape;
  const steps in_step = {(size_t)shape->in.stride * fft->in_element,
                         (size_t)shape->in.distance * fft->in_element};
  const steps out_step = {(size_t)shape->out.stride * fft->out_element,
                          (size_t)shape->out.distance * fft->out_element};
  const steps in_packed = {fft->in_element, fft->in_row_bytes};
  const steps out_packed = {fft->out_element, fft->out_row_bytes};
  const bool reads_there = in != out && is_packed(in, in_step, fft->in_element, rows);
  const bool writes_there = is_packed(out, out_step, fft->out_element, rows);

  char *const scratch_out = scratch + (size_t)fft->tile_rows * fft->in_row_bytes;
  char *const from = reads_there ? in : scratch;
  char *const to = writes_there ? out : scratch_out;
  if (!reads_there)
    copy_rows(from, in_packed, in, in_step, tri_fft_in_elements(shape), rows, fft->in_element);
  for (int64_t r = 0; r < rows; r++)
    execute_row(fft, from + (size_t)r * (reads_there ? in_step : in_packed).row,
                to + (size_t)r * (writes_there ? out_step : out_packed).row);
  if (!writes_there)
    copy_rows(out, out_step, to, out_packed, tri_fft_out_elements(shape), rows, fft->out_element);
}

tri_status tri_cpu_fft_execute(const tri_fft *base, tri_stream *stream, void *out, void *in,
                               void *work)
{
  (void)stream;
  const cpu_fft *fft = (const cpu_fft *)base;
  const tri_fft_shape *shape = &base->shape;
  const size_t scratch_bytes = base->work_bytes / (size_t)fft->n_threads;
  const size_t in_row = (size_t)shape->in.distance * fft->in_element;
  const size_t out_row = (size_t)shape->out.distance * fft->out_element;

#pragma omp parallel for num_threads(fft->n_threads) schedule(static)
  for (int64_t b = 0; b < shape->batch; b += fft->tile_rows) {
    const int64_t left = shape->batch - b;
    transform_tile(fft, (char *)out + (size_t)b * out_row, (char *)in + (size_t)b * in_row,
                   (char *)work + (size_t)omp_get_thread_num() * scratch_bytes,
                   left < fft->tile_rows ? left : fft->tile_rows);
  }
  return TRI_OK;
}
