#include "device/check.h"
#include "device/cpu/dropout.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

tri_status tri_cpu_embedding_forward(struct tri_stream *stream, void *out, const int32_t *tokens,
                                     const void *wte, const void *wpe, int64_t B, int64_t T,
                                     int64_t C, int64_t first_token, int64_t V,
                                     int64_t first_position, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(
      tri_kernel_check_embedding("embedding_forward", B, T, C, first_token, V, dtype, dropout));
  TRI_CALL(tri_kernel_check_sizes("embedding_forward, first_position", 1, &first_position));
#pragma omp parallel for
  for (int64_t bt = 0; bt < B * T; bt++) {
    const int64_t b = bt / T, t = bt % T, row = tokens[bt] - first_token;
    for (int64_t c = 0; c < C; c++) {
      const double token = row >= 0 && row < V ? tri_cpu_load(wte, dtype, row * C + c) : 0.0;
      const double position =
          wpe == NULL ? 0.0 : tri_cpu_load(wpe, dtype, (first_position + t) * C + c);
      const double factor = tri_cpu_dropout_factor(dropout, b, t * C + c);
      tri_cpu_store(out, dtype, bt * C + c, factor * (token + position));
    }
  }
  return TRI_OK;
}

// The sums are in f32, term by term in the order b, t: a wider sum would need room for every row,
// and tokens repeat.
tri_status tri_cpu_embedding_backward(struct tri_stream *stream, float *dwte, float *dwpe,
                                      const void *dout, const int32_t *tokens, int64_t B, int64_t T,
                                      int64_t C, int64_t first_token, int64_t V, tri_dtype dtype,
                                      const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(
      tri_kernel_check_embedding("embedding_backward", B, T, C, first_token, V, dtype, dropout));
#pragma omp parallel for
  for (int64_t c = 0; c < C; c++) {
    for (int64_t bt = 0; bt < B * T; bt++) {
      const int64_t b = bt / T, t = bt % T, row = tokens[bt] - first_token;
      const double factor = tri_cpu_dropout_factor(dropout, b, t * C + c);
      const double term = factor * tri_cpu_load(dout, dtype, bt * C + c);
      float *to_token = row >= 0 && row < V ? &dwte[row * C + c] : NULL;
      float *to_position = dwpe == NULL ? NULL : &dwpe[t * C + c];
      if (to_token != NULL) *to_token = (float)((double)*to_token + term);
      if (to_position != NULL) *to_position = (float)((double)*to_position + term);
    }
  }
  return TRI_OK;
}

tri_status tri_cpu_positions_forward(struct tri_stream *stream, void *out, const void *x,
                                     const void *wpe, int64_t N, int64_t T, int64_t C,
                                     int64_t first_position, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_rows("positions_forward", N, T, C, dtype, dropout));
  TRI_CALL(tri_kernel_check_sizes("positions_forward, first_position", 1, &first_position));
  const int64_t first = tri_cpu_dropout_first(dropout);
#pragma omp parallel for
  for (int64_t n = 0; n < N; n++) {
    const int64_t t = (first + n) % T;
    for (int64_t c = 0; c < C; c++) {
      const double token = tri_cpu_load(x, dtype, n * C + c);
      const double position = tri_cpu_load(wpe, dtype, (first_position + t) * C + c);
      const double factor = tri_cpu_dropout_row_factor(dropout, n, T, C, c);
      tri_cpu_store(out, dtype, n * C + c, factor * (token + position));
    }
  }
  return TRI_OK;
}

tri_status tri_cpu_positions_backward(struct tri_stream *stream, void *dx, float *dwpe,
                                      const void *dout, int64_t N, int64_t T, int64_t C,
                                      tri_dtype dtype, const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_rows("positions_backward", N, T, C, dtype, dropout));
  const int64_t first = tri_cpu_dropout_first(dropout);
#pragma omp parallel for
  for (int64_t c = 0; c < C; c++) {
    for (int64_t n = 0; n < N; n++) {
      const double factor = tri_cpu_dropout_row_factor(dropout, n, T, C, c);
      const double term = factor * tri_cpu_load(dout, dtype, n * C + c);
      float *to_position = &dwpe[(first + n) % T * C + c];
      *to_position = (float)((double)*to_position + term);
      tri_cpu_store(dx, dtype, n * C + c, term);
    }
  }
  return TRI_OK;
}
