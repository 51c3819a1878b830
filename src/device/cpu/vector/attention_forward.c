// Attention forward, block by block with a running softmax (Dao et al. 2022, algorithm 1).
//
// A task is a group of queries of one head, two blocks of them, so that a block of keys that was
// fetched serves longer. Scores are kept transposed, keys down and queries
// across the vectors, in panels of NR queries: so keys and values are read by element as they lie,
// the maximum and the sum over keys go from vector to vector, and nothing is transposed but the
// queries on their way in and the outputs on their way out.
#include <math.h>

#include "device/cpu/vector/attention.h"
#include "device/cpu/vector/tables.h"

typedef struct forward_call {
  void *out;
  float *lse;
  const void *qkv;
  attention_sizes n;
  dropout_mask mask;
} forward_call;

enum { GROUP = 2 * BLOCK };

// The panels of a group of queries: q and o hold one panel after the other, each (D, NR).
typedef struct forward_tiles {
  float q[2 * TILE], o[2 * TILE], k[TILE], v[TILE];
  float scores[BLOCK * NR];         // (keys, NR)
  float largest[GROUP], sum[GROUP]; // of each query, over the keys so far
  float factor[NR];                 // by which a panel's sums shrink when its maxima rise
} __attribute__((aligned(64))) forward_tiles;

// Query i of a panel sees the keys j <= i - offset: the others' scores become -inf.
static void mask_panel(float *scores, int64_t n_keys, int64_t offset)
{
  for (int64_t j = offset < 0 ? -offset : 0; j < n_keys; j++) {
    for (int u = 0; u < 2; u++) {
      float *score = scores + j * NR + u * W;
      v_put(score, v_select(v_first(offset + j - u * W), v_set(-INFINITY), v_get(score)));
    }
  }
}

// Scores become exp(score - maximum).
static void softmax_panel(float *scores, int64_t n_keys, float *largest, float *sum, float *factor)
{
  const vf before[2] = {v_get(largest), v_get(largest + W)};
  vf highest[2] = {before[0], before[1]}, total[2] = {{0}};
  for (int64_t j = 0; j < n_keys; j++) {
    for (int u = 0; u < 2; u++)
      highest[u] = v_max(v_get(scores + j * NR + u * W), highest[u]);
  }
  for (int64_t j = 0; j < n_keys; j++) {
    for (int u = 0; u < 2; u++) {
      float *score = scores + j * NR + u * W;
      const vf weight = v_exp(v_get(score) - highest[u]);
      v_put(score, weight);
      total[u] += weight;
    }
  }
  for (int u = 0; u < 2; u++) {
    const vf shrink = v_exp(before[u] - highest[u]);
    v_put(factor + u * W, shrink);
    v_put(largest + u * W, highest[u]);
    v_put(sum + u * W, v_fma(v_get(sum + u * W), shrink, total[u]));
  }
}

// Drops weights of a panel. Lanes are queries, T elements apart, so each lane has its own place in
// its blocks of four numbers: the block at hand and the next are shifted into line.
static void drop_panel(float *weights, int64_t n_keys, const dropout_mask *mask, int64_t sample,
                       int64_t first, int64_t T)
{
  for (int u = 0; u < 2; u++) {
    uint32_t parts[3][W];
    for (int lane = 0; lane < W; lane++) {
      const uint64_t element = (uint64_t)(first + (u * W + lane) * T);
      parts[0][lane] = (uint32_t)(element / 4);
      parts[1][lane] = (uint32_t)(element / 4 >> 32);
      parts[2][lane] = (uint32_t)(element % 4);
    }
    vu low, high, place, words[8];
    memcpy(&low, parts[0], sizeof low);
    memcpy(&high, parts[1], sizeof high);
    memcpy(&place, parts[2], sizeof place);
    const vi by_one = (vi)((place & 1u) != 0), by_two = (vi)((place & 2u) != 0);
    philox(mask->key, low, high, mask->first_sample + (uint64_t)sample, words);
    for (int64_t j = 0; j < n_keys; j += 4) {
      low += 1u;
      high += (vu)(low == 0) & 1u;
      philox(mask->key, low, high, mask->first_sample + (uint64_t)sample, words + 4);
      vf line[6];
      for (int i = 0; i < 6; i++)
        line[i] = v_select(by_one, (vf)words[i + 1], (vf)words[i]);
      for (int i = 0; i < 4 && j + i < n_keys; i++) {
        float *weight = weights + (j + i) * NR + u * W;
        const vu word = (vu)v_select(by_two, line[i + 2], line[i]);
        v_put(weight, v_get(weight) * dropout_factor(mask, word));
      }
      memcpy(words, words + 4, 4 * sizeof *words);
    }
  }
}

// One panel of queries, the first of them q0, against a block of keys, the first of them k0.
static void attend_panel(forward_tiles *t, const forward_call *a, int64_t b, int64_t h, int64_t q0,
                         int64_t panel, int64_t k0, int64_t n_keys)
{
  const int64_t D = a->n.D, ld = round_up(D, W);
  const strided keys = {t->k, ld, 1}, values = {t->v, 1, ld};
  product_panel(t->scores, NR, keys, t->q + panel * D, NR, n_keys, D, PRODUCT_WRITE, PRODUCT_FULL,
                NULL);
  mask_panel(t->scores, n_keys, k0 - q0);
  softmax_panel(t->scores, n_keys, t->largest + panel, t->sum + panel, t->factor);
  if (a->mask.threshold > 0)
    drop_panel(t->scores, n_keys, &a->mask, b, dropout_at(&a->n, &a->mask, q0, h) + k0, a->n.T);
  product_panel(t->o + panel * D, NR, values, t->scores, NR, D, n_keys, PRODUCT_SCALE_ADD,
                PRODUCT_FULL, t->factor);
}

static void begin_group(forward_tiles *t, const forward_call *a, int64_t b, int64_t h, int64_t q0,
                        int64_t n, tri_dtype dtype)
{
  const int64_t D = a->n.D, width = round_up(n, NR);
  for (int64_t panel = 0; panel < width; panel += NR)
    pack_columns(t->q + panel * D, NR, a->qkv, qkv_at(&a->n, b, q0 + panel, QUERY, h),
                 3 * a->n.H * D, smaller(n - panel, NR), D, score_scale(D), dtype);
  memset(t->o, 0, (size_t)(width * D) * sizeof *t->o);
  for (int64_t i = 0; i < width; i++) {
    t->largest[i] = -INFINITY;
    t->sum[i] = 0.0f;
  }
}

static void load_keys(forward_tiles *t, const forward_call *a, int64_t b, int64_t h, int64_t k0,
                      int64_t n, tri_dtype dtype)
{
  const int64_t D = a->n.D, ld = round_up(D, W), stride = 3 * a->n.H * D;
  pack_rows(t->k, ld, a->qkv, qkv_at(&a->n, b, k0, KEY, h), stride, n, D, 1.0f, dtype);
  pack_rows(t->v, ld, a->qkv, qkv_at(&a->n, b, k0, VALUE, h), stride, n, D, 1.0f, dtype);
}

// Writes rows of out from the panels: W queries and W channels at a time.
V_INLINE void end_group(const forward_tiles *t, const forward_call *a, int64_t b, int64_t h,
                        int64_t q0, int64_t n, tri_dtype dtype)
{
  const int64_t D = a->n.D;
  for (int64_t i = 0; i < n; i += W) {
    const float *o = t->o + i / NR * NR * D + i % NR;
    const vf inverse = 1.0f / v_get(t->sum + i);
    for (int64_t d = 0; d < D; d += W) {
      vf rows[W];
      for (int r = 0; r < W; r++)
        rows[r] = d + r < D ? v_get(o + (d + r) * NR) * inverse : v_set(0.0f);
      v_transpose(rows);
      for (int r = 0; r < W && i + r < n; r++)
        v_store(a->out, out_at(&a->n, b, q0 + i + r, h) + d, D - d, dtype, rows[r]);
    }
  }
  float *lse = a->lse + (b * a->n.H + h) * a->n.T + q0;
  for (int64_t i = 0; i < n; i++)
    lse[i] = (float)((double)t->largest[i] + log((double)t->sum[i]));
}

static void attend_group(const forward_call *a, int64_t b, int64_t h, int64_t q0, tri_dtype dtype)
{
  forward_tiles t;
  const int64_t block = block_of(a->n.D);
  const int64_t n = smaller(2 * block, a->n.T - q0);
  begin_group(&t, a, b, h, q0, n, dtype);
  for (int64_t k0 = 0; k0 < q0 + n; k0 += block) {
    load_keys(&t, a, b, h, k0, smaller(block, q0 + n - k0), dtype);
    for (int64_t panel = 0; panel < n; panel += NR) {
      const int64_t end = q0 + smaller(panel + NR, n); // one past the panel's last query
      if (end > k0) attend_panel(&t, a, b, h, q0 + panel, panel, k0, smaller(block, end - k0));
    }
  }
  V_BY_DTYPE(dtype, end_group, &t, a, b, h, q0, n);
}

static tri_status attention_forward(struct tri_stream *stream, void *out, float *lse,
                                    const void *qkv, int64_t B, int64_t T, int64_t H, int64_t D,
                                    tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(attention_check("attention_forward", B, T, H, D, dtype, dropout));
  if (D == 0) return TRI_OK;
  const forward_call a = {.out = out,
                          .lse = lse,
                          .qkv = qkv,
                          .n = {.B = B, .T = T, .H = H, .D = D},
                          .mask = dropout_mask_of(dropout)};
  const int64_t group = 2 * block_of(D), n_groups = (T + group - 1) / group;
#pragma omp parallel for num_threads(v_threads(stream, B *T *H *D)) schedule(dynamic)
  for (int64_t task = 0; task < B * H * n_groups; task++) {
    const int64_t head = task / n_groups;
    attend_group(&a, head / H, head % H, task % n_groups * group, dtype);
  }
  return TRI_OK;
}

void TRI_ISA(tri_vector_attention_forward)(tri_kernels *table)
{
  table->attention_forward = attention_forward;
}
