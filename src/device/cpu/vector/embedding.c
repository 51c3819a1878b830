#include "device/check.h"
#include "device/cpu/vector/dropout.h"
#include "device/cpu/vector/tables.h"

// out[at …] = a[a_at …] + b[b_at …], n <= DROPOUT_RUN elements, `first` being the first one's
// number in its sample; `drop` says whether dropout is on. a or b NULL: zeros.
V_INLINE void sum_run(void *out, int64_t at, const void *a, int64_t a_at, const void *b,
                      int64_t b_at, int64_t n, const dropout_mask *mask, int64_t sample,
                      int64_t first, bool drop, tri_dtype dtype)
{
  uint32_t room[DROPOUT_ROOM];
  const uint32_t *words = drop ? dropout_words(mask, sample, first, n, room) : room;
  for (int64_t c = 0; c < n; c += W) {
    vf value = {0};
    if (a != NULL) value = v_load(a, a_at + c, n - c, dtype);
    if (b != NULL) value += v_load(b, b_at + c, n - c, dtype);
    if (drop) value *= dropout_factor_at(mask, words, c);
    v_store(out, at + c, n - c, dtype, value);
  }
}

// Row `to` of out = dropout(row a_row of a + row b_row of b), row t of its sample.
V_INLINE void sum_rows(void *out, int64_t to, const void *a, int64_t a_row, const void *b,
                       int64_t b_row, int64_t C, const dropout_mask *mask, int64_t sample,
                       int64_t t, tri_dtype dtype)
{
  for (int64_t c = 0; c < C; c += DROPOUT_RUN) {
    const int64_t n = C - c < DROPOUT_RUN ? C - c : DROPOUT_RUN;
    const int64_t at = to * C + c, a_at = a_row * C + c, b_at = b_row * C + c;
    if (mask->threshold > 0) {
      sum_run(out, at, a, a_at, b, b_at, n, mask, sample, t * C + c, true, dtype);
    } else {
      sum_run(out, at, a, a_at, b, b_at, n, mask, sample, t * C + c, false, dtype);
    }
  }
}

static tri_status embedding_forward(struct tri_stream *stream, void *out, const int32_t *tokens,
                                    const void *wte, const void *wpe, int64_t B, int64_t T,
                                    int64_t C, int64_t first_token, int64_t V,
                                    int64_t first_position, tri_dtype dtype,
                                    const tri_dropout *dropout)
{
  TRI_CALL(
      tri_kernel_check_embedding("embedding_forward", B, T, C, first_token, V, dtype, dropout));
  TRI_CALL(tri_kernel_check_sizes("embedding_forward, first_position", 1, &first_position));
  const dropout_mask mask = dropout_mask_of(dropout);
#pragma omp parallel for num_threads(v_threads(stream, B *T *C)) schedule(static)
  for (int64_t bt = 0; bt < B * T; bt++) {
    const int64_t token = tokens[bt] - first_token;
    const void *held = token >= 0 && token < V ? wte : NULL;
    V_BY_DTYPE(dtype, sum_rows, out, bt, held, token, wpe, first_position + bt % T, C, &mask,
               bt / T, bt % T);
  }
  return TRI_OK;
}

static tri_status positions_forward(struct tri_stream *stream, void *out, const void *x,
                                    const void *wpe, int64_t N, int64_t T, int64_t C,
                                    int64_t first_position, tri_dtype dtype,
                                    const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("positions_forward", N, T, C, dtype, dropout));
  TRI_CALL(tri_kernel_check_sizes("positions_forward, first_position", 1, &first_position));
  const dropout_mask mask = dropout_mask_of(dropout);
#pragma omp parallel for num_threads(v_threads(stream, N *C)) schedule(static)
  for (int64_t n = 0; n < N; n++) {
    const int64_t row = mask.first + n;
    V_BY_DTYPE(dtype, sum_rows, out, n, x, n, wpe, first_position + row % T, C, &mask, row / T,
               row % T);
  }
  return TRI_OK;
}

// Where the gradient of a run of elements goes: rows of dwte and dwpe that it is added to, and
// elements of dx that it replaces. NULL: not there.
typedef struct run_sinks {
  float *dwte, *dwpe;
  void *dx;
} run_sinks;

// n <= DROPOUT_RUN elements of dout, from `at` on; those of dx are at the same place.
V_INLINE void scatter_run(run_sinks to, const void *dout, int64_t at, int64_t n,
                          const dropout_mask *mask, int64_t sample, int64_t first, bool drop,
                          tri_dtype dtype)
{
  const tri_dtype f32 = TRI_DTYPE_F32;
  uint32_t room[DROPOUT_ROOM];
  const uint32_t *words = drop ? dropout_words(mask, sample, first, n, room) : room;
  for (int64_t c = 0; c < n; c += W) {
    vf value = v_load(dout, at + c, n - c, dtype);
    if (drop) value *= dropout_factor_at(mask, words, c);
    if (to.dwte != NULL) v_store(to.dwte, c, n - c, f32, v_load(to.dwte, c, n - c, f32) + value);
    if (to.dwpe != NULL) v_store(to.dwpe, c, n - c, f32, v_load(to.dwpe, c, n - c, f32) + value);
    if (to.dx != NULL) v_store(to.dx, at + c, n - c, dtype, value);
  }
}

V_INLINE void scatter(run_sinks to, const void *dout, int64_t at, int64_t n,
                      const dropout_mask *mask, int64_t sample, int64_t first, tri_dtype dtype)
{
  if (mask->threshold > 0) {
    scatter_run(to, dout, at, n, mask, sample, first, true, dtype);
  } else {
    scatter_run(to, dout, at, n, mask, sample, first, false, dtype);
  }
}

// Columns that one thread adds up at a time: whole cache lines, and the widest strips that occupy
// every thread: a narrow strip wastes most of each page it touches.
enum { COLUMNS = 32 };

static int64_t strip_of(int64_t C, int n_threads)
{
  const int64_t share = (C + n_threads - 1) / n_threads;
  const int64_t strip = (share + COLUMNS - 1) / COLUMNS * COLUMNS;
  return strip < DROPOUT_RUN ? strip : DROPOUT_RUN;
}

// Tokens repeat, so rows cannot be shared out among threads: columns are, and each column adds its
// terms in the order b, t.
static tri_status embedding_backward(struct tri_stream *stream, float *dwte, float *dwpe,
                                     const void *dout, const int32_t *tokens, int64_t B, int64_t T,
                                     int64_t C, int64_t first_token, int64_t V, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  TRI_CALL(
      tri_kernel_check_embedding("embedding_backward", B, T, C, first_token, V, dtype, dropout));
  const dropout_mask mask = dropout_mask_of(dropout);
  if (B == 0 || T == 0 || C == 0) return TRI_OK;
  const int n_threads = v_threads(stream, B * T * C);
  const int64_t strip = strip_of(C, n_threads);
#pragma omp parallel for num_threads(n_threads) schedule(static)
  for (int64_t c = 0; c < C; c += strip) {
    const int64_t n = C - c < strip ? C - c : strip;
    for (int64_t bt = 0; bt < B * T; bt++) {
      const int64_t b = bt / T, t = bt % T, token = tokens[bt] - first_token;
      const run_sinks to = {.dwte = token >= 0 && token < V ? dwte + token * C + c : NULL,
                            .dwpe = dwpe == NULL ? NULL : dwpe + t * C + c};
      if (to.dwte == NULL && to.dwpe == NULL) continue;
      V_BY_DTYPE(dtype, scatter, to, dout, bt * C + c, n, &mask, b, t * C + c);
    }
  }
  return TRI_OK;
}

static tri_status positions_backward(struct tri_stream *stream, void *dx, float *dwpe,
                                     const void *dout, int64_t N, int64_t T, int64_t C,
                                     tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("positions_backward", N, T, C, dtype, dropout));
  const dropout_mask mask = dropout_mask_of(dropout);
  if (N == 0 || C == 0) return TRI_OK;
  const bool copies = dx != dout || mask.threshold > 0;
  const int n_threads = v_threads(stream, N * C);
  const int64_t strip = strip_of(C, n_threads);
#pragma omp parallel for num_threads(n_threads) schedule(static)
  for (int64_t c = 0; c < C; c += strip) {
    const int64_t n_columns = C - c < strip ? C - c : strip;
    for (int64_t n = 0; n < N; n++) {
      const int64_t row = mask.first + n, t = row % T;
      const run_sinks to = {.dwpe = dwpe + t * C + c, .dx = copies ? dx : NULL};
      V_BY_DTYPE(dtype, scatter, to, dout, n * C + c, n_columns, &mask, row / T, t * C + c);
    }
  }
  return TRI_OK;
}

void TRI_ISA(tri_vector_embedding)(tri_kernels *table)
{
  table->embedding_forward = embedding_forward;
  table->embedding_backward = embedding_backward;
  table->positions_forward = positions_forward;
  table->positions_backward = positions_backward;
}
