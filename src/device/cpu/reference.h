// The plain kernels, the specification that every tuned entry is tested against. Contracts:
// trireme/device/kernels.h.
//
// They sum in double, in the order of the indices, and round once when they store. Threads share
// out whole rows or columns of outputs, never the terms of one sum, so their number changes no bit.
#pragma once

#include "trireme/device/kernels.h"

tri_status tri_cpu_fill(struct tri_stream *stream, float *out, float value, int64_t n);
tri_status tri_cpu_convert(struct tri_stream *stream, void *out, tri_dtype out_dtype, const void *x,
                           tri_dtype x_dtype, int64_t n);
tri_status tri_cpu_add(struct tri_stream *stream, float *out, const float *a, const float *b,
                       int64_t n);
tri_status tri_cpu_sum_squares(struct tri_stream *stream, double *out, const float *x, int64_t n);
tri_status tri_cpu_sum(struct tri_stream *stream, double *out, const float *x, int64_t n);

tri_status tri_cpu_embedding_forward(struct tri_stream *stream, void *out, const int32_t *tokens,
                                     const void *wte, const void *wpe, int64_t B, int64_t T,
                                     int64_t C, int64_t first_token, int64_t V,
                                     int64_t first_position, tri_dtype dtype,
                                     const tri_dropout *dropout);
tri_status tri_cpu_embedding_backward(struct tri_stream *stream, float *dwte, float *dwpe,
                                      const void *dout, const int32_t *tokens, int64_t B, int64_t T,
                                      int64_t C, int64_t first_token, int64_t V, tri_dtype dtype,
                                      const tri_dropout *dropout);
tri_status tri_cpu_positions_forward(struct tri_stream *stream, void *out, const void *x,
                                     const void *wpe, int64_t N, int64_t T, int64_t C,
                                     int64_t first_position, tri_dtype dtype,
                                     const tri_dropout *dropout);
tri_status tri_cpu_positions_backward(struct tri_stream *stream, void *dx, float *dwpe,
                                      const void *dout, int64_t N, int64_t T, int64_t C,
                                      tri_dtype dtype, const tri_dropout *dropout);

tri_status tri_cpu_layernorm_forward(struct tri_stream *stream, void *out, float *mean, float *rstd,
                                     const void *x, const void *w, const void *b, int64_t N,
                                     int64_t C, float eps, tri_dtype dtype);
tri_status tri_cpu_layernorm_backward(struct tri_stream *stream, void *dx, float *dw, float *db,
                                      const void *dout, const void *x, const void *w,
                                      const float *mean, const float *rstd, int64_t N, int64_t C,
                                      tri_dtype dtype);

tri_status tri_cpu_residual_layernorm_forward(struct tri_stream *stream, void *residual, void *out,
                                              float *mean, float *rstd, const void *x,
                                              const void *delta, const void *w, const void *b,
                                              int64_t N, int64_t T, int64_t C, float eps,
                                              tri_dtype dtype, const tri_dropout *dropout);
tri_status tri_cpu_residual_forward(struct tri_stream *stream, void *out, const void *x,
                                    const void *delta, int64_t N, int64_t T, int64_t C,
                                    tri_dtype dtype, const tri_dropout *dropout);
tri_status tri_cpu_residual_backward(struct tri_stream *stream, void *ddelta, const void *dout,
                                     int64_t N, int64_t T, int64_t C, tri_dtype dtype,
                                     const tri_dropout *dropout);

tri_status tri_cpu_linear_prepare(struct tri_stream *stream, int64_t N, int64_t IC, int64_t OC,
                                  tri_dtype dtype);
tri_status tri_cpu_linear_forward(struct tri_stream *stream, void *out, void *gelu, const void *x,
                                  const void *w, const void *bias, int64_t N, int64_t IC,
                                  int64_t OC, tri_dtype dtype);
tri_status tri_cpu_linear_backward_input(struct tri_stream *stream, void *dx, const void *dout,
                                         const void *w, const void *pre, int64_t N, int64_t IC,
                                         int64_t OC, tri_dtype dtype);
tri_status tri_cpu_linear_backward_weight(struct tri_stream *stream, float *dw, float *dbias,
                                          const void *dout, const void *x, int64_t N, int64_t IC,
                                          int64_t OC, tri_dtype dtype);

tri_status tri_cpu_attention_forward(struct tri_stream *stream, void *out, float *lse,
                                     const void *qkv, int64_t B, int64_t T, int64_t H, int64_t D,
                                     tri_dtype dtype, const tri_dropout *dropout);
tri_status tri_cpu_attention_backward(struct tri_stream *stream, void *dqkv, float *delta,
                                      const void *dout, const void *qkv, const void *out,
                                      const float *lse, int64_t B, int64_t T, int64_t H, int64_t D,
                                      tri_dtype dtype, const tri_dropout *dropout);
tri_status tri_cpu_attention_decode(struct tri_stream *stream, void *out, void *k_cache,
                                    void *v_cache, const void *qkv, int64_t position, int64_t B,
                                    int64_t T_max, int64_t H, int64_t D, tri_dtype dtype);

tri_status tri_cpu_cross_entropy_forward(struct tri_stream *stream, float *losses,
                                         const void *logits, const int32_t *targets, int64_t N,
                                         int64_t V, int64_t Vp, tri_dtype dtype);
tri_status tri_cpu_cross_entropy_backward(struct tri_stream *stream, float *losses, void *logits,
                                          const int32_t *targets, float scale, int64_t N, int64_t V,
                                          int64_t Vp, tri_dtype dtype);

tri_status tri_cpu_cross_entropy_statistics(struct tri_stream *stream, float *statistics,
                                            const void *logits, const int32_t *targets, int64_t N,
                                            int64_t V, int64_t Vp, int64_t first_token,
                                            tri_dtype dtype);
tri_status tri_cpu_cross_entropy_combine(struct tri_stream *stream, float *losses, float *softmax,
                                         const float *statistics, const int32_t *targets,
                                         int64_t count, int64_t N);
tri_status tri_cpu_cross_entropy_gradient(struct tri_stream *stream, void *logits,
                                          const float *softmax, const int32_t *targets, float scale,
                                          int64_t N, int64_t V, int64_t Vp, int64_t first_token,
                                          tri_dtype dtype);

tri_status tri_cpu_adamw(struct tri_stream *stream, float *p, tri_bf16 *p_bf16, float *m, float *v,
                         const float *g, int64_t n, float lr, float beta1, float beta2, float eps,
                         float weight_decay, float grad_scale, float correction1,
                         float correction2);
