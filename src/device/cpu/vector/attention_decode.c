// Attention of one new position against the caches. Bound by reading them: one pass, with a running
// softmax over blocks of keys.
#include <math.h>

#include "device/cpu/vector/attention.h"
#include "device/cpu/vector/tables.h"

typedef struct decode_call {
  void *out, *k_cache, *v_cache;
  const void *qkv;
  int64_t position, T_max, H, D;
} decode_call;

V_INLINE void copy_row(void *to, int64_t to_at, const void *from, int64_t from_at, int64_t n,
                       tri_dtype dtype)
{
  const size_t size = dtype == TRI_DTYPE_F32 ? sizeof(float) : sizeof(tri_bf16);
  memcpy((char *)to + (size_t)to_at * size, (const char *)from + (size_t)from_at * size,
         (size_t)n * size);
}

V_INLINE float dot(const float *q, const void *k, int64_t at, int64_t D, tri_dtype dtype)
{
  vf sum = {0};
  for (int64_t d = 0; d < D; d += W)
    sum = v_fma(v_get(q + d), v_load(k, at + d, D - d, dtype), sum);
  return v_sum(sum);
}

// Scores of n keys become exp(score - largest); returns their sum.
V_INLINE float soften(float scores[BLOCK], int64_t n, float largest)
{
  vf sum = {0};
  for (int64_t j = 0; j < n; j += W) {
    const vf weight = v_exp(v_get(scores + j) - largest);
    v_put(scores + j, weight);
    sum += v_select(v_first(n - j), weight, v_set(0.0f));
  }
  return v_sum(sum);
}

V_INLINE void decode_head(const decode_call *a, int64_t b, int64_t h, tri_dtype dtype)
{
  const int64_t D = a->D, ld = round_up(D, W), stride = a->H * D;
  const int64_t query = (b * 3 * a->H + h) * D, cache = (b * a->T_max * a->H + h) * D;
  copy_row(a->k_cache, cache + a->position * stride, a->qkv, query + stride, D, dtype);
  copy_row(a->v_cache, cache + a->position * stride, a->qkv, query + 2 * stride, D, dtype);

  float q[MAX_HEAD], o[MAX_HEAD] = {0}, scores[BLOCK] = {0};
  pack_rows(q, ld, a->qkv, query, 0, 1, D, score_scale(D), dtype);
  float largest = -INFINITY, sum = 0.0f;
  for (int64_t k0 = 0; k0 <= a->position; k0 += BLOCK) {
    const int64_t n = smaller(BLOCK, a->position + 1 - k0), at = cache + k0 * stride;
    float highest = largest;
    for (int64_t j = 0; j < n; j++) {
      scores[j] = dot(q, a->k_cache, at + j * stride, D, dtype);
      highest = scores[j] > highest ? scores[j] : highest;
    }
    const float shrink = v_exp(v_set(largest) - highest)[0];
    sum = sum * shrink + soften(scores, n, highest);
    largest = highest;
    for (int64_t d = 0; d < D; d += W) {
      vf total = v_get(o + d) * shrink;
      for (int64_t j = 0; j < n; j++)
        total =
            v_fma(v_set(scores[j]), v_load(a->v_cache, at + j * stride + d, D - d, dtype), total);
      v_put(o + d, total);
    }
  }
  unpack_rows(a->out, (b * a->H + h) * D, 0, o, ld, 1, D, 1.0f / sum, dtype);
}

static tri_status attention_decode(struct tri_stream *stream, void *out, void *k_cache,
                                   void *v_cache, const void *qkv, int64_t position, int64_t B,
                                   int64_t T_max, int64_t H, int64_t D, tri_dtype dtype)
{
  TRI_CALL(attention_check("attention_decode", B, T_max, H, D, dtype, NULL));
  TRI_CALL(tri_kernel_check_position("attention_decode", position, T_max));
  if (D == 0) return TRI_OK;
  const decode_call a = {.out = out,
                         .k_cache = k_cache,
                         .v_cache = v_cache,
                         .qkv = qkv,
                         .position = position,
                         .T_max = T_max,
                         .H = H,
                         .D = D};
#pragma omp parallel for num_threads(v_threads(stream, B *position *H *D)) schedule(static)
  for (int64_t head = 0; head < B * H; head++)
    V_BY_DTYPE(dtype, decode_head, &a, head / H, head % H);
  return TRI_OK;
}

void TRI_ISA(tri_vector_attention_decode)(tri_kernels *table)
{
  table->attention_decode = attention_decode;
}
