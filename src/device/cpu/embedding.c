#include "device/check.h"
#include "device/cpu/dropout.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

tri_status tri_cpu_embedding_forward(struct tri_stream *stream, void *out, const int32_t *tokens,
                                     const void *wte, const void *wpe, int64_t B, int64_t T,
                                     int64_t C, int64_t first_position, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_samples("embedding_forward", B, T, C, dtype, dropout));
  TRI_CALL(tri_kernel_check_sizes("embedding_forward, first_position", 1, &first_position));
#pragma omp parallel for
  for (int64_t bt = 0; bt < B * T; bt++) {
    const int64_t b = bt / T, t = bt % T;
    for (int64_t c = 0; c < C; c++) {
      const double token = tri_cpu_load(wte, dtype, tokens[bt] * C + c);
      const double position = tri_cpu_load(wpe, dtype, (first_position + t) * C + c);
      const double factor = tri_cpu_dropout_factor(dropout, b, t * C + c);
      tri_cpu_store(out, dtype, bt * C + c, factor * (token + position));
    }
  }
  return TRI_OK;
}

// The sums are in f32, term by term in the order b, t: without V there is no bound on the rows that
// a wider sum would need, and tokens repeat.
tri_status tri_cpu_embedding_backward(struct tri_stream *stream, float *dwte, float *dwpe,
                                      const void *dout, const int32_t *tokens, int64_t B, int64_t T,
                                      int64_t C, tri_dtype dtype, const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_samples("embedding_backward", B, T, C, dtype, dropout));
#pragma omp parallel for
  for (int64_t c = 0; c < C; c++) {
    for (int64_t bt = 0; bt < B * T; bt++) {
      const int64_t b = bt / T, t = bt % T;
      const double factor = tri_cpu_dropout_factor(dropout, b, t * C + c);
      const double term = factor * tri_cpu_load(dout, dtype, bt * C + c);
      float *to_token = &dwte[tokens[bt] * C + c], *to_position = &dwpe[t * C + c];
      *to_token = (float)((double)*to_token + term);
      *to_position = (float)((double)*to_position + term);
    }
  }
  return TRI_OK;
}
