// What the C files of src/device/cuda call in the .cu files: one launcher for each kernel entry.
//
// The contract of each is that of the entry of the same name in trireme/device/kernels.h; the
// caller has checked sizes, types and probabilities. A launcher splits the work, launches on
// `launch->stream`, never synchronizes, never allocates, launches nothing for an empty size (but
// writes what the contract says), and returns what cudaGetLastError said. Kernels that need room
// for partial sums take it from `launch->workspace`, which belongs to the stream: what an earlier
// kernel of the stream left there is dead. No float atomics: every sum has a fixed order, so that a
// repeat has the same bits.
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "trireme/device/kernels.h"

// Scratch of every stream. Kernels split their work so that it is enough.
enum { TRI_CUDA_WORKSPACE_BYTES = 64 << 20 };

typedef struct tri_launch {
  cudaStream_t stream;
  void *workspace;        // device memory, TRI_CUDA_WORKSPACE_BYTES, aligned to 256 bytes
  int compute_capability; // 10 * major + minor: 90 on an H200
} tri_launch;

// --- elementwise.cu
cudaError_t tri_launch_fill(const tri_launch *launch, float *out, float value, int64_t n);
cudaError_t tri_launch_convert(const tri_launch *launch, void *out, tri_dtype out_dtype,
                               const void *x, tri_dtype x_dtype, int64_t n);
cudaError_t tri_launch_add(const tri_launch *launch, float *out, const float *a, const float *b,
                           int64_t n);
cudaError_t tri_launch_sum_squares(const tri_launch *launch, double *out, const float *x,
                                   int64_t n);
cudaError_t tri_launch_sum(const tri_launch *launch, double *out, const float *x, int64_t n);

// --- embedding.cu
cudaError_t tri_launch_embedding_forward(const tri_launch *launch, void *out, const int32_t *tokens,
                                         const void *wte, const void *wpe, int64_t B, int64_t T,
                                         int64_t C, int64_t first_token, int64_t V,
                                         int64_t first_position, tri_dtype dtype,
                                         const tri_dropout *dropout);
cudaError_t tri_launch_embedding_backward(const tri_launch *launch, float *dwte, float *dwpe,
                                          const void *dout, const int32_t *tokens, int64_t B,
                                          int64_t T, int64_t C, int64_t first_token, int64_t V,
                                          tri_dtype dtype, const tri_dropout *dropout);
cudaError_t tri_launch_positions_forward(const tri_launch *launch, void *out, const void *x,
                                         const void *wpe, int64_t N, int64_t T, int64_t C,
                                         int64_t first_position, tri_dtype dtype,
                                         const tri_dropout *dropout);
cudaError_t tri_launch_positions_backward(const tri_launch *launch, void *dx, float *dwpe,
                                          const void *dout, int64_t N, int64_t T, int64_t C,
                                          tri_dtype dtype, const tri_dropout *dropout);

// --- layernorm.cu
cudaError_t tri_launch_layernorm_forward(const tri_launch *launch, void *out, float *mean,
                                         float *rstd, const void *x, const void *w, const void *b,
                                         int64_t N, int64_t C, float eps, tri_dtype dtype);
cudaError_t tri_launch_layernorm_backward(const tri_launch *launch, void *dx, float *dw, float *db,
                                          const void *dout, const void *x, const void *w,
                                          const float *mean, const float *rstd, int64_t N,
                                          int64_t C, tri_dtype dtype);

// --- residual.cu
cudaError_t tri_launch_residual_layernorm_forward(const tri_launch *launch, void *residual,
                                                  void *out, float *mean, float *rstd,
                                                  const void *x, const void *delta, const void *w,
                                                  const void *b, int64_t N, int64_t T, int64_t C,
                                                  float eps, tri_dtype dtype,
                                                  const tri_dropout *dropout);
cudaError_t tri_launch_residual_forward(const tri_launch *launch, void *out, const void *x,
                                        const void *delta, int64_t N, int64_t T, int64_t C,
                                        tri_dtype dtype, const tri_dropout *dropout);
cudaError_t tri_launch_residual_backward(const tri_launch *launch, void *ddelta, const void *dout,
                                         int64_t N, int64_t T, int64_t C, tri_dtype dtype,
                                         const tri_dropout *dropout);

// --- linear.cu: what no epilogue of the matrix product does
// out (N, OC) += bias (NULL: nothing); gelu (N, OC) = GELU(the stored out) unless NULL.
cudaError_t tri_launch_bias_gelu(const tri_launch *launch, void *out, void *gelu, const void *bias,
                                 int64_t N, int64_t OC, tri_dtype dtype);
// dx[i] *= GELU'(pre[i]), n elements.
cudaError_t tri_launch_gelu_backward(const tri_launch *launch, void *dx, const void *pre, int64_t n,
                                     tri_dtype dtype);
// Adds to dbias (OC) f32 the column sums of dout (N, OC).
cudaError_t tri_launch_bias_backward(const tri_launch *launch, float *dbias, const void *dout,
                                     int64_t N, int64_t OC, tri_dtype dtype);

// --- product.cu: linear_* without GELU and without dbias, for what cuBLASLt does not take
cudaError_t tri_launch_product_forward(const tri_launch *launch, void *out, const void *x,
                                       const void *w, const void *bias, int64_t N, int64_t IC,
                                       int64_t OC, tri_dtype dtype);
cudaError_t tri_launch_product_backward_input(const tri_launch *launch, void *dx, const void *dout,
                                              const void *w, int64_t N, int64_t IC, int64_t OC,
                                              tri_dtype dtype);
cudaError_t tri_launch_product_backward_weight(const tri_launch *launch, float *dw,
                                               const void *dout, const void *x, int64_t N,
                                               int64_t IC, int64_t OC, tri_dtype dtype);

// --- attention.cu
// Forward and backward in bf16 use tensor cores where compute_capability >= 80, D is a multiple of
// 8 up to 128, T <= 2^30, and all arrays lie at multiples of 16 bytes. The probabilities and their
// slopes are then rounded to bf16 before they are multiplied; everywhere else, and in decode, all
// products are in f32. The choice depends on nothing else: a repeat has the same bits.
// The widest head (D) that they take: wider ones are cudaErrorInvalidValue.
enum { TRI_CUDA_ATTENTION_MAX_HEAD = 512 };
cudaError_t tri_launch_attention_forward(const tri_launch *launch, void *out, float *lse,
                                         const void *qkv, int64_t B, int64_t T, int64_t H,
                                         int64_t D, tri_dtype dtype, const tri_dropout *dropout);
cudaError_t tri_launch_attention_backward(const tri_launch *launch, void *dqkv, float *delta,
                                          const void *dout, const void *qkv, const void *out,
                                          const float *lse, int64_t B, int64_t T, int64_t H,
                                          int64_t D, tri_dtype dtype, const tri_dropout *dropout);
cudaError_t tri_launch_attention_decode(const tri_launch *launch, void *out, void *k_cache,
                                        void *v_cache, const void *qkv, int64_t position, int64_t B,
                                        int64_t T_max, int64_t H, int64_t D, tri_dtype dtype);

// --- cross_entropy.cu
cudaError_t tri_launch_cross_entropy_forward(const tri_launch *launch, float *losses,
                                             const void *logits, const int32_t *targets, int64_t N,
                                             int64_t V, int64_t Vp, tri_dtype dtype);
cudaError_t tri_launch_cross_entropy_backward(const tri_launch *launch, float *losses, void *logits,
                                              const int32_t *targets, float scale, int64_t N,
                                              int64_t V, int64_t Vp, tri_dtype dtype);
cudaError_t tri_launch_cross_entropy_statistics(const tri_launch *launch, float *statistics,
                                                const void *logits, const int32_t *targets,
                                                int64_t N, int64_t V, int64_t Vp,
                                                int64_t first_token, tri_dtype dtype);
cudaError_t tri_launch_cross_entropy_combine(const tri_launch *launch, float *losses,
                                             float *softmax, const float *statistics,
                                             const int32_t *targets, int64_t count, int64_t N);
cudaError_t tri_launch_cross_entropy_gradient(const tri_launch *launch, void *logits,
                                              const float *softmax, const int32_t *targets,
                                              float scale, int64_t N, int64_t V, int64_t Vp,
                                              int64_t first_token, tri_dtype dtype);

// --- adamw.cu
cudaError_t tri_launch_adamw(const tri_launch *launch, float *p, tri_bf16 *p_bf16, float *m,
                             float *v, const float *g, int64_t n, float lr, float beta1,
                             float beta2, float eps, float weight_decay, float grad_scale,
                             float correction1, float correction2);

#ifdef __cplusplus
}
#endif
