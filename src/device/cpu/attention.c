#include <math.h>
#include <stddef.h>

#include "device/check.h"
#include "device/cpu/dropout.h"
#include "device/cpu/element.h"
#include "device/cpu/reference.h"

// Channels whose sums are held at once; the scores are computed again for each block of them.
enum { D_BLOCK = 64 };

// The rows of one head that attention reads: row j of k begins at element k_first + j * stride.
typedef struct head_rows {
  const void *k, *v;
  int64_t k_first, v_first, stride;
  int64_t D;
  tri_dtype dtype;
} head_rows;

// What is fixed over one call on (B, T, 3, H, D).
typedef struct attention_call {
  const void *qkv, *dout;
  const float *lse, *delta;
  int64_t T, H, D;
  tri_dtype dtype;
  const tri_dropout *dropout;
} attention_call;

enum { Q, K, V };

// The first element of row t of the queries, keys or values of head h.
static int64_t qkv_row(const attention_call *a, int64_t b, int64_t t, int which, int64_t h)
{
  return (((b * a->T + t) * 3 + which) * a->H + h) * a->D;
}

// The first element of row t of head h in (B, T, H, D).
static int64_t out_row(const attention_call *a, int64_t b, int64_t t, int64_t h)
{
  return ((b * a->T + t) * a->H + h) * a->D;
}

static double dot(const void *x, int64_t x_first, const void *y, int64_t y_first, int64_t n,
                  tri_dtype dtype)
{
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++)
    sum += tri_cpu_load(x, dtype, x_first + i) * tri_cpu_load(y, dtype, y_first + i);
  return sum;
}

// One query against the first n_keys rows: out = sum_j softmax_j(q k_j / sqrt(D)) drop_j v_j, and
// the log of the sum of exp is returned. Dropout by sample b, elements first_element + j.
static double attend(void *out, int64_t out_first, const void *q, int64_t q_first,
                     const head_rows *rows, int64_t n_keys, const tri_dropout *dropout, int64_t b,
                     int64_t first_element)
{
  const int64_t D = rows->D;
  const tri_dtype dtype = rows->dtype;
  const double scale = 1.0 / sqrt((double)D);
  double largest = -INFINITY;
  for (int64_t j = 0; j < n_keys; j++) {
    const double score = dot(q, q_first, rows->k, rows->k_first + j * rows->stride, D, dtype);
    largest = fmax(largest, scale * score);
  }

  double sum = 0.0;
  for (int64_t d0 = 0; d0 < D; d0 += D_BLOCK) {
    const int64_t width = D - d0 < D_BLOCK ? D - d0 : D_BLOCK;
    double acc[D_BLOCK] = {0};
    sum = 0.0;
    for (int64_t j = 0; j < n_keys; j++) {
      const double score = dot(q, q_first, rows->k, rows->k_first + j * rows->stride, D, dtype);
      const double weight = exp(scale * score - largest);
      const double kept = weight * tri_cpu_dropout_factor(dropout, b, first_element + j);
      sum += weight;
      for (int64_t d = 0; d < width; d++)
        acc[d] += kept * tri_cpu_load(rows->v, dtype, rows->v_first + j * rows->stride + d0 + d);
    }
    for (int64_t d = 0; d < width; d++)
      tri_cpu_store(out, dtype, out_first + d0 + d, acc[d] / sum);
  }
  return largest + log(sum);
}

static tri_status check(const char *kernel, int64_t B, int64_t T, int64_t H, int64_t D,
                        tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, 4, (int64_t[]){B, T, H, D}));
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  TRI_CALL(tri_kernel_check_dropout(kernel, dropout));
  return TRI_OK;
}

tri_status tri_cpu_attention_forward(struct tri_stream *stream, void *out, float *lse,
                                     const void *qkv, int64_t B, int64_t T, int64_t H, int64_t D,
                                     tri_dtype dtype, const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(check("attention_forward", B, T, H, D, dtype, dropout));
  if (D == 0) return TRI_OK;
  const attention_call a = {.T = T, .H = H, .D = D};
  const int64_t first = tri_cpu_dropout_first(dropout);
#pragma omp parallel for collapse(3)
  for (int64_t b = 0; b < B; b++) {
    for (int64_t h = 0; h < H; h++) {
      for (int64_t t = 0; t < T; t++) {
        const head_rows rows = {.k = qkv,
                                .v = qkv,
                                .k_first = qkv_row(&a, b, 0, K, h),
                                .v_first = qkv_row(&a, b, 0, V, h),
                                .stride = 3 * H * D,
                                .D = D,
                                .dtype = dtype};
        lse[(b * H + h) * T + t] =
            (float)attend(out, out_row(&a, b, t, h), qkv, qkv_row(&a, b, t, Q, h), &rows, t + 1,
                          dropout, b, ((first + h) * T + t) * T);
      }
    }
  }
  return TRI_OK;
}

// Of query i and key j <= i: the probability after dropout, and the slope of the loss by the
// unscaled score. With P the softmax, M the dropout factor and delta_i = dout_i . out_i (Dao et al.
// 2022, algorithm 4):  dS = P (M (dout_i . v_j) - delta_i).
typedef struct pair_terms {
  double kept;
  double dscore;
} pair_terms;

static pair_terms pair(const attention_call *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
  const double scale = 1.0 / sqrt((double)a->D);
  const double score =
      scale * dot(a->qkv, qkv_row(a, b, i, Q, h), a->qkv, qkv_row(a, b, j, K, h), a->D, a->dtype);
  const double dkept =
      dot(a->dout, out_row(a, b, i, h), a->qkv, qkv_row(a, b, j, V, h), a->D, a->dtype);
  const int64_t row = (b * a->H + h) * a->T + i;
  const double p = exp(score - (double)a->lse[row]);
  const int64_t head = tri_cpu_dropout_first(a->dropout) + h;
  const double factor = tri_cpu_dropout_factor(a->dropout, b, (head * a->T + i) * a->T + j);
  return (pair_terms){.kept = p * factor,
                      .dscore = scale * p * (factor * dkept - (double)a->delta[row])};
}

// dq_t = sum over keys j <= t of dS_tj k_j
static void query_gradient(void *dqkv, const attention_call *a, int64_t b, int64_t h, int64_t t)
{
  for (int64_t d0 = 0; d0 < a->D; d0 += D_BLOCK) {
    const int64_t width = a->D - d0 < D_BLOCK ? a->D - d0 : D_BLOCK;
    double dq[D_BLOCK] = {0};
    for (int64_t j = 0; j <= t; j++) {
      const pair_terms terms = pair(a, b, h, t, j);
      for (int64_t d = 0; d < width; d++)
        dq[d] += terms.dscore * tri_cpu_load(a->qkv, a->dtype, qkv_row(a, b, j, K, h) + d0 + d);
    }
    for (int64_t d = 0; d < width; d++)
      tri_cpu_store(dqkv, a->dtype, qkv_row(a, b, t, Q, h) + d0 + d, dq[d]);
  }
}

// dk_t = sum over queries i >= t of dS_it q_i,  dv_t = the same sum of (P M)_it dout_i
static void key_value_gradient(void *dqkv, const attention_call *a, int64_t b, int64_t h, int64_t t)
{
  for (int64_t d0 = 0; d0 < a->D; d0 += D_BLOCK) {
    const int64_t width = a->D - d0 < D_BLOCK ? a->D - d0 : D_BLOCK;
    double dk[D_BLOCK] = {0}, dv[D_BLOCK] = {0};
    for (int64_t i = t; i < a->T; i++) {
      const pair_terms terms = pair(a, b, h, i, t);
      for (int64_t d = 0; d < width; d++) {
        dk[d] += terms.dscore * tri_cpu_load(a->qkv, a->dtype, qkv_row(a, b, i, Q, h) + d0 + d);
        dv[d] += terms.kept * tri_cpu_load(a->dout, a->dtype, out_row(a, b, i, h) + d0 + d);
      }
    }
    for (int64_t d = 0; d < width; d++) {
      tri_cpu_store(dqkv, a->dtype, qkv_row(a, b, t, K, h) + d0 + d, dk[d]);
      tri_cpu_store(dqkv, a->dtype, qkv_row(a, b, t, V, h) + d0 + d, dv[d]);
    }
  }
}

tri_status tri_cpu_attention_backward(struct tri_stream *stream, void *dqkv, float *delta,
                                      const void *dout, const void *qkv, const void *out,
                                      const float *lse, int64_t B, int64_t T, int64_t H, int64_t D,
                                      tri_dtype dtype, const tri_dropout *dropout)
{
  (void)stream;
  TRI_CALL(check("attention_backward", B, T, H, D, dtype, dropout));
  if (D == 0) return TRI_OK;
  const attention_call a = {.qkv = qkv,
                            .dout = dout,
                            .lse = lse,
                            .delta = delta,
                            .T = T,
                            .H = H,
                            .D = D,
                            .dtype = dtype,
                            .dropout = dropout};
#pragma omp parallel for collapse(3)
  for (int64_t b = 0; b < B; b++) {
    for (int64_t h = 0; h < H; h++) {
      for (int64_t t = 0; t < T; t++) {
        const int64_t row = out_row(&a, b, t, h);
        delta[(b * H + h) * T + t] = (float)dot(dout, row, out, row, D, dtype);
      }
    }
  }
#pragma omp parallel for collapse(3)
  for (int64_t b = 0; b < B; b++) {
    for (int64_t h = 0; h < H; h++) {
      for (int64_t t = 0; t < T; t++) {
        query_gradient(dqkv, &a, b, h, t);
        key_value_gradient(dqkv, &a, b, h, t);
      }
    }
  }
  return TRI_OK;
}

tri_status tri_cpu_attention_decode(struct tri_stream *stream, void *out, void *k_cache,
                                    void *v_cache, const void *qkv, int64_t position, int64_t B,
                                    int64_t T_max, int64_t H, int64_t D, tri_dtype dtype)
{
  (void)stream;
  TRI_CALL(check("attention_decode", B, T_max, H, D, dtype, NULL));
  TRI_CALL(tri_kernel_check_position("attention_decode", position, T_max));
  if (D == 0) return TRI_OK;
#pragma omp parallel for collapse(2)
  for (int64_t b = 0; b < B; b++) {
    for (int64_t h = 0; h < H; h++) {
      const int64_t first = (b * T_max * H + h) * D;
      const int64_t here = first + position * H * D;
      const int64_t q = (b * 3 * H + h) * D, k = q + H * D, v = k + H * D;
      for (int64_t d = 0; d < D; d++) {
        tri_cpu_store(k_cache, dtype, here + d, tri_cpu_load(qkv, dtype, k + d));
        tri_cpu_store(v_cache, dtype, here + d, tri_cpu_load(qkv, dtype, v + d));
      }
      const head_rows rows = {.k = k_cache,
                              .v = v_cache,
                              .k_first = first,
                              .v_first = first,
                              .stride = H * D,
                              .D = D,
                              .dtype = dtype};
      (void)attend(out, (b * H + h) * D, qkv, q, &rows, position + 1, NULL, b, 0);
    }
  }
  return TRI_OK;
}
