#include "device/kernel_cases_common.h"

// Logits of at most 4. The log of a sum of V exponentials has its relative error; a difference of
// two numbers of size log(V) + 4 and 4 has two roundings more.
static tri_status case_cross_entropy(const kernel_comparison *comparison, int64_t N, int64_t V,
                                     int64_t Vp, tri_dtype dtype, bool backward)
{
  const float scale = 0.125f;
  const double error = kernel_positive_sum_error(V) + 4 * 0x1p-24 * (8.0 + log((double)V + 1.0));
  kernel_run run;
  kernel_run_begin(&run, comparison, "cross_entropy_%s N=%lld V=%lld Vp=%lld %s",
                   backward ? "backward" : "forward", (long long)N, (long long)V, (long long)Vp,
                   tri_dtype_name(dtype));
  kernel_array *logits = kernel_run_add(&run, "logits", backward ? KERNEL_IN_OUT : KERNEL_INPUT,
                                        dtype, N * Vp, 4.0, 0.0);
  kernel_array *targets =
      kernel_run_add(&run, "targets", KERNEL_INPUT, TRI_DTYPE_I32, N, (double)V, 0.0);
  kernel_array *losses = kernel_run_output(&run, "losses", TRI_DTYPE_F32, V == 0 ? 0 : N, error);
  if (losses != NULL) {
    logits->absolute = (double)scale * error;
    logits->relative = kernel_ulp(dtype);
    for (int64_t n = 2; n < N; n += 3)
      kernel_array_set(targets, n, -1.0);
    // Padding takes no part, whatever is in it: its first column would be seen.
    for (int64_t n = 0; n < N; n++)
      for (int64_t v = V; v < Vp; v++)
        kernel_array_set(logits, n * Vp + v, (v - V) % 2 == 0 ? 1e30 : -1e30);
  }
  for (int side = 0; side < 2; side++) {
    if (!kernel_run_start(&run, side)) break;
    const tri_kernels *table = kernel_table(&run, side);
    tri_stream *stream = kernel_stream(&run, side);
    float *losses_at = kernel_at(losses, side);
    void *logits_at = kernel_at(logits, side);
    const int32_t *targets_at = kernel_at(targets, side);
    kernel_run_finish(&run, side,
                      backward ? table->cross_entropy_backward(stream, losses_at, logits_at,
                                                               targets_at, scale, N, V, Vp, dtype)
                               : table->cross_entropy_forward(stream, losses_at, logits_at,
                                                              targets_at, N, V, Vp, dtype));
  }
  return kernel_run_end(&run);
}

// --- a vocabulary in parts

// Targets are numbers of the whole vocabulary, of n_tokens; every third row is ignored. Padding is
// large: it would be seen.
static void set_targets_and_padding(kernel_array *targets, kernel_array *logits, int64_t N,
                                    int64_t V, int64_t Vp)
{
  for (int64_t n = 2; n < N; n += 3)
    kernel_array_set(targets, n, -1.0);
  for (int64_t n = 0; n < N; n++)
    for (int64_t v = V; v < Vp; v++)
      kernel_array_set(logits, n * Vp + v, (v - V) % 2 == 0 ? 1e30 : -1e30);
}

// A part of V tokens that begins at first_token of FIRST + V + 3.
typedef struct classifier_part {
  int64_t N, V, Vp, first_token;
} classifier_part;

static void part_begin(kernel_run *run, const kernel_comparison *comparison, const char *kernel,
                       classifier_part s, tri_dtype dtype)
{
  kernel_run_begin(run, comparison, "%s N=%lld V=%lld Vp=%lld first_token=%lld %s", kernel,
                   (long long)s.N, (long long)s.V, (long long)s.Vp, (long long)s.first_token,
                   tri_dtype_name(dtype));
}

// The largest logit and the target's are copies; the sum is of positive terms.
static tri_status case_statistics(const kernel_comparison *comparison, classifier_part s,
                                  tri_dtype dtype)
{
  const double n_tokens = (double)(s.first_token + s.V + 3);
  kernel_run run;
  part_begin(&run, comparison, "cross_entropy_statistics", s, dtype);
  kernel_array *logits = kernel_run_add(&run, "logits", KERNEL_INPUT, dtype, s.N * s.Vp, 4.0, 0.0);
  kernel_array *targets =
      kernel_run_add(&run, "targets", KERNEL_INPUT, TRI_DTYPE_I32, s.N, n_tokens, 0.0);
  kernel_array *statistics = kernel_run_output(&run, "statistics", TRI_DTYPE_F32, 3 * s.N, 0.0);
  if (statistics != NULL) {
    statistics->relative = kernel_positive_sum_error(s.V);
    set_targets_and_padding(targets, logits, s.N, s.V, s.Vp);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(
          &run, side,
          kernel_table(&run, side)
              ->cross_entropy_statistics(kernel_stream(&run, side), kernel_at(statistics, side),
                                         kernel_at(logits, side), kernel_at(targets, side), s.N,
                                         s.V, s.Vp, s.first_token, dtype));
  return kernel_run_end(&run);
}

// Largest logits of at most 4, so that no slope is above scale; inverse sums of at most 1.
static tri_status case_gradient(const kernel_comparison *comparison, classifier_part s,
                                tri_dtype dtype)
{
  const float scale = 0.125f;
  const double n_tokens = (double)(s.first_token + s.V + 3);
  kernel_run run;
  part_begin(&run, comparison, "cross_entropy_gradient", s, dtype);
  kernel_array *logits = kernel_run_add(&run, "logits", KERNEL_IN_OUT, dtype, s.N * s.Vp, 4.0, 0.0);
  kernel_array *targets =
      kernel_run_add(&run, "targets", KERNEL_INPUT, TRI_DTYPE_I32, s.N, n_tokens, 0.0);
  kernel_array *softmax =
      kernel_run_add(&run, "softmax", KERNEL_INPUT, TRI_DTYPE_F32, 2 * s.N, 0.49, 0.51);
  if (softmax != NULL) {
    logits->absolute = (double)scale * 32 * 0x1p-24;
    logits->relative = kernel_ulp(dtype);
    set_targets_and_padding(targets, logits, s.N, s.V, s.Vp);
    for (int64_t n = 0; n < s.N; n++)
      kernel_array_set(softmax, 2 * n, 4.0);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(
          &run, side,
          kernel_table(&run, side)
              ->cross_entropy_gradient(kernel_stream(&run, side), kernel_at(logits, side),
                                       kernel_at(softmax, side), kernel_at(targets, side), scale,
                                       s.N, s.V, s.Vp, s.first_token, dtype));
  return kernel_run_end(&run);
}

// Largest logits of at most 4, sums up to 100, one part in five empty. The sum over parts is of
// positive terms; its log is below 8 + log(count), and so is each of the two terms beside it.
static tri_status case_combine(const kernel_comparison *comparison, int64_t count, int64_t N)
{
  const double error = kernel_positive_sum_error(count);
  const double size = 8.0 + log((double)count + 1.0);
  kernel_run run;
  kernel_run_begin(&run, comparison, "cross_entropy_combine count=%lld N=%lld", (long long)count,
                   (long long)N);
  kernel_array *statistics =
      kernel_run_add(&run, "statistics", KERNEL_INPUT, TRI_DTYPE_F32, 3 * count * N, 4.0, 0.0);
  kernel_array *targets = kernel_run_add(&run, "targets", KERNEL_INPUT, TRI_DTYPE_I32, N, 9.0, 0.0);
  const int64_t rows = count == 0 ? 0 : N;
  kernel_array *losses =
      kernel_run_output(&run, "losses", TRI_DTYPE_F32, rows, error + 4 * 0x1p-24 * size);
  kernel_array *softmax = kernel_run_output(&run, "softmax", TRI_DTYPE_F32, 2 * rows, 0.0);
  if (softmax != NULL) {
    softmax->relative = error;
    for (int64_t n = 2; n < N; n += 3)
      kernel_array_set(targets, n, -1.0);
    for (int64_t i = 0; i < count * N; i++) {
      const double sum = 12.0 * fabs(kernel_array_get(statistics, 3 * i + 1)) + 1.0;
      const bool empty = i % 5 == 4 && i / N > 0;
      kernel_array_set(statistics, 3 * i + 1, empty ? 0.0 : sum);
      if (empty) kernel_array_set(statistics, 3 * i, -INFINITY);
      if (empty || i / N != i % N % count) kernel_array_set(statistics, 3 * i + 2, 0.0);
    }
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(
          &run, side,
          kernel_table(&run, side)
              ->cross_entropy_combine(kernel_stream(&run, side), kernel_at(losses, side),
                                      kernel_at(softmax, side), kernel_at(statistics, side),
                                      kernel_at(targets, side), count, N));
  return kernel_run_end(&run);
}

// --- the parts together against the whole: losses and gradients of a row in `count` parts

// Where part k begins: uneven parts, the second of three or four empty.
static int64_t cut(int64_t k, int64_t count, int64_t V)
{
  if (k == count) return V;
  const int64_t from = k == 2 ? 1 : k;
  return V * from * from / (count * count);
}

// The parts of one row lie side by side in it; the last has its padding.
static tri_status run_in_parts(const kernel_side *side, float *losses, float *softmax,
                               float *statistics, char *logits, const int32_t *targets, float scale,
                               const classifier_part *s, int64_t count, tri_dtype dtype)
{
  const int64_t size = (int64_t)tri_dtype_size(dtype);
  for (int64_t n = 0; n < s->N; n++) {
    char *row = logits + n * s->Vp * size;
    float *of_row = statistics + 3 * count * n;
    for (int64_t k = 0; k < count; k++) {
      const int64_t from = cut(k, count, s->V), V = cut(k + 1, count, s->V) - from;
      const int64_t Vp = k + 1 == count ? s->Vp - from : V;
      TRI_CALL(side->kernels->cross_entropy_statistics(
          side->stream, of_row + 3 * k, row + from * size, targets + n, 1, V, Vp, from, dtype));
    }
    TRI_CALL(side->kernels->cross_entropy_combine(side->stream, losses + n, softmax + 2 * n, of_row,
                                                  targets + n, count, 1));
    for (int64_t k = 0; k < count; k++) {
      const int64_t from = cut(k, count, s->V), V = cut(k + 1, count, s->V) - from;
      const int64_t Vp = k + 1 == count ? s->Vp - from : V;
      TRI_CALL(side->kernels->cross_entropy_gradient(side->stream, row + from * size,
                                                     softmax + 2 * n, targets + n, scale, 1, V, Vp,
                                                     from, dtype));
    }
  }
  return TRI_OK;
}

// Besides the error of the whole: the parts' sums are rounded, exp takes them to a common largest,
// and the inverse is rounded once more.
static tri_status case_in_parts(const kernel_comparison *comparison, classifier_part s,
                                int64_t count, tri_dtype dtype)
{
  const float scale = 0.125f;
  const double error = kernel_positive_sum_error(s.V) + kernel_positive_sum_error(count) +
                       4 * 0x1p-24 * (8.0 + log((double)s.V + 1.0));
  kernel_run run;
  part_begin(&run, comparison, "cross_entropy in parts", s, dtype);
  kernel_array *logits = kernel_run_add(&run, "logits", KERNEL_IN_OUT, dtype, s.N * s.Vp, 4.0, 0.0);
  kernel_array *targets =
      kernel_run_add(&run, "targets", KERNEL_INPUT, TRI_DTYPE_I32, s.N, (double)s.V, 0.0);
  kernel_array *statistics =
      kernel_run_output(&run, "statistics", TRI_DTYPE_F32, 3 * count * s.N, INFINITY);
  kernel_array *softmax = kernel_run_output(&run, "softmax", TRI_DTYPE_F32, 2 * s.N, INFINITY);
  kernel_array *losses = kernel_run_output(&run, "losses", TRI_DTYPE_F32, s.N, error);
  if (losses != NULL) {
    logits->absolute = (double)scale * error;
    logits->relative = kernel_ulp(dtype);
    set_targets_and_padding(targets, logits, s.N, s.V, s.Vp);
  }
  for (int side = 0; side < 2; side++) {
    if (!kernel_run_start(&run, side)) break;
    const kernel_side *it = &comparison->sides[side];
    const bool whole = side == 0 && !comparison->same_bits;
    kernel_run_finish(&run, side,
                      whole ? it->kernels->cross_entropy_backward(
                                  it->stream, kernel_at(losses, side), kernel_at(logits, side),
                                  kernel_at(targets, side), scale, s.N, s.V, s.Vp, dtype)
                            : run_in_parts(it, kernel_at(losses, side), kernel_at(softmax, side),
                                           kernel_at(statistics, side), kernel_at(logits, side),
                                           kernel_at(targets, side), scale, &s, count, dtype));
  }
  return kernel_run_end(&run);
}

static tri_status cases_of_parts(const kernel_comparison *comparison, tri_dtype dtype)
{
  static const classifier_part parts[] = {
      {0, 31, 32, 5},      {3, 0, 0, 5},         {4, 0, 8, 5},    {1, 1, 1, 0},
      {5, 31, 32, 31},     {9, 32, 32, 0},       {33, 33, 33, 7}, {4, 257, 264, 257},
      {7, 1000, 1024, 64}, {2, 8000, 8064, 8000}};
  static const classifier_part wholes[] = {
      {1, 1, 1, 0}, {5, 31, 32, 0}, {4, 257, 264, 0}, {3, 1000, 1024, 0}};
  for (size_t s = 0; s < COUNT(parts); s++) {
    TRI_CALL(case_statistics(comparison, parts[s], dtype));
    TRI_CALL(case_gradient(comparison, parts[s], dtype));
  }
  for (size_t s = 0; s < COUNT(wholes); s++)
    for (int64_t count = 1; count <= 4; count++)
      TRI_CALL(case_in_parts(comparison, wholes[s], count, dtype));
  return TRI_OK;
}

tri_status kernel_cases_cross_entropy(const kernel_comparison *comparison)
{
  static const int64_t shapes[][3] = {
      {0, 31, 32},  {3, 0, 0},     {1, 1, 1},      {5, 31, 32},     {9, 32, 32},
      {33, 33, 33}, {4, 257, 264}, {66, 256, 256}, {7, 1000, 1024}, {2, 50257, 50304}};
  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t t = 0; t < COUNT(KERNEL_DTYPES); t++)
      for (int backward = 0; backward < 2; backward++)
        TRI_CALL(case_cross_entropy(comparison, shapes[s][0], shapes[s][1], shapes[s][2],
                                    KERNEL_DTYPES[t], backward == 1));
  for (size_t t = 0; t < COUNT(KERNEL_DTYPES); t++)
    TRI_CALL(cases_of_parts(comparison, KERNEL_DTYPES[t]));
  static const int64_t counts[] = {0, 1, 2, 3, 8}, rows[] = {0, 1, 33, 1000};
  for (size_t c = 0; c < COUNT(counts); c++)
    for (size_t n = 0; n < COUNT(rows); n++)
      TRI_CALL(case_combine(comparison, counts[c], rows[n]));
  return TRI_OK;
}
