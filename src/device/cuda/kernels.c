// The kernel table on a CUDA device: checks, then the launcher of the same name.
#include "device/check.h"
#include "device/cuda/cuda.h"
#include "trireme/device/cuda.h"

// The launch failed, or an earlier call of this thread did and nobody looked.
static tri_status checked(cudaError_t error, const char *kernel)
{
  if (error == cudaSuccess) return TRI_OK;
  return tri_cuda_error_set(error, kernel, __func__, __FILE__, __LINE__);
}

// Kernels go to the thread's current device.
#define LAUNCH(name, ...) \
  do { \
    TRI_CALL(tri_cuda_select(stream->device)); \
    TRI_CALL(checked(tri_launch_##name(tri_cuda_launch(stream), __VA_ARGS__), #name)); \
    return TRI_OK; \
  } while (0)

static tri_status check_types(const char *kernel, int n, const int64_t *sizes, tri_dtype dtype,
                              const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, n, sizes));
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  TRI_CALL(tri_kernel_check_dropout(kernel, dropout));
  return TRI_OK;
}

#define SIZES(...) \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) \
  { \
    __VA_ARGS__ \
  }

// --- elementwise and reductions

static tri_status fill(tri_stream *stream, float *out, float value, int64_t n)
{
  TRI_CALL(tri_kernel_check_sizes("fill", SIZES(n)));
  LAUNCH(fill, out, value, n);
}

static tri_status convert(tri_stream *stream, void *out, tri_dtype out_dtype, const void *x,
                          tri_dtype x_dtype, int64_t n)
{
  TRI_CALL(check_types("convert", SIZES(n), out_dtype, NULL));
  TRI_CALL(tri_kernel_check_dtype("convert", x_dtype));
  LAUNCH(convert, out, out_dtype, x, x_dtype, n);
}

static tri_status add(tri_stream *stream, float *out, const float *a, const float *b, int64_t n)
{
  TRI_CALL(tri_kernel_check_sizes("add", SIZES(n)));
  LAUNCH(add, out, a, b, n);
}

static tri_status sum_squares(tri_stream *stream, double *out, const float *x, int64_t n)
{
  TRI_CALL(tri_kernel_check_sizes("sum_squares", SIZES(n)));
  LAUNCH(sum_squares, out, x, n);
}

static tri_status sum(tri_stream *stream, double *out, const float *x, int64_t n)
{
  TRI_CALL(tri_kernel_check_sizes("sum", SIZES(n)));
  LAUNCH(sum, out, x, n);
}

// --- embedding

static tri_status embedding_forward(tri_stream *stream, void *out, const int32_t *tokens,
                                    const void *wte, const void *wpe, int64_t B, int64_t T,
                                    int64_t C, int64_t first_token, int64_t V,
                                    int64_t first_position, tri_dtype dtype,
                                    const tri_dropout *dropout)
{
  TRI_CALL(
      tri_kernel_check_embedding("embedding_forward", B, T, C, first_token, V, dtype, dropout));
  TRI_CALL(tri_kernel_check_sizes("embedding_forward, first_position", SIZES(first_position)));
  LAUNCH(embedding_forward, out, tokens, wte, wpe, B, T, C, first_token, V, first_position, dtype,
         dropout);
}

static tri_status embedding_backward(tri_stream *stream, float *dwte, float *dwpe, const void *dout,
                                     const int32_t *tokens, int64_t B, int64_t T, int64_t C,
                                     int64_t first_token, int64_t V, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  TRI_CALL(
      tri_kernel_check_embedding("embedding_backward", B, T, C, first_token, V, dtype, dropout));
  LAUNCH(embedding_backward, dwte, dwpe, dout, tokens, B, T, C, first_token, V, dtype, dropout);
}

static tri_status positions_forward(tri_stream *stream, void *out, const void *x, const void *wpe,
                                    int64_t N, int64_t T, int64_t C, int64_t first_position,
                                    tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("positions_forward", N, T, C, dtype, dropout));
  TRI_CALL(tri_kernel_check_sizes("positions_forward, first_position", SIZES(first_position)));
  LAUNCH(positions_forward, out, x, wpe, N, T, C, first_position, dtype, dropout);
}

static tri_status positions_backward(tri_stream *stream, void *dx, float *dwpe, const void *dout,
                                     int64_t N, int64_t T, int64_t C, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("positions_backward", N, T, C, dtype, dropout));
  LAUNCH(positions_backward, dx, dwpe, dout, N, T, C, dtype, dropout);
}

// --- layer norm, residual stream

static tri_status layernorm_forward(tri_stream *stream, void *out, float *mean, float *rstd,
                                    const void *x, const void *w, const void *b, int64_t N,
                                    int64_t C, float eps, tri_dtype dtype)
{
  TRI_CALL(check_types("layernorm_forward", SIZES(N, C), dtype, NULL));
  LAUNCH(layernorm_forward, out, mean, rstd, x, w, b, N, C, eps, dtype);
}

static tri_status layernorm_backward(tri_stream *stream, void *dx, float *dw, float *db,
                                     const void *dout, const void *x, const void *w,
                                     const float *mean, const float *rstd, int64_t N, int64_t C,
                                     tri_dtype dtype)
{
  TRI_CALL(check_types("layernorm_backward", SIZES(N, C), dtype, NULL));
  LAUNCH(layernorm_backward, dx, dw, db, dout, x, w, mean, rstd, N, C, dtype);
}

static tri_status residual_layernorm_forward(tri_stream *stream, void *residual, void *out,
                                             float *mean, float *rstd, const void *x,
                                             const void *delta, const void *w, const void *b,
                                             int64_t N, int64_t T, int64_t C, float eps,
                                             tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("residual_layernorm_forward", N, T, C, dtype, dropout));
  LAUNCH(residual_layernorm_forward, residual, out, mean, rstd, x, delta, w, b, N, T, C, eps, dtype,
         dropout);
}

static tri_status residual_forward(tri_stream *stream, void *out, const void *x, const void *delta,
                                   int64_t N, int64_t T, int64_t C, tri_dtype dtype,
                                   const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("residual_forward", N, T, C, dtype, dropout));
  LAUNCH(residual_forward, out, x, delta, N, T, C, dtype, dropout);
}

static tri_status residual_backward(tri_stream *stream, void *ddelta, const void *dout, int64_t N,
                                    int64_t T, int64_t C, tri_dtype dtype,
                                    const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_rows("residual_backward", N, T, C, dtype, dropout));
  LAUNCH(residual_backward, ddelta, dout, N, T, C, dtype, dropout);
}

// --- attention

static tri_status check_attention(const char *kernel, int64_t B, int64_t T, int64_t H, int64_t D,
                                  tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(check_types(kernel, SIZES(B, T, H, D), dtype, dropout));
  TRI_CHECK(D <= TRI_CUDA_ATTENTION_MAX_HEAD, TRI_ERR_UNSUPPORTED,
            "%s: heads of %lld channels, the CUDA kernels take up to %d: more heads, or device cpu "
            "with cpu.kernels=reference",
            kernel, (long long)D, TRI_CUDA_ATTENTION_MAX_HEAD);
  return TRI_OK;
}

static tri_status attention_forward(tri_stream *stream, void *out, float *lse, const void *qkv,
                                    int64_t B, int64_t T, int64_t H, int64_t D, tri_dtype dtype,
                                    const tri_dropout *dropout)
{
  TRI_CALL(check_attention("attention_forward", B, T, H, D, dtype, dropout));
  LAUNCH(attention_forward, out, lse, qkv, B, T, H, D, dtype, dropout);
}

static tri_status attention_backward(tri_stream *stream, void *dqkv, float *delta, const void *dout,
                                     const void *qkv, const void *out, const float *lse, int64_t B,
                                     int64_t T, int64_t H, int64_t D, tri_dtype dtype,
                                     const tri_dropout *dropout)
{
  TRI_CALL(check_attention("attention_backward", B, T, H, D, dtype, dropout));
  LAUNCH(attention_backward, dqkv, delta, dout, qkv, out, lse, B, T, H, D, dtype, dropout);
}

static tri_status attention_decode(tri_stream *stream, void *out, void *k_cache, void *v_cache,
                                   const void *qkv, int64_t position, int64_t B, int64_t T_max,
                                   int64_t H, int64_t D, tri_dtype dtype)
{
  TRI_CALL(check_attention("attention_decode", B, T_max, H, D, dtype, NULL));
  TRI_CALL(tri_kernel_check_position("attention_decode", position, T_max));
  LAUNCH(attention_decode, out, k_cache, v_cache, qkv, position, B, T_max, H, D, dtype);
}

// --- classifier, optimizer

static tri_status cross_entropy_forward(tri_stream *stream, float *losses, const void *logits,
                                        const int32_t *targets, int64_t N, int64_t V, int64_t Vp,
                                        tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_classifier("cross_entropy_forward", N, V, Vp, dtype));
  LAUNCH(cross_entropy_forward, losses, logits, targets, N, V, Vp, dtype);
}

static tri_status cross_entropy_backward(tri_stream *stream, float *losses, void *logits,
                                         const int32_t *targets, float scale, int64_t N, int64_t V,
                                         int64_t Vp, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_classifier("cross_entropy_backward", N, V, Vp, dtype));
  LAUNCH(cross_entropy_backward, losses, logits, targets, scale, N, V, Vp, dtype);
}

static tri_status cross_entropy_statistics(tri_stream *stream, float *statistics,
                                           const void *logits, const int32_t *targets, int64_t N,
                                           int64_t V, int64_t Vp, int64_t first_token,
                                           tri_dtype dtype)
{
  TRI_CALL(
      tri_kernel_check_classifier_part("cross_entropy_statistics", N, V, Vp, first_token, dtype));
  LAUNCH(cross_entropy_statistics, statistics, logits, targets, N, V, Vp, first_token, dtype);
}

static tri_status cross_entropy_combine(tri_stream *stream, float *losses, float *softmax,
                                        const float *statistics, const int32_t *targets,
                                        int64_t count, int64_t N)
{
  TRI_CALL(tri_kernel_check_sizes("cross_entropy_combine", SIZES(count, N)));
  LAUNCH(cross_entropy_combine, losses, softmax, statistics, targets, count, N);
}

static tri_status cross_entropy_gradient(tri_stream *stream, void *logits, const float *softmax,
                                         const int32_t *targets, float scale, int64_t N, int64_t V,
                                         int64_t Vp, int64_t first_token, tri_dtype dtype)
{
  TRI_CALL(
      tri_kernel_check_classifier_part("cross_entropy_gradient", N, V, Vp, first_token, dtype));
  LAUNCH(cross_entropy_gradient, logits, softmax, targets, scale, N, V, Vp, first_token, dtype);
}

static tri_status adamw(tri_stream *stream, float *p, tri_bf16 *p_bf16, float *m, float *v,
                        const float *g, int64_t n, float lr, float beta1, float beta2, float eps,
                        float weight_decay, float grad_scale, float correction1, float correction2)
{
  TRI_CALL(tri_kernel_check_sizes("adamw", SIZES(n)));
  LAUNCH(adamw, p, p_bf16, m, v, g, n, lr, beta1, beta2, eps, weight_decay, grad_scale, correction1,
         correction2);
}

void tri_cuda_fill_kernels(tri_kernels *table)
{
  *table = (tri_kernels){.fill = fill,
                         .convert = convert,
                         .add = add,
                         .sum_squares = sum_squares,
                         .sum = sum,
                         .embedding_forward = embedding_forward,
                         .embedding_backward = embedding_backward,
                         .positions_forward = positions_forward,
                         .positions_backward = positions_backward,
                         .layernorm_forward = layernorm_forward,
                         .layernorm_backward = layernorm_backward,
                         .residual_layernorm_forward = residual_layernorm_forward,
                         .residual_forward = residual_forward,
                         .residual_backward = residual_backward,
                         .attention_forward = attention_forward,
                         .attention_backward = attention_backward,
                         .attention_decode = attention_decode,
                         .cross_entropy_forward = cross_entropy_forward,
                         .cross_entropy_backward = cross_entropy_backward,
                         .cross_entropy_statistics = cross_entropy_statistics,
                         .cross_entropy_combine = cross_entropy_combine,
                         .cross_entropy_gradient = cross_entropy_gradient,
                         .adamw = adamw};
}
