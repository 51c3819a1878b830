// fill, convert, add, sum_squares, sum. Bound by memory: one pass, no temporaries.
//
// Threads share chunks of TRI_NORM_CHUNK elements; the end of a chunk is the end of a row.
#include "device/check.h"
#include "device/cpu/vector/tables.h"
#include "device/cpu/vector/vector.h"

static int64_t n_chunks(int64_t n)
{
  return (n + TRI_NORM_CHUNK - 1) / TRI_NORM_CHUNK;
}

static int64_t chunk_size(int64_t n, int64_t k)
{
  const int64_t left = n - k * TRI_NORM_CHUNK;
  return left < TRI_NORM_CHUNK ? left : TRI_NORM_CHUNK;
}

// Elements from which an array is larger than the caches that are worth keeping: 8 MiB.
enum { LARGE = 2 * 1024 * 1024 };

static void fill_chunk(float *out, float value, int64_t n, bool past_caches)
{
  int64_t i = 0;
  if (past_caches && (uintptr_t)out % sizeof(vf) == 0) {
    for (; i + W <= n; i += W)
      v_put_past(out + i, v_set(value));
    v_put_past_end();
  }
  for (; i < n; i += W)
    v_store(out, i, n - i, TRI_DTYPE_F32, v_set(value));
}

static tri_status fill(struct tri_stream *stream, float *out, float value, int64_t n)
{
  TRI_CALL(tri_kernel_check_sizes("fill", 1, &n));
#pragma omp parallel for num_threads(v_threads(stream, n)) schedule(static)
  for (int64_t k = 0; k < n_chunks(n); k++)
    fill_chunk(out + k * TRI_NORM_CHUNK, value, chunk_size(n, k), n >= LARGE);
  return TRI_OK;
}

V_INLINE void convert_chunk(void *out, tri_dtype out_dtype, const void *x, int64_t at, int64_t n,
                            tri_dtype x_dtype)
{
  for (int64_t i = 0; i < n; i += W)
    v_store(out, at + i, n - i, out_dtype, v_load(x, at + i, n - i, x_dtype));
}

static tri_status convert(struct tri_stream *stream, void *out, tri_dtype out_dtype, const void *x,
                          tri_dtype x_dtype, int64_t n)
{
  TRI_CALL(tri_kernel_check_sizes("convert", 1, &n));
  TRI_CALL(tri_kernel_check_dtype("convert", out_dtype));
  TRI_CALL(tri_kernel_check_dtype("convert", x_dtype));
#pragma omp parallel for num_threads(v_threads(stream, n)) schedule(static)
  for (int64_t k = 0; k < n_chunks(n); k++) {
    const int64_t at = k * TRI_NORM_CHUNK, size = chunk_size(n, k);
    if (out_dtype == TRI_DTYPE_F32) {
      V_BY_DTYPE(x_dtype, convert_chunk, out, TRI_DTYPE_F32, x, at, size);
    } else {
      V_BY_DTYPE(x_dtype, convert_chunk, out, TRI_DTYPE_BF16, x, at, size);
    }
  }
  return TRI_OK;
}

static void add_chunk(float *out, const float *a, const float *b, int64_t n)
{
  for (int64_t i = 0; i < n; i += W)
    v_store(out, i, n - i, TRI_DTYPE_F32,
            v_load(a, i, n - i, TRI_DTYPE_F32) + v_load(b, i, n - i, TRI_DTYPE_F32));
}

static tri_status add(struct tri_stream *stream, float *out, const float *a, const float *b,
                      int64_t n)
{
  TRI_CALL(tri_kernel_check_sizes("add", 1, &n));
#pragma omp parallel for num_threads(v_threads(stream, n)) schedule(static)
  for (int64_t k = 0; k < n_chunks(n); k++) {
    const int64_t at = k * TRI_NORM_CHUNK;
    add_chunk(out + at, a + at, b + at, chunk_size(n, k));
  }
  return TRI_OK;
}

// The sum of x[i] (or x[i]^2) over one chunk in double: W partial sums by index modulo 2 W, folded.
V_INLINE double sum_chunk(const float *x, int64_t n, bool squares)
{
  vd sums[4] = {{0}};
  for (int64_t i = 0; i < n; i += 2 * W) {
    float last[2 * W] = {0};
    const float *from = x + i;
    if (n - i < 2 * W) {
      memcpy(last, from, (size_t)(n - i) * sizeof *last);
      from = last;
    }
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) {
      const vd wide = v_get_double(from + u * (W / 2));
      sums[u] += squares ? wide * wide : wide;
    }
  }
  return v_sum_double((sums[0] + sums[2]) + (sums[1] + sums[3]));
}

static tri_status sum_squares(struct tri_stream *stream, double *out, const float *x, int64_t n)
{
  TRI_CALL(tri_kernel_check_sizes("sum_squares", 1, &n));
#pragma omp parallel for num_threads(v_threads(stream, n)) schedule(static)
  for (int64_t k = 0; k < n_chunks(n); k++)
    out[k] = sum_chunk(x + k * TRI_NORM_CHUNK, chunk_size(n, k), true);
  return TRI_OK;
}

// Chunk after chunk on one thread: it sums losses, which are few.
static tri_status sum(struct tri_stream *stream, double *out, const float *x, int64_t n)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("sum", 1, &n));
  double total = 0.0;
  for (int64_t k = 0; k < n_chunks(n); k++)
    total += sum_chunk(x + k * TRI_NORM_CHUNK, chunk_size(n, k), false);
  out[0] = total;
  return TRI_OK;
}

void TRI_ISA(tri_vector_elementwise)(tri_kernels *table)
{
  table->fill = fill;
  table->convert = convert;
  table->add = add;
  table->sum_squares = sum_squares;
  table->sum = sum;
}
