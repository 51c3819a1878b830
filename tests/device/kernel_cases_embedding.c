#include "device/kernel_cases_common.h"

typedef struct embedding_shape {
  int64_t B, T, C, V; // V: of the whole vocabulary
} embedding_shape;

// What a call has of the embedding: a range of the vocabulary, and positions or none.
typedef struct embedding_part {
  int64_t first_token, V;
  bool positions;
} embedding_part;

// Two terms of at most 1 and the dropout factor: four roundings.
static double sum_error(const tri_dropout *dropout)
{
  return 4 * 0x1p-24 * 2 * kernel_keep_scale(dropout);
}

static void embedding_begin(kernel_run *run, const kernel_comparison *comparison,
                            const char *kernel, embedding_shape s, embedding_part part,
                            tri_dtype dtype, const tri_dropout *dropout)
{
  kernel_run_begin(run, comparison, "%s B=%lld T=%lld C=%lld tokens %lld + %lld%s %s p=%g", kernel,
                   (long long)s.B, (long long)s.T, (long long)s.C, (long long)part.first_token,
                   (long long)part.V, part.positions ? "" : " no positions", tri_dtype_name(dtype),
                   (double)dropout->p);
}

static tri_status case_embedding_forward(const kernel_comparison *comparison, embedding_shape s,
                                         embedding_part part, tri_dtype dtype,
                                         const tri_dropout *dropout)
{
  enum { FIRST_POSITION = 3 };
  const int64_t n_positions = (s.T + FIRST_POSITION) * s.C;
  kernel_run run;
  embedding_begin(&run, comparison, "embedding_forward", s, part, dtype, dropout);
  kernel_array *tokens =
      kernel_run_add(&run, "tokens", KERNEL_INPUT, TRI_DTYPE_I32, s.B * s.T, (double)s.V, 0.0);
  kernel_array *wte = kernel_run_add(&run, "wte", KERNEL_INPUT, dtype, part.V * s.C, 1.0, 0.0);
  kernel_array *wpe = part.positions
                          ? kernel_run_add(&run, "wpe", KERNEL_INPUT, dtype, n_positions, 1.0, 0.0)
                          : NULL;
  kernel_array *out = kernel_run_output(&run, "out", dtype, s.B * s.T * s.C, sum_error(dropout));
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->embedding_forward(kernel_stream(&run, side), kernel_at(out, side),
                                                kernel_at(tokens, side), kernel_at(wte, side),
                                                kernel_at(wpe, side), s.B, s.T, s.C,
                                                part.first_token, part.V, FIRST_POSITION, dtype,
                                                dropout));
  return kernel_run_end(&run);
}

// A row of dwte collects at most B T terms, a row of dwpe B.
static tri_status case_embedding_backward(const kernel_comparison *comparison, embedding_shape s,
                                          embedding_part part, tri_dtype dtype,
                                          const tri_dropout *dropout)
{
  const tri_dtype f32 = TRI_DTYPE_F32;
  const double scale = kernel_keep_scale(dropout);
  kernel_run run;
  embedding_begin(&run, comparison, "embedding_backward", s, part, dtype, dropout);
  kernel_array *tokens =
      kernel_run_add(&run, "tokens", KERNEL_INPUT, TRI_DTYPE_I32, s.B * s.T, (double)s.V, 0.0);
  kernel_array *dout = kernel_run_add(&run, "dout", KERNEL_INPUT, dtype, s.B * s.T * s.C, 1.0, 0.0);
  kernel_array *dwte = kernel_run_add(&run, "dwte", KERNEL_IN_OUT, f32, part.V * s.C, 1.0, 0.0);
  kernel_array *dwpe =
      part.positions ? kernel_run_add(&run, "dwpe", KERNEL_IN_OUT, f32, s.T * s.C, 1.0, 0.0) : NULL;
  if (dwte != NULL) dwte->absolute = kernel_sum_error(s.B * s.T, scale);
  if (dwpe != NULL) dwpe->absolute = kernel_sum_error(s.B, scale);
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->embedding_backward(kernel_stream(&run, side), kernel_at(dwte, side),
                                                 kernel_at(dwpe, side), kernel_at(dout, side),
                                                 kernel_at(tokens, side), s.B, s.T, s.C,
                                                 part.first_token, part.V, dtype, dropout));
  return kernel_run_end(&run);
}

// The whole, an inner range, and an empty one; as one call does it all, and as it does tokens
// alone.
static tri_status cases_of_shape(const kernel_comparison *comparison, embedding_shape s,
                                 tri_dtype dtype, const tri_dropout *dropout)
{
  const embedding_part parts[] = {{0, s.V, true}, {s.V / 3, (s.V + 1) / 2, false}, {s.V, 0, false}};
  for (size_t k = 0; k < COUNT(parts); k++) {
    TRI_CALL(case_embedding_forward(comparison, s, parts[k], dtype, dropout));
    TRI_CALL(case_embedding_backward(comparison, s, parts[k], dtype, dropout));
  }
  const embedding_part last = {s.V / 2, s.V - s.V / 2, true};
  TRI_CALL(case_embedding_forward(comparison, s, last, dtype, dropout));
  TRI_CALL(case_embedding_backward(comparison, s, last, dtype, dropout));
  return TRI_OK;
}

// --- positions by themselves, on rows of any part

typedef struct positions_shape {
  int64_t N, T, C;
} positions_shape;

static void positions_begin(kernel_run *run, const kernel_comparison *comparison,
                            const char *kernel, positions_shape s, tri_dtype dtype,
                            const tri_dropout *dropout, bool in_place)
{
  kernel_run_begin(run, comparison, "%s%s N=%lld T=%lld C=%lld %s p=%g first=%lld", kernel,
                   in_place ? " in place" : "", (long long)s.N, (long long)s.T, (long long)s.C,
                   tri_dtype_name(dtype), dropout == NULL ? 0.0 : (double)dropout->p,
                   dropout == NULL ? 0 : (long long)dropout->first);
}

static tri_status case_positions_forward(const kernel_comparison *comparison, positions_shape s,
                                         tri_dtype dtype, const tri_dropout *dropout, bool in_place)
{
  enum { FIRST_POSITION = 2 };
  kernel_run run;
  positions_begin(&run, comparison, "positions_forward", s, dtype, dropout, in_place);
  kernel_array *x =
      kernel_run_add(&run, "x", in_place ? KERNEL_IN_OUT : KERNEL_INPUT, dtype, s.N * s.C, 1.0, 0);
  kernel_array *wpe =
      kernel_run_add(&run, "wpe", KERNEL_INPUT, dtype, (s.T + FIRST_POSITION) * s.C, 1.0, 0.0);
  kernel_array *out = in_place ? x : kernel_run_output(&run, "out", dtype, s.N * s.C, 0.0);
  if (out != NULL) {
    out->absolute = sum_error(dropout);
    out->relative = kernel_ulp(dtype);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->positions_forward(kernel_stream(&run, side), kernel_at(out, side),
                                                kernel_at(x, side), kernel_at(wpe, side), s.N, s.T,
                                                s.C, FIRST_POSITION, dtype, dropout));
  return kernel_run_end(&run);
}

static tri_status case_positions_backward(const kernel_comparison *comparison, positions_shape s,
                                          tri_dtype dtype, const tri_dropout *dropout,
                                          bool in_place)
{
  const double scale = kernel_keep_scale(dropout);
  const int64_t n_terms = s.T == 0 ? 0 : s.N / s.T + 1;
  kernel_run run;
  positions_begin(&run, comparison, "positions_backward", s, dtype, dropout, in_place);
  kernel_array *dout = kernel_run_add(&run, "dout", in_place ? KERNEL_IN_OUT : KERNEL_INPUT, dtype,
                                      s.N * s.C, 1.0, 0.0);
  kernel_array *dwpe =
      kernel_run_add(&run, "dwpe", KERNEL_IN_OUT, TRI_DTYPE_F32, s.T * s.C, 1.0, 0.0);
  kernel_array *dx = in_place ? dout : kernel_run_output(&run, "dx", dtype, s.N * s.C, 0.0);
  if (dx != NULL) {
    dwpe->absolute = kernel_sum_error(n_terms, scale);
    dx->absolute = sum_error(dropout);
    dx->relative = kernel_ulp(dtype);
  }
  for (int side = 0; side < 2; side++)
    if (kernel_run_start(&run, side))
      kernel_run_finish(&run, side,
                        kernel_table(&run, side)
                            ->positions_backward(kernel_stream(&run, side), kernel_at(dx, side),
                                                 kernel_at(dwpe, side), kernel_at(dout, side), s.N,
                                                 s.T, s.C, dtype, dropout));
  return kernel_run_end(&run);
}

static tri_status cases_positions(const kernel_comparison *comparison)
{
  static const positions_shape shapes[] = {{0, 0, 8},   {0, 4, 8},    {4, 4, 0},
                                           {1, 1, 1},   {9, 4, 31},   {5, 33, 48},
                                           {64, 7, 32}, {3, 40, 257}, {70, 33, 16}};
  const tri_dropout dropouts[] = {{.p = 0.0f, .first = 5},
                                  KERNEL_DROPOUTS[1],
                                  {.p = 0.2f, .key = 99, .first_sample = 0xffffffffull, .first = 6},
                                  {.p = 0.2f, .key = 99, .first_sample = 3, .first = 1000003}};
  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t t = 0; t < COUNT(KERNEL_DTYPES); t++)
      for (size_t p = 0; p <= COUNT(dropouts); p++)
        for (int in_place = 0; in_place < 2; in_place++) {
          const tri_dropout *dropout = p < COUNT(dropouts) ? &dropouts[p] : NULL;
          const tri_dtype dtype = KERNEL_DTYPES[t];
          TRI_CALL(case_positions_forward(comparison, shapes[s], dtype, dropout, in_place == 1));
          TRI_CALL(case_positions_backward(comparison, shapes[s], dtype, dropout, in_place == 1));
        }
  return TRI_OK;
}

tri_status kernel_cases_embedding(const kernel_comparison *comparison)
{
  static const embedding_shape shapes[] = {
      {0, 4, 8, 3},   {2, 0, 8, 3},   {2, 4, 0, 3},    {1, 1, 1, 1},     {3, 5, 31, 2},
      {2, 32, 32, 7}, {2, 33, 48, 5}, {2, 7, 257, 11}, {1, 3, 1000, 50}, {3, 100, 16, 3}};
  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t t = 0; t < COUNT(KERNEL_DTYPES); t++)
      for (size_t p = 0; p < COUNT(KERNEL_DROPOUTS); p++)
        TRI_CALL(cases_of_shape(comparison, shapes[s], KERNEL_DTYPES[t], &KERNEL_DROPOUTS[p]));
  return cases_positions(comparison);
}
