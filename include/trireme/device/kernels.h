// The kernel table: every numerical operation a device offers, with its contract. The only place
// where they are documented.
//
// Conventions
// - All pointers are device pointers unless a name says host. Arrays are packed row-major, last
// axis fastest.
// - `dtype` is the storage type of every `void *` array of a call: TRI_DTYPE_F32 or TRI_DTYPE_BF16.
// Sums are taken in
//   f32 or wider (the CPU reference in double), and rounded once when stored.
// - "writes" replaces the output; "adds" does out = out + value.
// - A result depends only on the arguments: not on the number of threads, the number of repeats or
// what ran before. (But for linear_* of the CPU's "onednn" kernels: they may depend on the number
// of threads.)
// - Outputs do not alias inputs unless the entry says so. Any size may be 0: then nothing is read
// or written.
// - Kernels never allocate (but see linear_prepare) and never synchronize.
// - Errors: TRI_ERR_ARGUMENT for sizes or types out of the stated range, checked before anything is
// queued.
#pragma once

#include <stdint.h>

#include "trireme/base/status.h"
#include "trireme/tensor/dtype.h"

struct tri_stream;

// Dropout by global position: an element is dropped when its random number is below p, else scaled
// by 1 / (1 - p). The number of element e of sample s: word e % 4 of Philox(key, {e/4 low, e/4
// high, (first_sample + s) low, (…) high}), dropped when that word < floor(p * 2^32). NULL or p ==
// 0: no dropout.
//
// A call may be a part of the micro-batch's work, and `first` says which: row n of a call on rows
// of C elements, T of them to a sample, is row r = first + n of the micro-batch, its sample s is
// r / T, its elements are r % T * C + c. Head h of a call on heads is head first + h of the layer,
// its elements are ((first + h) * T + t_query) * T + t_key. So no way of sharing rows or heads out
// moves a mask.
typedef struct tri_dropout {
  float p;               // 0 <= p < 1
  uint64_t key;          // tri_random_key(seed, name of the site)
  uint64_t first_sample; // ordinal in the whole run of the first sample of this micro-batch
  int64_t first;         // number of the call's first row in the micro-batch, or of its first head
                         // in the layer: 0 for a call on all of them; >= 0
} tri_dropout;

// The elements that one partial sum of sum_squares covers. Shards of flat parameter space begin at
// multiples of it, so that a norm does not depend on who owns what.
enum { TRI_NORM_CHUNK = 4096 };

typedef struct tri_kernels {
  // --- elementwise and reductions
  // -------------------------------------------------------------------------------

  // out[i] = value, n elements.
  tri_status (*fill)(struct tri_stream *stream, float *out, float value, int64_t n);

  // out[i] = (out_dtype)x[i]: between f32 and bf16, round to nearest even.
  tri_status (*convert)(struct tri_stream *stream, void *out, tri_dtype out_dtype, const void *x,
                        tri_dtype x_dtype, int64_t n);

  // out[i] = a[i] + b[i] in f32. out may be a or b.
  tri_status (*add)(struct tri_stream *stream, float *out, const float *a, const float *b,
                    int64_t n);

  // out[k] = sum of x[i]^2 over the k-th chunk of TRI_NORM_CHUNK elements, in double, in a fixed
  // order; ceil(n / TRI_NORM_CHUNK) numbers written.
  tri_status (*sum_squares)(struct tri_stream *stream, double *out, const float *x, int64_t n);

  // out[0] = sum of x[i] in double in a fixed order; writes 0 when n == 0.
  tri_status (*sum)(struct tri_stream *stream, double *out, const float *x, int64_t n);

  // --- embedding
  // ------------------------------------------------------------------------------------------------

  // out (B, T, C) = dropout(wte[tokens[b, t] - first_token] + wpe[first_position + t]). wte (V, C)
  // holds the tokens first_token … first_token + V - 1 of the vocabulary; one outside counts as
  // zeros, so that the sum over ranges that make up the vocabulary is that of the whole, bit by
  // bit. wpe NULL: no positions are added. Of whole samples: dropout->first is 0 here and in the
  // backward call.
  tri_status (*embedding_forward)(struct tri_stream *stream, void *out, const int32_t *tokens,
                                  const void *wte, const void *wpe, int64_t B, int64_t T, int64_t C,
                                  int64_t first_token, int64_t V, int64_t first_position,
                                  tri_dtype dtype, const tri_dropout *dropout);

  // Adds to dwte (V, C) and dwpe (T, C; NULL: none), both f32, in the order b, t: deterministic
  // whatever tokens repeat. Tokens outside first_token … first_token + V - 1 add to dwpe alone.
  // dout (B, T, C).
  tri_status (*embedding_backward)(struct tri_stream *stream, float *dwte, float *dwpe,
                                   const void *dout, const int32_t *tokens, int64_t B, int64_t T,
                                   int64_t C, int64_t first_token, int64_t V, tri_dtype dtype,
                                   const tri_dropout *dropout);

  // What embedding_forward does after the tokens' rows, on any N rows of the micro-batch, T of its
  // rows to a sample (T >= 1 unless N is 0): out (N, C) = dropout(x + wpe[first_position + t]), of
  // row n t = (first + n) % T with the `first` of dropout (whose p may be 0; NULL: 0). out may be
  // x.
  tri_status (*positions_forward)(struct tri_stream *stream, void *out, const void *x,
                                  const void *wpe, int64_t N, int64_t T, int64_t C,
                                  int64_t first_position, tri_dtype dtype,
                                  const tri_dropout *dropout);

  // Writes dx (N, C) = dout through the dropout, and adds the same, unrounded, to dwpe (T, C) f32,
  // of row n to row (first + n) % T, in the order of the rows. dx may be dout.
  tri_status (*positions_backward)(struct tri_stream *stream, void *dx, float *dwpe,
                                   const void *dout, int64_t N, int64_t T, int64_t C,
                                   tri_dtype dtype, const tri_dropout *dropout);

  // --- layer norm (Ba et al. 2016), residual stream
  // -------------------------------------------------------------

  // out (N, C) = (x - mean) * rstd * w + b; writes mean (N), rstd (N) in f32; rstd = 1 / sqrt(var +
  // eps), biased var.
  tri_status (*layernorm_forward)(struct tri_stream *stream, void *out, float *mean, float *rstd,
                                  const void *x, const void *w, const void *b, int64_t N, int64_t C,
                                  float eps, tri_dtype dtype);

  // residual (N, C) = x + dropout(delta), then out = layernorm(residual) as above. The norm is of
  // the stored (rounded) residual. Here and below: any N rows of the micro-batch, T of its rows to
  // a sample; T >= 1 unless N is 0.
  tri_status (*residual_layernorm_forward)(struct tri_stream *stream, void *residual, void *out,
                                           float *mean, float *rstd, const void *x,
                                           const void *delta, const void *w, const void *b,
                                           int64_t N, int64_t T, int64_t C, float eps,
                                           tri_dtype dtype, const tri_dropout *dropout);

  // out (N, C) = x + dropout(delta). out may be x.
  tri_status (*residual_forward)(struct tri_stream *stream, void *out, const void *x,
                                 const void *delta, int64_t N, int64_t T, int64_t C,
                                 tri_dtype dtype, const tri_dropout *dropout);

  // ddelta (N, C) = dout through the dropout of delta. ddelta may be dout.
  tri_status (*residual_backward)(struct tri_stream *stream, void *ddelta, const void *dout,
                                  int64_t N, int64_t T, int64_t C, tri_dtype dtype,
                                  const tri_dropout *dropout);

  // Adds to dx (N, C), dw (C) f32 and db (C) f32. x is the input of the forward call. Sums over N
  // in a fixed order.
  tri_status (*layernorm_backward)(struct tri_stream *stream, void *dx, float *dw, float *db,
                                   const void *dout, const void *x, const void *w,
                                   const float *mean, const float *rstd, int64_t N, int64_t C,
                                   tri_dtype dtype);

  // --- linear
  // ---------------------------------------------------------------------------------------------------
  // x (N, IC), w (OC, IC), bias (OC), out (N, OC).

  // Plans the three calls below for one shape, so that none of them allocates later. Optional but
  // for the promise of no allocation in a step: a call of an unplanned shape plans it. This entry
  // may allocate and is not queued.
  tri_status (*linear_prepare)(struct tri_stream *stream, int64_t N, int64_t IC, int64_t OC,
                               tri_dtype dtype);

  // out = x w^T + bias (bias NULL: none). When gelu is not NULL also gelu (N, OC) = GELU(out) of
  // the stored out, with the tanh form 0.5 y (1 + tanh(sqrt(2/pi) (y + 0.044715 y^3))) (Hendrycks
  // and Gimpel 2016, section 2).
  tri_status (*linear_forward)(struct tri_stream *stream, void *out, void *gelu, const void *x,
                               const void *w, const void *bias, int64_t N, int64_t IC, int64_t OC,
                               tri_dtype dtype);

  // Writes dx (N, IC) = dout w; when pre (N, IC) is not NULL: times GELU'(pre), pre being the `out`
  // of the linear before.
  tri_status (*linear_backward_input)(struct tri_stream *stream, void *dx, const void *dout,
                                      const void *w, const void *pre, int64_t N, int64_t IC,
                                      int64_t OC, tri_dtype dtype);

  // Adds to dw (OC, IC) f32 = dout^T x and dbias (OC) f32 = column sums of dout (dbias NULL: none).
  tri_status (*linear_backward_weight)(struct tri_stream *stream, float *dw, float *dbias,
                                       const void *dout, const void *x, int64_t N, int64_t IC,
                                       int64_t OC, tri_dtype dtype);

  // --- causal self-attention
  // ------------------------------------------------------------------------------------ qkv (B, T,
  // 3, H, D): queries, keys, values side by side as one linear layer writes them; scale 1 /
  // sqrt(D). The tuned CPU entries take D up to 512.

  // out (B, T, H, D) = softmax(mask(q k^T / sqrt(D))) v with dropout on the probabilities; lse (B,
  // H, T) f32 = log of the sum of exp of the scaled scores. The tuned entries never store (T, T)
  // (Dao et al. 2022).
  tri_status (*attention_forward)(struct tri_stream *stream, void *out, float *lse, const void *qkv,
                                  int64_t B, int64_t T, int64_t H, int64_t D, tri_dtype dtype,
                                  const tri_dropout *dropout);

  // Writes dqkv (B, T, 3, H, D). delta (B, H, T) f32 is scratch. out and lse are the forward
  // call's.
  tri_status (*attention_backward)(struct tri_stream *stream, void *dqkv, float *delta,
                                   const void *dout, const void *qkv, const void *out,
                                   const float *lse, int64_t B, int64_t T, int64_t H, int64_t D,
                                   tri_dtype dtype, const tri_dropout *dropout);

  // One new position of each sequence: stores k, v of qkv (B, 3, H, D) at `position` of the caches
  // (B, T_max, H, D) and writes out (B, H, D) attending to positions 0 .. position. 0 <= position <
  // T_max.
  tri_status (*attention_decode)(struct tri_stream *stream, void *out, void *k_cache, void *v_cache,
                                 const void *qkv, int64_t position, int64_t B, int64_t T_max,
                                 int64_t H, int64_t D, tri_dtype dtype);

  // --- classifier
  // -----------------------------------------------------------------------------------------------

  // losses (N) f32 = -log softmax(logits[:, :V])[target], 0 where target == -1 (ignored). logits
  // (N, Vp), V <= Vp: columns V .. Vp - 1 are padding and take no part.
  tri_status (*cross_entropy_forward)(struct tri_stream *stream, float *losses, const void *logits,
                                      const int32_t *targets, int64_t N, int64_t V, int64_t Vp,
                                      tri_dtype dtype);

  // The same, and logits are replaced by scale * d loss / d logits (0 in padding and in ignored
  // rows).
  tri_status (*cross_entropy_backward)(struct tri_stream *stream, float *losses, void *logits,
                                       const int32_t *targets, float scale, int64_t N, int64_t V,
                                       int64_t Vp, tri_dtype dtype);

  // The same over a vocabulary in parts, so that nobody holds all logits of a row. A part's logits
  // (N, Vp) are those of the vocabulary's numbers first_token … first_token + V - 1; columns V …
  // Vp - 1 are padding; targets (N) are numbers of the whole vocabulary, or -1. V may be 0. Each
  // part calls cross_entropy_statistics, all of them are stacked in the order of the parts, and
  // everyone calls cross_entropy_combine on the stack, then cross_entropy_gradient on its part.

  // statistics (N, 3) f32: the largest logit m of the part, its sum of exp(logit - m), and the
  // target's logit, 0 where the target is another part's. -inf, 0, 0 where V == 0 and in ignored
  // rows.
  tri_status (*cross_entropy_statistics)(struct tri_stream *stream, float *statistics,
                                         const void *logits, const int32_t *targets, int64_t N,
                                         int64_t V, int64_t Vp, int64_t first_token,
                                         tri_dtype dtype);

  // From statistics (count, N, 3): losses (N) as above, and softmax (N, 2) f32: the largest logit M
  // of the row, and 1 / sum of exp(logit - M). Part by part, in order. 0 and 0, 0 in ignored rows;
  // in the others a part must hold the target.
  tri_status (*cross_entropy_combine)(struct tri_stream *stream, float *losses, float *softmax,
                                      const float *statistics, const int32_t *targets,
                                      int64_t count, int64_t N);

  // logits of the part are replaced by scale * d loss / d logits (0 in padding and in ignored
  // rows), with softmax (N, 2) from cross_entropy_combine.
  tri_status (*cross_entropy_gradient)(struct tri_stream *stream, void *logits,
                                       const float *softmax, const int32_t *targets, float scale,
                                       int64_t N, int64_t V, int64_t Vp, int64_t first_token,
                                       tri_dtype dtype);

  // --- optimizer
  // ------------------------------------------------------------------------------------------------

  // AdamW (Loshchilov and Hutter 2019, algorithm 2) on n elements, all f32, with g' = grad_scale *
  // g:
  //   m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2
  //   p = p - lr * (weight_decay * p + (m / correction1) / (sqrt(v / correction2) + eps))
  // correction_k = 1 - beta_k^step. When p_bf16 is not NULL the new p is also written there,
  // rounded.
  tri_status (*adamw)(struct tri_stream *stream, float *p, tri_bf16 *p_bf16, float *m, float *v,
                      const float *g, int64_t n, float lr, float beta1, float beta2, float eps,
                      float weight_decay, float grad_scale, float correction1, float correction2);
} tri_kernels;
