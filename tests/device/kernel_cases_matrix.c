#include "device/kernel_cases_common.h"

// --- linear

typedef struct linear_shape {
  int64_t N, IC, OC;
} linear_shape;

static bool linear_is_empty(linear_shape s)
{
  return s.N == 0 || s.IC == 0 || s.OC == 0;
}

static void linear_begin(kernel_run *run, const kernel_comparison *comparison, const char *kernel,
                         linear_shape s, tri_dtype dtype, const char *variant)
{
  kernel_run_begin(run, comparison, "%s%s N=%lld IC=%lld OC=%lld %s", kernel, variant,
                   (long long)s.N, (long long)s.IC, (long long)s.OC, tri_dtype_name(dtype));
}

// Weights are at most 3 / sqrt(IC), so that outputs are of size 1 and at most 8. GELU of the stored
// out: a slope of at most 1.13 takes over the difference of the two outs.
static tri_status case_linear_forward(const kernel_comparison *comparison, linear_shape s,
                                      tri_dtype dtype, bool has_bias, bool has_gelu)
{
  const double w_size = 3.0 / sqrt(s.IC > 9 ? (double)s.IC : 9.0);
  const double error = kernel_sum_error(s.IC + 1, w_size < 1.0 ? w_size : 1.0);
  const int64_t n_out = linear_is_empty(s) ? 0 : s.N * s.OC;
  kernel_run run;
  linear_begin(&run, comparison, "linear_forward", s, dtype,
               has_gelu ? " gelu" : (has_bias ? " bias" : ""));
  kernel_array *x = kernel_run_add(&run, "x", KERNEL_INPUT, dtype, s.N * s.IC, 1.0, 0.0);
  kernel_array *w = kernel_run_add(&run, "w", KERNEL_INPUT, dtype, s.OC * s.IC, w_size, 0.0);
  kernel_array *bias =
      has_bias ? kernel_run_add(&run, "bias", KERNEL_INPUT, dtype, s.OC, 1.0, 0.0) : NULL;
  kernel_array *out = kernel_run_output(&run, "out", dtype, n_out, error);
  kernel_array *gelu =
      has_gelu ? kernel_run_output(&run, "gelu", dtype, n_out,
                                   1.13 * (error + kernel_ulp(dtype) * 8.0) + 32 * 0x1p-24)
               : NULL;
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->linear_forward(kernel_stream(&run, side), kernel_at(out, side),
                                             kernel_at(gelu, side), kernel_at(x, side),
                                             kernel_at(w, side), kernel_at(bias, side), s.N, s.IC,
                                             s.OC, dtype));
  return kernel_run_end(&run);
}

// The slope of GELU is at most 1.13.
static tri_status case_linear_backward_input(const kernel_comparison *comparison, linear_shape s,
                                             tri_dtype dtype, bool has_pre)
{
  const double w_size = 3.0 / sqrt(s.OC > 9 ? (double)s.OC : 9.0);
  const double error = 1.13 * kernel_sum_error(s.OC, w_size) + 8.0 * 32 * 0x1p-24;
  kernel_run run;
  linear_begin(&run, comparison, "linear_backward_input", s, dtype, has_pre ? " gelu" : "");
  kernel_array *dout = kernel_run_add(&run, "dout", KERNEL_INPUT, dtype, s.N * s.OC, 1.0, 0.0);
  kernel_array *w = kernel_run_add(&run, "w", KERNEL_INPUT, dtype, s.OC * s.IC, w_size, 0.0);
  kernel_array *pre =
      has_pre ? kernel_run_add(&run, "pre", KERNEL_INPUT, dtype, s.N * s.IC, 4.0, 0.0) : NULL;
  kernel_array *dx =
      kernel_run_output(&run, "dx", dtype, linear_is_empty(s) ? 0 : s.N * s.IC, error);
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->linear_backward_input(kernel_stream(&run, side), kernel_at(dx, side),
                                                    kernel_at(dout, side), kernel_at(w, side),
                                                    kernel_at(pre, side), s.N, s.IC, s.OC, dtype));
  return kernel_run_end(&run);
}

static tri_status case_linear_backward_weight(const kernel_comparison *comparison, linear_shape s,
                                              tri_dtype dtype, bool has_bias)
{
  kernel_run run;
  linear_begin(&run, comparison, "linear_backward_weight", s, dtype, has_bias ? " bias" : "");
  kernel_array *dout = kernel_run_add(&run, "dout", KERNEL_INPUT, dtype, s.N * s.OC, 1.0, 0.0);
  kernel_array *x = kernel_run_add(&run, "x", KERNEL_INPUT, dtype, s.N * s.IC, 1.0, 0.0);
  kernel_array *dw =
      kernel_run_add(&run, "dw", KERNEL_IN_OUT, TRI_DTYPE_F32, s.OC * s.IC, 1.0, 0.0);
  kernel_array *dbias =
      has_bias ? kernel_run_add(&run, "dbias", KERNEL_IN_OUT, TRI_DTYPE_F32, s.OC, 1.0, 0.0) : NULL;
  if (dw != NULL) dw->absolute = kernel_sum_error(s.N + 1, 1.0);
  if (dbias != NULL) dbias->absolute = kernel_sum_error(s.N + 1, 1.0);
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->linear_backward_weight(kernel_stream(&run, side), kernel_at(dw, side),
                                                     kernel_at(dbias, side), kernel_at(dout, side),
                                                     kernel_at(x, side), s.N, s.IC, s.OC, dtype));
  return kernel_run_end(&run);
}

static tri_status prepare(const kernel_comparison *comparison, linear_shape s, tri_dtype dtype)
{
  for (int side = 0; side < 2; side++) {
    const kernel_side *it = &comparison->sides[side];
    TRI_CALL(it->kernels->linear_prepare(it->stream, s.N, s.IC, s.OC, dtype));
  }
  return TRI_OK;
}

// Odd shapes are planned at the call, even ones before.
tri_status kernel_cases_linear(const kernel_comparison *comparison)
{
  static const linear_shape shapes[] = {
      {0, 8, 8},   {8, 0, 8},     {8, 8, 0},     {1, 1, 1},     {31, 33, 32},   {33, 32, 31},
      {1, 257, 5}, {66, 48, 144}, {66, 48, 192}, {66, 192, 48}, {5, 1000, 257}, {1000, 32, 33}};
  const size_t n_dtypes = comparison->f32_only ? 1 : COUNT(KERNEL_DTYPES);
  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t t = 0; t < n_dtypes; t++) {
      const tri_dtype dtype = KERNEL_DTYPES[t];
      if (s % 2 == 0) TRI_CALL(prepare(comparison, shapes[s], dtype));
      TRI_CALL(case_linear_forward(comparison, shapes[s], dtype, false, false));
      TRI_CALL(case_linear_forward(comparison, shapes[s], dtype, true, false));
      TRI_CALL(case_linear_forward(comparison, shapes[s], dtype, true, true));
      for (int flag = 0; flag < 2; flag++) {
        TRI_CALL(case_linear_backward_input(comparison, shapes[s], dtype, flag == 1));
        TRI_CALL(case_linear_backward_weight(comparison, shapes[s], dtype, flag == 1));
      }
    }
  return TRI_OK;
}

// --- attention

typedef struct attention_shape {
  int64_t B, T, H, D;
  double amplitude; // of q, k and v
} attention_shape;

// Error of one scaled score: a sum of D products of at most amplitude^2, over sqrt(D).
static double score_error(attention_shape s)
{
  const double d = s.D == 0 ? 1.0 : (double)s.D;
  return kernel_sum_error(s.D, s.amplitude * s.amplitude) / sqrt(d);
}

// Relative error of one probability: of its score (and the largest), of exp, of the sum, of its
// rounding to bf16.
static double probability_error(attention_shape s, tri_dtype dtype)
{
  return 2 * score_error(s) + 2 * kernel_positive_sum_error(s.T) + kernel_factor_error(dtype);
}

static void attention_begin(kernel_run *run, const kernel_comparison *comparison,
                            const char *kernel, attention_shape s, tri_dtype dtype, float p)
{
  kernel_run_begin(run, comparison, "%s B=%lld T=%lld H=%lld D=%lld amplitude=%g %s p=%g", kernel,
                   (long long)s.B, (long long)s.T, (long long)s.H, (long long)s.D, s.amplitude,
                   tri_dtype_name(dtype), (double)p);
}

// The backward call is given lse, so a probability has the errors of one score and of exp. Of the
// sums over a row or a column of the (T, T) matrix, the roundings have either sign, so they add up
// like the root of the sum of P^2: below 2.5 in a column of equal or nearly equal scores (P_i =
// 3 / i at most), below sqrt(T) in any.
static double slope_error(attention_shape s, tri_dtype dtype, const tri_dropout *dropout)
{
  const double d = s.D == 0 ? 1.0 : (double)s.D, a = s.amplitude, T = (double)s.T;
  const double scale = kernel_keep_scale(dropout);
  const double p_error = score_error(s) + 16 * 0x1p-24 + kernel_factor_error(dtype);
  // dS = P (M dP - delta) / sqrt(D): |dP| is of size sqrt(D) a, and dS may be rounded once more.
  const double dp_size = scale * sqrt(d) * a, dp_error = 2 * scale * kernel_sum_error(s.D, a);
  const double ds_error = ((p_error + kernel_factor_error(dtype)) * dp_size + dp_error) / sqrt(d);
  const double column = a > 1.0 ? sqrt(T) : 2.5;
  return column * (ds_error * a + p_error * scale + kernel_positive_sum_error(s.T) * scale * a);
}

static tri_status case_attention_backward(const kernel_run *forward, const kernel_array *from_qkv,
                                          const kernel_array *from_out,
                                          const kernel_array *from_lse, attention_shape s,
                                          tri_dtype dtype, const tri_dropout *dropout)
{
  const int64_t rows = s.B * s.T * s.H, n = rows * s.D;
  kernel_run run;
  attention_begin(&run, forward->comparison, "attention_backward", s, dtype, dropout->p);
  kernel_array *dout = kernel_run_add(&run, "dout", KERNEL_INPUT, dtype, n, 1.0, 0.0);
  kernel_array *qkv = kernel_run_add(&run, "qkv", KERNEL_INPUT, dtype, 3 * n, 0.0, 0.0);
  kernel_array *out = kernel_run_add(&run, "out", KERNEL_INPUT, dtype, n, 0.0, 0.0);
  kernel_array *lse =
      kernel_run_add(&run, "lse", KERNEL_INPUT, TRI_DTYPE_F32, s.D == 0 ? 0 : rows, 0.0, 0.0);
  kernel_array *delta =
      kernel_run_add(&run, "delta", KERNEL_OUTPUT, TRI_DTYPE_F32, s.D == 0 ? 0 : rows, 0.0, 0.0);
  kernel_array *dqkv =
      kernel_run_output(&run, "dqkv", dtype, 3 * n, slope_error(s, dtype, dropout));
  if (dqkv != NULL) {
    delta->absolute = INFINITY; // scratch: what is left there is nobody's business
    kernel_array_take_result(&run, qkv, from_qkv);
    kernel_array_take_result(&run, out, from_out);
    kernel_array_take_result(&run, lse, from_lse);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->attention_backward(kernel_stream(&run, side), kernel_at(dqkv, side),
                                                 kernel_at(delta, side), kernel_at(dout, side),
                                                 kernel_at(qkv, side), kernel_at(out, side),
                                                 kernel_at(lse, side), s.B, s.T, s.H, s.D, dtype,
                                                 dropout));
  return kernel_run_end(&run);
}

static tri_status case_attention(const kernel_comparison *comparison, attention_shape s,
                                 tri_dtype dtype, const tri_dropout *dropout)
{
  const int64_t rows = s.B * s.T * s.H, n = rows * s.D;
  kernel_run run;
  attention_begin(&run, comparison, "attention_forward", s, dtype, dropout->p);
  kernel_array *qkv = kernel_run_add(&run, "qkv", KERNEL_INPUT, dtype, 3 * n, s.amplitude, 0.0);
  kernel_array *out =
      kernel_run_output(&run, "out", dtype, n,
                        probability_error(s, dtype) * kernel_keep_scale(dropout) * s.amplitude);
  kernel_array *lse = kernel_run_output(&run, "lse", TRI_DTYPE_F32, s.D == 0 ? 0 : rows,
                                        score_error(s) + kernel_positive_sum_error(s.T));
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->attention_forward(kernel_stream(&run, side), kernel_at(out, side),
                                                kernel_at(lse, side), kernel_at(qkv, side), s.B,
                                                s.T, s.H, s.D, dtype, dropout));
  tri_status backward_status = TRI_OK;
  if (run.status == TRI_OK)
    backward_status = case_attention_backward(&run, qkv, out, lse, s, dtype, dropout);
  const tri_status forward_status = kernel_run_end(&run);
  return forward_status != TRI_OK ? forward_status : backward_status;
}

tri_status kernel_cases_attention(const kernel_comparison *comparison)
{
  static const attention_shape shapes[] = {
      {0, 4, 2, 8, 1},    {2, 0, 2, 8, 1},    {2, 4, 0, 8, 1},    {2, 4, 2, 0, 1},
      {1, 1, 1, 1, 1},    {1, 31, 1, 8, 1},   {1, 32, 2, 32, 1},  {2, 33, 3, 16, 1},
      {1, 33, 2, 31, 1},  {1, 65, 1, 130, 1}, {2, 20, 2, 64, 6},  {1, 257, 1, 64, 1},
      {1, 1000, 1, 8, 1}, {2, 68, 2, 80, 1},  {1, 150, 1, 48, 6}, {1, 130, 1, 128, 1},
      {1, 35, 1, 512, 1}, {1, 9, 4, 64, 30}};
  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t t = 0; t < COUNT(KERNEL_DTYPES); t++)
      for (size_t p = 0; p < COUNT(KERNEL_DROPOUTS); p++) {
        // Long rows are slow in the reference: f32 with dropout, bf16 without.
        if (shapes[s].T >= 257 && t == p) continue;
        // Every second shape is a part: its heads are not the layer's first.
        tri_dropout dropout = KERNEL_DROPOUTS[p];
        dropout.first = s % 2 == 0 ? 0 : 3;
        TRI_CALL(case_attention(comparison, shapes[s], KERNEL_DTYPES[t], &dropout));
      }
  return TRI_OK;
}

// The caches hold numbers at every position: those behind `position` must not be looked at (they
// are NaN) and none but `position` may change.
static tri_status case_attention_decode(const kernel_comparison *comparison, attention_shape s,
                                        int64_t position, tri_dtype dtype)
{
  const int64_t n = s.B * s.H * s.D;
  const attention_shape seen = {s.B, position + 1, s.H, s.D, s.amplitude};
  kernel_run run;
  attention_begin(&run, comparison, "attention_decode", seen, dtype, 0.0f);
  kernel_array *qkv = kernel_run_add(&run, "qkv", KERNEL_INPUT, dtype, 3 * n, s.amplitude, 0.0);
  kernel_array *k = kernel_run_add(&run, "k_cache", KERNEL_IN_OUT, dtype, n * s.T, s.amplitude, 0);
  kernel_array *v = kernel_run_add(&run, "v_cache", KERNEL_IN_OUT, dtype, n * s.T, s.amplitude, 0);
  kernel_array *out =
      kernel_run_output(&run, "out", dtype, n, probability_error(seen, dtype) * s.amplitude);
  for (int64_t b = 0; out != NULL && b < s.B; b++)
    for (int64_t i = (position + 1) * s.H * s.D; i < s.T * s.H * s.D; i++) {
      kernel_array_set(k, b * s.T * s.H * s.D + i, NAN);
      kernel_array_set(v, b * s.T * s.H * s.D + i, NAN);
    }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->attention_decode(kernel_stream(&run, side), kernel_at(out, side),
                                               kernel_at(k, side), kernel_at(v, side),
                                               kernel_at(qkv, side), position, s.B, s.T, s.H, s.D,
                                               dtype));
  return kernel_run_end(&run);
}

tri_status kernel_cases_attention_decode(const kernel_comparison *comparison)
{
  static const attention_shape shapes[] = {
      {0, 4, 2, 8, 1},    {2, 4, 0, 8, 1},    {2, 4, 2, 0, 1},    {1, 1, 1, 1, 1},
      {2, 33, 3, 16, 1},  {1, 33, 2, 31, 1},  {1, 40, 1, 130, 1}, {2, 20, 2, 64, 6},
      {1, 257, 2, 64, 1}, {1, 1000, 1, 8, 1}, {1, 40, 1, 512, 1}};
  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t t = 0; t < COUNT(KERNEL_DTYPES); t++) {
      const int64_t T = shapes[s].T, positions[] = {0, T / 2, T - 1};
      for (size_t p = 0; p < COUNT(positions); p++)
        TRI_CALL(case_attention_decode(comparison, shapes[s], positions[p], KERNEL_DTYPES[t]));
    }
  return TRI_OK;
}
