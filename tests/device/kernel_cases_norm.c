#include "device/kernel_cases_common.h"

typedef struct norm_shape {
  int64_t N, C;
  double offset; // mean of x: a variance by E[x^2] - mean^2 would not survive a large one
} norm_shape;

static const float EPS = 1e-5f;

static const norm_shape NORM_SHAPES[] = {{0, 8, 0},   {3, 0, 0},     {1, 1, 0},    {2, 31, 0},
                                         {5, 32, 0},  {33, 33, 0.5}, {3, 257, 0},  {2, 1000, 0},
                                         {66, 48, 0}, {4, 48, 100},  {7, 768, 0.5}};

// Bounds of one layer norm on rows of x, from the numbers that are in it.
typedef struct norm_bounds {
  double x;    // largest |x|
  double rstd; // largest rstd
  double norm; // largest |x - mean| rstd
} norm_bounds;

static norm_bounds find_bounds(const kernel_array *x, int64_t N, int64_t C)
{
  norm_bounds bounds = {0};
  for (int64_t n = 0; n < N; n++) {
    double sum = 0.0, squares = 0.0, largest = 0.0;
    for (int64_t c = 0; c < C; c++)
      sum += kernel_array_get(x, n * C + c);
    const double mean = sum / (double)C;
    for (int64_t c = 0; c < C; c++) {
      const double value = kernel_array_get(x, n * C + c), shifted = value - mean;
      squares += shifted * shifted;
      largest = fmax(largest, fabs(shifted));
      bounds.x = fmax(bounds.x, fabs(value));
    }
    const double rstd = 1.0 / sqrt(squares / (double)C + (double)EPS);
    bounds.rstd = fmax(bounds.rstd, rstd);
    bounds.norm = fmax(bounds.norm, largest * rstd);
  }
  return bounds;
}

// The mean is a sum of C numbers of one sign, divided.
static double mean_error(norm_bounds bounds, int64_t C)
{
  return kernel_positive_sum_error(C) * bounds.x;
}

// Of out, |w|, |b| <= 1: the error of the mean counts once in every element, the relative error of
// the variance by half.
static double out_error(norm_bounds bounds, int64_t C)
{
  return 2 * bounds.rstd * mean_error(bounds, C) +
         kernel_positive_sum_error(C) * (bounds.norm + 1.0);
}

static void set_norm_tolerances(kernel_array *out, kernel_array *mean, kernel_array *rstd,
                                norm_bounds bounds, int64_t C)
{
  out->absolute = out_error(bounds, C);
  mean->absolute = mean_error(bounds, C);
  rstd->absolute = bounds.rstd * (kernel_positive_sum_error(C) + bounds.rstd * 0x1p-24 * bounds.x);
}

// Forward, then backward from the reference's mean and rstd.
static tri_status case_layernorm(const kernel_comparison *comparison, norm_shape s, tri_dtype dtype)
{
  const int64_t N = s.N, C = s.C, rows = C == 0 ? 0 : N;
  kernel_run run;
  kernel_run_begin(&run, comparison, "layernorm_forward N=%lld C=%lld offset=%g %s", (long long)N,
                   (long long)C, s.offset, tri_dtype_name(dtype));
  kernel_array *x = kernel_run_add(&run, "x", KERNEL_INPUT, dtype, N * C, 1.0, s.offset);
  kernel_array *w = kernel_run_add(&run, "w", KERNEL_INPUT, dtype, C, 1.0, 0.0);
  kernel_array *b = kernel_run_add(&run, "b", KERNEL_INPUT, dtype, C, 1.0, 0.0);
  kernel_array *out = kernel_run_output(&run, "out", dtype, N * C, 0.0);
  kernel_array *mean = kernel_run_output(&run, "mean", TRI_DTYPE_F32, rows, 0.0);
  kernel_array *rstd = kernel_run_output(&run, "rstd", TRI_DTYPE_F32, rows, 0.0);
  norm_bounds bounds = {0};
  if (rstd != NULL) {
    bounds = find_bounds(x, N, C);
    set_norm_tolerances(out, mean, rstd, bounds, C);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->layernorm_forward(kernel_stream(&run, side), kernel_at(out, side),
                                                kernel_at(mean, side), kernel_at(rstd, side),
                                                kernel_at(x, side), kernel_at(w, side),
                                                kernel_at(b, side), N, C, EPS, dtype));
  if (run.status != TRI_OK) return kernel_run_end(&run);

  kernel_run back;
  kernel_run_begin(&back, comparison, "layernorm_backward N=%lld C=%lld offset=%g %s", (long long)N,
                   (long long)C, s.offset, tri_dtype_name(dtype));
  kernel_array *dout = kernel_run_add(&back, "dout", KERNEL_INPUT, dtype, N * C, 1.0, 0.0);
  kernel_array *x2 = kernel_run_add(&back, "x", KERNEL_INPUT, dtype, N * C, 1.0, 0.0);
  kernel_array *w2 = kernel_run_add(&back, "w", KERNEL_INPUT, dtype, C, 1.0, 0.0);
  kernel_array *mean2 = kernel_run_add(&back, "mean", KERNEL_INPUT, TRI_DTYPE_F32, rows, 0.0, 0.0);
  kernel_array *rstd2 = kernel_run_add(&back, "rstd", KERNEL_INPUT, TRI_DTYPE_F32, rows, 0.0, 0.0);
  kernel_array *dx = kernel_run_add(&back, "dx", KERNEL_IN_OUT, dtype, N * C, 1.0, 0.0);
  kernel_array *dw = kernel_run_add(&back, "dw", KERNEL_IN_OUT, TRI_DTYPE_F32, C, 1.0, 0.0);
  kernel_array *db = kernel_run_add(&back, "db", KERNEL_IN_OUT, TRI_DTYPE_F32, C, 1.0, 0.0);
  if (db != NULL) {
    kernel_array_take_result(&back, x2, x);
    kernel_array_take_result(&back, w2, w);
    kernel_array_take_result(&back, mean2, mean);
    kernel_array_take_result(&back, rstd2, rstd);
    // Two means of C terms, g and g norm, and the product with norm again; norm itself has lost
    // what x - mean cancels.
    const double norm_error = bounds.rstd * bounds.x * 0x1p-23;
    const double squared = (bounds.norm + 1.0) * (bounds.norm + 1.0);
    dx->absolute = bounds.rstd * (kernel_sum_error(C, squared) / (double)(C == 0 ? 1 : C) +
                                  8 * 0x1p-24 * squared + 2 * norm_error * (bounds.norm + 1.0)) +
                   4 * 0x1p-24;
    dx->relative = kernel_ulp(dtype);
    dw->absolute = kernel_sum_error(N, bounds.norm + 1.0) + (double)N * norm_error;
    db->absolute = kernel_sum_error(N, 1.0);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&back, side))
      kernel_run_finish(&back, side,
                        kernel_table(&back, side)
                            ->layernorm_backward(kernel_stream(&back, side), kernel_at(dx, side),
                                                 kernel_at(dw, side), kernel_at(db, side),
                                                 kernel_at(dout, side), kernel_at(x2, side),
                                                 kernel_at(w2, side), kernel_at(mean2, side),
                                                 kernel_at(rstd2, side), N, C, dtype));
  const tri_status forward_status = kernel_run_end(&run), backward_status = kernel_run_end(&back);
  return forward_status != TRI_OK ? forward_status : backward_status;
}

tri_status kernel_cases_layernorm(const kernel_comparison *comparison)
{
  for (size_t s = 0; s < COUNT(NORM_SHAPES); s++)
    for (size_t t = 0; t < COUNT(KERNEL_DTYPES); t++)
      TRI_CALL(case_layernorm(comparison, NORM_SHAPES[s], KERNEL_DTYPES[t]));
  return TRI_OK;
}

// --- residual stream

typedef struct residual_shape {
  int64_t N, T, C;
} residual_shape;

// x and delta of at most 1 and the dropout factor: four roundings of at most 1 + scale.
static double residual_error(const tri_dropout *dropout)
{
  return 4 * 0x1p-24 * (1.0 + kernel_keep_scale(dropout));
}

static tri_status case_residual_forward(const kernel_comparison *comparison, residual_shape s,
                                        tri_dtype dtype, const tri_dropout *dropout, bool in_place)
{
  const int64_t n = s.N * s.C;
  kernel_run run;
  kernel_run_begin(&run, comparison, "residual_forward%s N=%lld T=%lld C=%lld %s p=%g first=%lld",
                   in_place ? " in place" : "", (long long)s.N, (long long)s.T, (long long)s.C,
                   tri_dtype_name(dtype), dropout == NULL ? 0.0 : (double)dropout->p,
                   dropout == NULL ? 0 : (long long)dropout->first);
  kernel_array *x =
      kernel_run_add(&run, "x", in_place ? KERNEL_IN_OUT : KERNEL_INPUT, dtype, n, 1.0, 0.0);
  kernel_array *delta = kernel_run_add(&run, "delta", KERNEL_INPUT, dtype, n, 1.0, 0.0);
  kernel_array *out = in_place ? x : kernel_run_output(&run, "out", dtype, n, 0.0);
  if (out != NULL) {
    out->absolute = residual_error(dropout);
    out->relative = kernel_ulp(dtype);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->residual_forward(kernel_stream(&run, side), kernel_at(out, side),
                                               kernel_at(x, side), kernel_at(delta, side), s.N, s.T,
                                               s.C, dtype, dropout));
  return kernel_run_end(&run);
}

static tri_status case_residual_backward(const kernel_comparison *comparison, residual_shape s,
                                         tri_dtype dtype, const tri_dropout *dropout, bool in_place)
{
  const int64_t n = s.N * s.C;
  kernel_run run;
  kernel_run_begin(&run, comparison, "residual_backward%s N=%lld T=%lld C=%lld %s p=%g first=%lld",
                   in_place ? " in place" : "", (long long)s.N, (long long)s.T, (long long)s.C,
                   tri_dtype_name(dtype), dropout == NULL ? 0.0 : (double)dropout->p,
                   dropout == NULL ? 0 : (long long)dropout->first);
  kernel_array *dout =
      kernel_run_add(&run, "dout", in_place ? KERNEL_IN_OUT : KERNEL_INPUT, dtype, n, 1.0, 0.0);
  kernel_array *ddelta = in_place ? dout : kernel_run_output(&run, "ddelta", dtype, n, 0.0);
  if (ddelta != NULL) {
    ddelta->absolute = residual_error(dropout);
    ddelta->relative = kernel_ulp(dtype);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->residual_backward(kernel_stream(&run, side), kernel_at(ddelta, side),
                                                kernel_at(dout, side), s.N, s.T, s.C, dtype,
                                                dropout));
  return kernel_run_end(&run);
}

// x and delta are multiples of 1/64 and p is 1/2, so that the residual is exact in either type: the
// norm then starts from the same numbers on both sides.
static void round_to_64ths(kernel_array *array)
{
  for (int64_t i = 0; i < array->n; i++)
    kernel_array_set(array, i, round(64 * kernel_array_get(array, i)) / 64);
}

static tri_status case_residual_layernorm(const kernel_comparison *comparison, residual_shape s,
                                          tri_dtype dtype, const tri_dropout *dropout)
{
  const int64_t N = s.N, C = s.C, rows = C == 0 ? 0 : N;
  kernel_run run;
  kernel_run_begin(
      &run, comparison, "residual_layernorm_forward N=%lld T=%lld C=%lld %s p=%g first=%lld",
      (long long)s.N, (long long)s.T, (long long)s.C, tri_dtype_name(dtype),
      dropout == NULL ? 0.0 : (double)dropout->p, dropout == NULL ? 0 : (long long)dropout->first);
  kernel_array *x = kernel_run_add(&run, "x", KERNEL_INPUT, dtype, N * C, 1.0, 0.0);
  kernel_array *delta = kernel_run_add(&run, "delta", KERNEL_INPUT, dtype, N * C, 1.0, 0.0);
  kernel_array *w = kernel_run_add(&run, "w", KERNEL_INPUT, dtype, C, 1.0, 0.0);
  kernel_array *b = kernel_run_add(&run, "b", KERNEL_INPUT, dtype, C, 1.0, 0.0);
  kernel_array *residual = kernel_run_add(&run, "residual", KERNEL_OUTPUT, dtype, N * C, 0.0, 0.0);
  kernel_array *out = kernel_run_output(&run, "out", dtype, N * C, 0.0);
  kernel_array *mean = kernel_run_output(&run, "mean", TRI_DTYPE_F32, rows, 0.0);
  kernel_array *rstd = kernel_run_output(&run, "rstd", TRI_DTYPE_F32, rows, 0.0);
  if (rstd != NULL) {
    round_to_64ths(x);
    round_to_64ths(delta);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->residual_layernorm_forward(
                                kernel_stream(&run, side), kernel_at(residual, side),
                                kernel_at(out, side), kernel_at(mean, side), kernel_at(rstd, side),
                                kernel_at(x, side), kernel_at(delta, side), kernel_at(w, side),
                                kernel_at(b, side), s.N, s.T, C, EPS, dtype, dropout));
  if (run.status == TRI_OK) {
    kernel_array_take_result(&run, residual, residual);
    set_norm_tolerances(out, mean, rstd, find_bounds(residual, N, C), C);
  }
  return kernel_run_end(&run);
}

tri_status kernel_cases_residual(const kernel_comparison *comparison)
{
  static const residual_shape shapes[] = {
      {0, 3, 8},    {0, 0, 8}, {6, 3, 0},    {1, 1, 1},   {2, 2, 31},   {10, 5, 33}, {9, 4, 12},
      {64, 32, 32}, {9, 4, 6}, {66, 33, 48}, {3, 3, 257}, {2, 1, 1000}, {6, 3, 768}, {3, 40, 48}};
  // Parts that begin inside a sample; of rows of 12 where runs fit and where they do not, of rows
  // of 6 inside a block of four numbers.
  const tri_dropout half = {.p = 0.5f, .key = 77, .first_sample = 0xffffffffull};
  const tri_dropout half_part = {.p = 0.5f, .key = 77, .first_sample = 0xfffffffeull, .first = 5};
  const tri_dropout parts[] = {{.p = 0.2f, .key = 99, .first_sample = 0xffffffffull, .first = 6},
                               {.p = 0.2f, .key = 99, .first_sample = 3, .first = 1000003}};
  const tri_dropout *const dropouts[] = {NULL, &KERNEL_DROPOUTS[0], &KERNEL_DROPOUTS[1], &parts[0],
                                         &parts[1]};
  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t t = 0; t < COUNT(KERNEL_DTYPES); t++) {
      const tri_dtype dtype = KERNEL_DTYPES[t];
      for (size_t p = 0; p < COUNT(dropouts); p++)
        for (int in_place = 0; in_place < 2; in_place++) {
          TRI_CALL(case_residual_forward(comparison, shapes[s], dtype, dropouts[p], in_place == 1));
          TRI_CALL(
              case_residual_backward(comparison, shapes[s], dtype, dropouts[p], in_place == 1));
        }
      TRI_CALL(case_residual_layernorm(comparison, shapes[s], dtype, NULL));
      TRI_CALL(case_residual_layernorm(comparison, shapes[s], dtype, &half));
      TRI_CALL(case_residual_layernorm(comparison, shapes[s], dtype, &half_part));
    }
  return TRI_OK;
}
