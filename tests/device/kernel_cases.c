#include "device/kernel_cases.h"

#include "device/kernel_cases_common.h"

static const int64_t SIZES[] = {0, 1, 31, 32, 33, 257, 1000};

// --- elementwise

static tri_status case_fill(const kernel_comparison *comparison, int64_t n)
{
  kernel_run run;
  kernel_run_begin(&run, comparison, "fill n=%lld", (long long)n);
  kernel_array *out = kernel_run_output(&run, "out", TRI_DTYPE_F32, n, 0.0);
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(
          &run, side,
          kernel_table(&run, side)->fill(kernel_stream(&run, side), kernel_at(out, side), 0.1f, n));
  return kernel_run_end(&run);
}

// Exact: to bf16 there is one right rounding, ties, infinities and NaN included.
static tri_status case_convert(const kernel_comparison *comparison, tri_dtype from, tri_dtype to,
                               int64_t n)
{
  static const float special[] = {0.0f, -0.0f, 1.00390625f, 1.01171875f, 3.4e38f, 1e-40f, INFINITY};
  kernel_run run;
  kernel_run_begin(&run, comparison, "convert %s to %s n=%lld", tri_dtype_name(from),
                   tri_dtype_name(to), (long long)n);
  kernel_array *x = kernel_run_add(&run, "x", KERNEL_INPUT, from, n, 100.0, 0.0);
  kernel_array *out = kernel_run_add(&run, "out", KERNEL_OUTPUT, to, n, 0.0, 0.0);
  for (int64_t i = 0; x != NULL && n >= 31 && i < (int64_t)COUNT(special); i++)
    kernel_array_set(x, i, (double)special[i]);
  if (x != NULL && n >= 31) kernel_array_set(x, n - 1, NAN);
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->convert(kernel_stream(&run, side), kernel_at(out, side), to,
                                      kernel_at(x, side), from, n));
  return kernel_run_end(&run);
}

static tri_status case_add(const kernel_comparison *comparison, int64_t n, bool in_place)
{
  kernel_run run;
  kernel_run_begin(&run, comparison, "add%s n=%lld", in_place ? " in place" : "", (long long)n);
  kernel_array *a = kernel_run_add(&run, "a", in_place ? KERNEL_IN_OUT : KERNEL_INPUT,
                                   TRI_DTYPE_F32, n, 1.0, 0.0);
  kernel_array *b = kernel_run_add(&run, "b", KERNEL_INPUT, TRI_DTYPE_F32, n, 1.0, 0.0);
  kernel_array *out =
      in_place ? a : kernel_run_add(&run, "out", KERNEL_OUTPUT, TRI_DTYPE_F32, n, 0.0, 0.0);
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->add(kernel_stream(&run, side), kernel_at(out, side),
                                  kernel_at(a, side), kernel_at(b, side), n));
  return kernel_run_end(&run);
}

// Sums in double: n roundings of 2^-53 of at most n.
static tri_status case_sum(const kernel_comparison *comparison, int64_t n, bool squares)
{
  kernel_run run;
  kernel_run_begin(&run, comparison, "%s n=%lld", squares ? "sum_squares" : "sum", (long long)n);
  const int64_t n_out = squares ? (n + TRI_NORM_CHUNK - 1) / TRI_NORM_CHUNK : 1;
  const double terms = (double)n;
  kernel_array *x = kernel_run_add(&run, "x", KERNEL_INPUT, TRI_DTYPE_F32, n, 1.0, 0.0);
  kernel_array *out = kernel_run_output(&run, "out", TRI_DTYPE_F64, n_out, terms * terms * 0x1p-53);
  for (int side = 0; side < 2; side++) {
    if (!kernel_run_start(&run, side)) break;
    const tri_kernels *table = kernel_table(&run, side);
    tri_status (*entry)(struct tri_stream *, double *, const float *, int64_t) =
        squares ? table->sum_squares : table->sum;
    kernel_run_finish(
        &run, side, entry(kernel_stream(&run, side), kernel_at(out, side), kernel_at(x, side), n));
  }
  return kernel_run_end(&run);
}

tri_status kernel_cases_elementwise(const kernel_comparison *comparison)
{
  static const int64_t long_sums[] = {TRI_NORM_CHUNK - 1, TRI_NORM_CHUNK, TRI_NORM_CHUNK + 1,
                                      3 * TRI_NORM_CHUNK + 5};
  for (size_t s = 0; s < COUNT(SIZES); s++) {
    const int64_t n = SIZES[s];
    TRI_CALL(case_fill(comparison, n));
    for (int from = 0; from < 2; from++)
      for (int to = 0; to < 2; to++)
        TRI_CALL(case_convert(comparison, KERNEL_DTYPES[from], KERNEL_DTYPES[to], n));
    for (int flag = 0; flag < 2; flag++) {
      TRI_CALL(case_add(comparison, n, flag == 1));
      TRI_CALL(case_sum(comparison, n, flag == 1));
    }
  }
  for (size_t s = 0; s < COUNT(long_sums); s++)
    for (int flag = 0; flag < 2; flag++)
      TRI_CALL(case_sum(comparison, long_sums[s], flag == 1));
  return TRI_OK;
}

// --- optimizer

// Third step of beta 0.9 and 0.95 at rate 0.1. With |m|, |g'| <= 1 and v >= 0.01 the update is at
// most 15 rates, of a dozen roundings; v carries 8 relative roundings into it.
static tri_status case_adamw(const kernel_comparison *comparison, int64_t n, bool mixed)
{
  const float correction1 = 1.0f - 0.9f * 0.9f * 0.9f;
  const float correction2 = 1.0f - 0.95f * 0.95f * 0.95f;
  kernel_run run;
  kernel_run_begin(&run, comparison, "adamw n=%lld%s", (long long)n,
                   mixed ? " with bf16 copy" : "");
  kernel_array *p = kernel_run_add(&run, "p", KERNEL_IN_OUT, TRI_DTYPE_F32, n, 1.0, 0.0);
  kernel_array *m = kernel_run_add(&run, "m", KERNEL_IN_OUT, TRI_DTYPE_F32, n, 1.0, 0.0);
  kernel_array *v = kernel_run_add(&run, "v", KERNEL_IN_OUT, TRI_DTYPE_F32, n, 0.495, 0.505);
  kernel_array *g = kernel_run_add(&run, "g", KERNEL_INPUT, TRI_DTYPE_F32, n, 2.0, 0.0);
  const double p_error = 0x1p-24 * (8.0 + 24.0 * 0.1 * 15.0);
  kernel_array *copy = mixed ? kernel_run_output(&run, "p_bf16", TRI_DTYPE_BF16, n, p_error) : NULL;
  if (g != NULL) {
    p->absolute = p_error;
    m->absolute = v->absolute = 4 * 0x1p-24;
  }
  // A parameter that has had no gradient yet: 0 / (0 + eps), not NaN.
  if (g != NULL && n > 0) {
    kernel_array_set(m, n - 1, 0.0);
    kernel_array_set(v, n - 1, 0.0);
    kernel_array_set(g, n - 1, 0.0);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->adamw(kernel_stream(&run, side), kernel_at(p, side),
                                    kernel_at(copy, side), kernel_at(m, side), kernel_at(v, side),
                                    kernel_at(g, side), n, 0.1f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f,
                                    correction1, correction2));
  return kernel_run_end(&run);
}

tri_status kernel_cases_adamw(const kernel_comparison *comparison)
{
  for (size_t s = 0; s < COUNT(SIZES); s++)
    for (int mixed = 0; mixed < 2; mixed++)
      TRI_CALL(case_adamw(comparison, SIZES[s], mixed == 1));
  return TRI_OK;
}
