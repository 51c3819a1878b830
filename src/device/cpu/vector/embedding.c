#include "device/check.h"
#include "device/cpu/vector/dropout.h"
#include "device/cpu/vector/tables.h"

// out[at …] = wte[token …] + wpe[position …], n <= DROPOUT_RUN elements, `first` being the first
// one's number in its sample; `drop` says whether dropout is on.
V_INLINE void sum_run(void *out, int64_t at, const void *wte, int64_t token, const void *wpe,
                      int64_t position, int64_t n, const dropout_mask *mask, int64_t sample,
                      int64_t first, bool drop, tri_dtype dtype)
{
  uint32_t room[DROPOUT_ROOM];
  const uint32_t *words = drop ? dropout_words(mask, sample, first, n, room) : room;
  for (int64_t c = 0; c < n; c += W) {
    vf value = v_load(wte, token + c, n - c, dtype) + v_load(wpe, position + c, n - c, dtype);
    if (drop) value *= dropout_factor_at(mask, words, c);
    v_store(out, at + c, n - c, dtype, value);
  }
}

static tri_status embedding_forward(struct tri_stream *stream, void *out, const int32_t *tokens,
                                    const void *wte, const void *wpe, int64_t B, int64_t T,
                                    int64_t C, int64_t first_position, tri_dtype dtype,
                                    const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_samples("embedding_forward", B, T, C, dtype, dropout));
  TRI_CALL(tri_kernel_check_sizes("embedding_forward, first_position", 1, &first_position));
  const dropout_mask mask = dropout_mask_of(dropout);
  const bool drop = tri_cpu_dropout_is_on(dropout);
#pragma omp parallel for num_threads(v_threads(stream, B *T *C)) schedule(static)
  for (int64_t bt = 0; bt < B * T; bt++) {
    const int64_t b = bt / T, t = bt % T;
    for (int64_t c = 0; c < C; c += DROPOUT_RUN) {
      const int64_t n = C - c < DROPOUT_RUN ? C - c : DROPOUT_RUN;
      const int64_t token = tokens[bt] * C + c, position = (first_position + t) * C + c;
      if (drop) {
        V_BY_DTYPE(dtype, sum_run, out, bt * C + c, wte, token, wpe, position, n, &mask, b,
                   t * C + c, true);
      } else {
        V_BY_DTYPE(dtype, sum_run, out, bt * C + c, wte, token, wpe, position, n, &mask, b,
                   t * C + c, false);
      }
    }
  }
  return TRI_OK;
}

// Adds n <= DROPOUT_RUN elements of dout, from `at` on, to a row of dwte and one of dwpe.
V_INLINE void scatter_run(float *dwte, float *dwpe, const void *dout, int64_t at, int64_t n,
                          const dropout_mask *mask, int64_t sample, int64_t first, bool drop,
                          tri_dtype dtype)
{
  const tri_dtype f32 = TRI_DTYPE_F32;
  uint32_t room[DROPOUT_ROOM];
  const uint32_t *words = drop ? dropout_words(mask, sample, first, n, room) : room;
  for (int64_t c = 0; c < n; c += W) {
    vf value = v_load(dout, at + c, n - c, dtype);
    if (drop) value *= dropout_factor_at(mask, words, c);
    v_store(dwte, c, n - c, f32, v_load(dwte, c, n - c, f32) + value);
    v_store(dwpe, c, n - c, f32, v_load(dwpe, c, n - c, f32) + value);
  }
}

// Columns that one thread adds up at a time: whole cache lines.
enum { COLUMNS = 32 };

// Tokens repeat, so rows cannot be shared out among threads: columns are, and each column adds its
// terms in the order b, t.
static tri_status embedding_backward(struct tri_stream *stream, float *dwte, float *dwpe,
                                     const void *dout, const int32_t *tokens, int64_t B, int64_t T,
                                     int64_t C, tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_samples("embedding_backward", B, T, C, dtype, dropout));
  const dropout_mask mask = dropout_mask_of(dropout);
  const bool drop = tri_cpu_dropout_is_on(dropout);
  if (B == 0 || T == 0 || C == 0) return TRI_OK;
  // The widest strips that occupy every thread: a narrow strip wastes most of each page it touches.
  const int n_threads = v_threads(stream, B * T * C);
  int64_t strip = (C + n_threads - 1) / n_threads;
  strip = (strip + COLUMNS - 1) / COLUMNS * COLUMNS;
  if (strip > DROPOUT_RUN) strip = DROPOUT_RUN;
#pragma omp parallel for num_threads(n_threads) schedule(static)
  for (int64_t c = 0; c < C; c += strip) {
    const int64_t n = C - c < strip ? C - c : strip;
    for (int64_t bt = 0; bt < B * T; bt++) {
      const int64_t b = bt / T, t = bt % T;
      float *to_token = dwte + tokens[bt] * C + c, *to_position = dwpe + t * C + c;
      if (drop) {
        V_BY_DTYPE(dtype, scatter_run, to_token, to_position, dout, bt * C + c, n, &mask, b,
                   t * C + c, true);
      } else {
        V_BY_DTYPE(dtype, scatter_run, to_token, to_position, dout, bt * C + c, n, &mask, b,
                   t * C + c, false);
      }
    }
  }
  return TRI_OK;
}

void TRI_ISA(tri_vector_embedding)(tri_kernels *table)
{
  table->embedding_forward = embedding_forward;
  table->embedding_backward = embedding_backward;
}
