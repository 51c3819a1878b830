// Layer norm and the residual stream. A row is read from memory once: the later passes over it find
// it in the first-level cache.
#include <math.h>

#include "device/check.h"
#include "device/cpu/vector/dropout.h"
#include "device/cpu/vector/tables.h"

// --- residual

// out = x + dropout(delta) on one row of C elements that begins at `at`; with x NULL: out =
// dropout(delta). `first` is the row's first element in its sample.
V_INLINE void residual_row_as(void *out, const void *x, const void *delta, int64_t at, int64_t C,
                              const dropout_mask *mask, int64_t sample, int64_t first, bool drop,
                              tri_dtype dtype)
{
  uint32_t room[DROPOUT_ROOM];
  for (int64_t run = 0; run < C; run += DROPOUT_RUN) {
    const int64_t n = C - run < DROPOUT_RUN ? C - run : DROPOUT_RUN;
    const uint32_t *words = drop ? dropout_words(mask, sample, first + run, n, room) : room;
    for (int64_t c = 0; c < n; c += W) {
      vf value = v_load(delta, at + run + c, n - c, dtype);
      if (drop) value *= dropout_factor_at(mask, words, c);
      if (x != NULL) value = v_load(x, at + run + c, n - c, dtype) + value;
      v_store(out, at + run + c, n - c, dtype, value);
    }
  }
}

// Row n of the call, T rows to a sample.
V_INLINE void residual_row(void *out, const void *x, const void *delta, int64_t n, int64_t T,
                           int64_t C, const dropout_mask *mask, tri_dtype dtype)
{
  const int64_t at = n * C, row = mask->first + n, sample = row / T, first = row % T * C;
  if (mask->threshold > 0) {
    residual_row_as(out, x, delta, at, C, mask, sample, first, true, dtype);
  } else {
    residual_row_as(out, x, delta, at, C, mask, sample, first, false, dtype);
  }
}

static tri_status residual_forward(struct tri_stream *stream, void *out, const void *x,
                                   const void *delta, int64_t N, int64_t T, int64_t C,
                                   tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("residual_forward", N, T, C, dtype, dropout));
  const dropout_mask mask = dropout_mask_of(dropout);
#pragma omp parallel for num_threads(v_threads(stream, N *C)) schedule(static)
  for (int64_t n = 0; n < N; n++)
    V_BY_DTYPE(dtype, residual_row, out, x, delta, n, T, C, &mask);
  return TRI_OK;
}

V_INLINE void dropout_row(void *ddelta, const void *dout, int64_t n, int64_t T, int64_t C,
                          const dropout_mask *mask, tri_dtype dtype)
{
  residual_row(ddelta, NULL, dout, n, T, C, mask, dtype);
}

static tri_status residual_backward(struct tri_stream *stream, void *ddelta, const void *dout,
                                    int64_t N, int64_t T, int64_t C, tri_dtype dtype,
                                    const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("residual_backward", N, T, C, dtype, dropout));
  if (ddelta == dout && !tri_cpu_dropout_is_on(dropout)) return TRI_OK;
  const dropout_mask mask = dropout_mask_of(dropout);
#pragma omp parallel for num_threads(v_threads(stream, N *C)) schedule(static)
  for (int64_t n = 0; n < N; n++)
    V_BY_DTYPE(dtype, dropout_row, ddelta, dout, n, T, C, &mask);
  return TRI_OK;
}

// --- forward

// The sum over a row of x, or of (x - mean)^2: four vectors of partial sums, folded in a fixed
// order.
V_INLINE float row_sum(const void *x, int64_t at, int64_t C, bool squares, float mean,
                       tri_dtype dtype)
{
  vf sums[4] = {{0}};
  int64_t c = 0;
  for (; c + 4 * W <= C; c += 4 * W) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) {
      const vf value = v_load(x, at + c + u * W, W, dtype) - mean;
      sums[u] = squares ? v_fma(value, value, sums[u]) : sums[u] + value;
    }
  }
  for (; c < C; c += W) {
    vf value = v_load(x, at + c, C - c, dtype) - mean;
    value = v_select(v_first(C - c), value, v_set(0.0f));
    sums[0] = squares ? v_fma(value, value, sums[0]) : sums[0] + value;
  }
  return v_sum((sums[0] + sums[2]) + (sums[1] + sums[3]));
}

// Two passes for the variance: the mean first, then the squares of the distances from it.
V_INLINE void norm_row(void *out, float *mean, float *rstd, const void *x, const void *w,
                       const void *b, int64_t at, int64_t C, float eps, tri_dtype dtype)
{
  const float m = row_sum(x, at, C, false, 0.0f, dtype) / (float)C;
  const float variance = row_sum(x, at, C, true, m, dtype) / (float)C;
  const float r = (float)(1.0 / sqrt((double)variance + (double)eps));
  for (int64_t c = 0; c < C; c += W) {
    const int64_t left = C - c;
    const vf normal = (v_load(x, at + c, left, dtype) - m) * r;
    v_store(out, at + c, left, dtype,
            v_fma(normal, v_load(w, c, left, dtype), v_load(b, c, left, dtype)));
  }
  *mean = m;
  *rstd = r;
}

static tri_status layernorm_forward(struct tri_stream *stream, void *out, float *mean, float *rstd,
                                    const void *x, const void *w, const void *b, int64_t N,
                                    int64_t C, float eps, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_rows("layernorm_forward", N, 1, C, dtype, NULL));
  if (C == 0) return TRI_OK;
#pragma omp parallel for num_threads(v_threads(stream, N *C)) schedule(static)
  for (int64_t n = 0; n < N; n++)
    V_BY_DTYPE(dtype, norm_row, out, &mean[n], &rstd[n], x, w, b, n * C, C, eps);
  return TRI_OK;
}

static tri_status residual_layernorm_forward(struct tri_stream *stream, void *residual, void *out,
                                             float *mean, float *rstd, const void *x,
                                             const void *delta, const void *w, const void *b,
                                             int64_t N, int64_t T, int64_t C, float eps,
                                             tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("residual_layernorm_forward", N, T, C, dtype, dropout));
  if (C == 0) return TRI_OK;
  const dropout_mask mask = dropout_mask_of(dropout);
#pragma omp parallel for num_threads(v_threads(stream, N *C)) schedule(static)
  for (int64_t n = 0; n < N; n++) {
    V_BY_DTYPE(dtype, residual_row, residual, x, delta, n, T, C, &mask);
    V_BY_DTYPE(dtype, norm_row, out, &mean[n], &rstd[n], residual, w, b, n * C, C, eps);
  }
  return TRI_OK;
}

// --- backward

// Rows whose part of dw and db is summed before it is added to the total, and the columns of such a
// part that are held at once.
enum { ROWS = 32, COLUMNS = 4096 };

typedef struct norm_gradient {
  void *dx;
  float *dw, *db;
  const void *dout, *x, *w;
  const float *mean, *rstd;
  int64_t N, C;
} norm_gradient;

// With y = (x - mean) rstd and dy = dout w: the means over the row of dy and of dy y.
V_INLINE void row_means(const norm_gradient *a, int64_t n, float *mean_dy, float *mean_dyy,
                        tri_dtype dtype)
{
  const float mean = a->mean[n], rstd = a->rstd[n];
  vf sums[2] = {{0}}, weighted[2] = {{0}};
  for (int64_t c = 0; c < a->C; c += 2 * W) {
#pragma GCC unroll 2
    for (int u = 0; u < 2; u++) {
      // Beyond the end dout reads as 0, and so does all that is added.
      const int64_t at = c + u * W, left = a->C - at;
      const vf y = (v_load(a->x, n * a->C + at, left, dtype) - mean) * rstd;
      const vf dy = v_load(a->dout, n * a->C + at, left, dtype) * v_load(a->w, at, left, dtype);
      sums[u] += dy;
      weighted[u] = v_fma(dy, y, weighted[u]);
    }
  }
  *mean_dy = v_sum(sums[0] + sums[1]) / (float)a->C;
  *mean_dyy = v_sum(weighted[0] + weighted[1]) / (float)a->C;
}

// Rows [row, row + n_rows), columns [column, column + n): adds to dx, and writes this part of dw
// and db.  dx += rstd (dy - mean(dy) - y mean(dy y)).
V_INLINE void gradient_rows(float *dw, float *db, const norm_gradient *a, int64_t row,
                            int64_t n_rows, int64_t column, int64_t n, tri_dtype dtype)
{
  const tri_dtype f32 = TRI_DTYPE_F32;
  memset(dw, 0, (size_t)n * sizeof *dw);
  memset(db, 0, (size_t)n * sizeof *db);
  for (int64_t r = row; r < row + n_rows; r++) {
    float mean_dy, mean_dyy;
    row_means(a, r, &mean_dy, &mean_dyy, dtype);
    const float mean = a->mean[r], rstd = a->rstd[r];
    for (int64_t c = 0; c < n; c += W) {
      const int64_t at = r * a->C + column + c, left = n - c;
      const vf dout = v_load(a->dout, at, left, dtype);
      const vf y = (v_load(a->x, at, left, dtype) - mean) * rstd;
      const vf dy = dout * v_load(a->w, column + c, left, dtype);
      const vf slope = v_fma(y, v_set(-mean_dyy), dy - mean_dy);
      v_store(a->dx, at, left, dtype, v_fma(slope, v_set(rstd), v_load(a->dx, at, left, dtype)));
      v_store(dw, c, left, f32, v_fma(dout, y, v_load(dw, c, left, f32)));
      v_store(db, c, left, f32, v_load(db, c, left, f32) + dout);
    }
  }
}

static void add_to(float *sum, const float *part, int64_t n)
{
  for (int64_t c = 0; c < n; c += W)
    v_store(sum, c, n - c, TRI_DTYPE_F32,
            v_load(sum, c, n - c, TRI_DTYPE_F32) + v_load(part, c, n - c, TRI_DTYPE_F32));
}

// Each group of rows sums its part of dw and db alone; the parts are added in the order of the
// rows, whoever made them.
static void gradient_columns(const norm_gradient *a, int64_t column, int64_t n, int n_threads,
                             tri_dtype dtype)
{
#pragma omp parallel for num_threads(n_threads) ordered schedule(static, 1)
  for (int64_t row = 0; row < a->N; row += ROWS) {
    float dw[COLUMNS], db[COLUMNS];
    const int64_t n_rows = a->N - row < ROWS ? a->N - row : ROWS;
    V_BY_DTYPE(dtype, gradient_rows, dw, db, a, row, n_rows, column, n);
#pragma omp ordered
    {
      add_to(a->dw + column, dw, n);
      add_to(a->db + column, db, n);
    }
  }
}

static tri_status layernorm_backward(struct tri_stream *stream, void *dx, float *dw, float *db,
                                     const void *dout, const void *x, const void *w,
                                     const float *mean, const float *rstd, int64_t N, int64_t C,
                                     tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_rows("layernorm_backward", N, 1, C, dtype, NULL));
  const norm_gradient a = {.dx = dx,
                           .dw = dw,
                           .db = db,
                           .dout = dout,
                           .x = x,
                           .w = w,
                           .mean = mean,
                           .rstd = rstd,
                           .N = N,
                           .C = C};
  for (int64_t column = 0; column < C; column += COLUMNS)
    gradient_columns(&a, column, C - column < COLUMNS ? C - column : COLUMNS,
                     v_threads(stream, N * C), dtype);
  return TRI_OK;
}

void TRI_ISA(tri_vector_layernorm)(tri_kernels *table)
{
  table->residual_forward = residual_forward;
  table->residual_backward = residual_backward;
  table->layernorm_forward = layernorm_forward;
  table->residual_layernorm_forward = residual_layernorm_forward;
  table->layernorm_backward = layernorm_backward;
}
