// Attention backward: the probabilities are made again from lse, block by block (Dao et al. 2022,
// algorithm 4).
//
// A task is one head. For a block of keys, its dk and dv are summed over the blocks of queries that
// see it, while dq of all queries is summed in a window of f32 on the stack. With more queries than
// the window holds, dk and dv are made in one sweep and dq in others, window by window: 7 products
// of blocks instead of 5.
//
// With the queries scaled by 1 / sqrt(D), S = q k^T, P = exp(S - lse), M the dropout factors and
// delta_i = dout_i . out_i:
//   dv += (P M)^T dout,  dS = P (M (dout v^T) - delta),  dk += dS^T q,  dq += dS k / sqrt(D).
#include <math.h>

#include "device/cpu/vector/attention.h"
#include "device/cpu/vector/tables.h"

// Floats of dq held at once: 2,048 queries of width 64.
enum { WINDOW = 128 * 1024 };

typedef struct backward_call {
  void *dqkv;
  float *delta;
  const void *dout, *qkv, *out;
  const float *lse;
  attention_sizes n;
  dropout_mask mask;
  int64_t block;
  int64_t ld; // of tiles with rows of channels: D rounded up to whole panels
} backward_call;

typedef struct backward_tiles {
  float q[TILE], dout[TILE];                 // (queries, ld)
  float k[TILE], dk[TILE], dv[TILE];         // (keys, ld)
  float kt[TILE], vt[TILE];                  // (D, block)
  float p[BLOCK * BLOCK], ds[BLOCK * BLOCK]; // (queries, block)
  float dq[WINDOW];                          // (queries of the window, ld)
} __attribute__((aligned(64))) backward_tiles;

// A block of queries and one of keys of a head; `diagonal` when they are the same positions, so
// that query i sees the keys j <= i only.
typedef struct block_pair {
  int64_t b, h, q0, n_queries, k0, n_keys;
  bool diagonal;
} block_pair;

// out = x (queries, D) y^T, y transposed already. Panels above the diagonal are left alone.
static void product_scores(float *out, const float *x, const float *yt, const backward_call *a,
                           const block_pair *at)
{
  for (int64_t j = 0; j < at->n_keys; j += NR) {
    const int64_t first = at->diagonal ? j : 0;
    product_panel(out + first * a->block + j, a->block, (strided){x + first * a->ld, a->ld, 1},
                  yt + j, a->block, at->n_queries - first, a->n.D, PRODUCT_WRITE, PRODUCT_FULL,
                  NULL);
  }
}

// out (m, ld) += x (m, n) y (n, ld)
static void product_channels(float *out, strided x, const float *y, const backward_call *a,
                             int64_t m, int64_t n, product_shape shape)
{
  for (int64_t d = 0; d < a->ld; d += NR)
    product_panel(out + d, a->ld, x, y + d, a->ld, m, n, PRODUCT_ADD, shape, NULL);
}

// In p: S becomes P M; in ds: dout v^T becomes dS. Keys that a query does not see become 0.
V_INLINE void score_gradients_as(backward_tiles *t, const backward_call *a, const block_pair *at,
                                 bool drop)
{
  const int64_t row = (at->b * a->n.H + at->h) * a->n.T + at->q0;
  uint32_t room[DROPOUT_ROOM];
  const uint32_t *words = room;
  for (int64_t i = 0; i < at->n_queries; i++) {
    const int64_t n_seen = at->diagonal ? i + 1 : at->n_keys;
    const float lse = a->lse[row + i], delta = a->delta[row + i];
    if (drop)
      words = dropout_words(&a->mask, at->b,
                            dropout_at(&a->n, &a->mask, at->q0 + i, at->h) + at->k0, n_seen, room);
    for (int64_t j = 0; j < at->n_keys; j += W) {
      float *p = t->p + i * a->block + j, *ds = t->ds + i * a->block + j;
      vf weight = {0}, slope = {0}, kept = {0};
      if (j < n_seen) {
        weight = v_exp(v_get(p) - lse);
        kept = weight;
        slope = v_get(ds);
        if (drop) {
          const vf factor = dropout_factor_at(&a->mask, words, j);
          kept *= factor;
          slope *= factor;
        }
        slope = weight * (slope - delta);
        if (n_seen - j < W) {
          kept = v_select(v_first(n_seen - j), kept, v_set(0.0f));
          slope = v_select(v_first(n_seen - j), slope, v_set(0.0f));
        }
      }
      v_put(p, kept);
      v_put(ds, slope);
    }
  }
}

static void score_gradients(backward_tiles *t, const backward_call *a, const block_pair *at)
{
  if (a->mask.threshold > 0) {
    score_gradients_as(t, a, at, true);
  } else {
    score_gradients_as(t, a, at, false);
  }
}

static void load_queries(backward_tiles *t, const backward_call *a, const block_pair *at,
                         tri_dtype dtype)
{
  const int64_t D = a->n.D, stride = a->n.H * D;
  pack_rows(t->q, a->ld, a->qkv, qkv_at(&a->n, at->b, at->q0, QUERY, at->h), 3 * stride,
            at->n_queries, D, score_scale(D), dtype);
  pack_rows(t->dout, a->ld, a->dout, out_at(&a->n, at->b, at->q0, at->h), stride, at->n_queries, D,
            1.0f, dtype);
}

static void load_keys(backward_tiles *t, const backward_call *a, int64_t b, int64_t h, int64_t k0,
                      int64_t n, tri_dtype dtype)
{
  const int64_t D = a->n.D, stride = 3 * a->n.H * D;
  const int64_t key = qkv_at(&a->n, b, k0, KEY, h), value = qkv_at(&a->n, b, k0, VALUE, h);
  pack_rows(t->k, a->ld, a->qkv, key, stride, n, D, 1.0f, dtype);
  pack_columns(t->kt, a->block, a->qkv, key, stride, n, D, 1.0f, dtype);
  pack_columns(t->vt, a->block, a->qkv, value, stride, n, D, 1.0f, dtype);
  memset(t->dk, 0, (size_t)(n * a->ld) * sizeof *t->dk);
  memset(t->dv, 0, (size_t)(n * a->ld) * sizeof *t->dv);
}

static void store_keys(const backward_tiles *t, const backward_call *a, int64_t b, int64_t h,
                       int64_t k0, int64_t n, tri_dtype dtype)
{
  const int64_t D = a->n.D, stride = 3 * a->n.H * D;
  unpack_rows(a->dqkv, qkv_at(&a->n, b, k0, KEY, h), stride, t->dk, a->ld, n, D, 1.0f, dtype);
  unpack_rows(a->dqkv, qkv_at(&a->n, b, k0, VALUE, h), stride, t->dv, a->ld, n, D, 1.0f, dtype);
}

static void store_queries(const backward_tiles *t, const backward_call *a, int64_t b, int64_t h,
                          int64_t q0, int64_t n, tri_dtype dtype)
{
  const int64_t D = a->n.D;
  unpack_rows(a->dqkv, qkv_at(&a->n, b, q0, QUERY, h), 3 * a->n.H * D, t->dq, a->ld, n, D,
              score_scale(D), dtype);
}

// One pair of blocks: adds to dq (NULL: not wanted), and to dk and dv when they are wanted.
static void gradient_pair(backward_tiles *t, const backward_call *a, const block_pair *at,
                          float *dq, bool want_keys, tri_dtype dtype)
{
  load_queries(t, a, at, dtype);
  product_scores(t->p, t->q, t->kt, a, at);
  product_scores(t->ds, t->dout, t->vt, a, at);
  score_gradients(t, a, at);
  if (dq != NULL)
    product_channels(dq, (strided){t->ds, a->block, 1}, t->k, a, at->n_queries, at->n_keys,
                     at->diagonal ? PRODUCT_LOWER : PRODUCT_FULL);
  if (want_keys) {
    const product_shape shape = at->diagonal ? PRODUCT_UPPER : PRODUCT_FULL;
    product_channels(t->dv, (strided){t->p, 1, a->block}, t->dout, a, at->n_keys, at->n_queries,
                     shape);
    product_channels(t->dk, (strided){t->ds, 1, a->block}, t->q, a, at->n_keys, at->n_queries,
                     shape);
  }
}

// All keys against the queries [first, end) of one head, first a multiple of the block.
static void sweep(backward_tiles *t, const backward_call *a, int64_t b, int64_t h, int64_t first,
                  int64_t end, bool want_queries, bool want_keys, tri_dtype dtype)
{
  if (want_queries) memset(t->dq, 0, (size_t)((end - first) * a->ld) * sizeof *t->dq);
  for (int64_t k0 = 0; k0 < end; k0 += a->block) {
    const int64_t n_keys = smaller(a->block, a->n.T - k0);
    load_keys(t, a, b, h, k0, n_keys, dtype);
    for (int64_t q0 = k0 > first ? k0 : first; q0 < end; q0 += a->block) {
      const block_pair at = {.b = b,
                             .h = h,
                             .q0 = q0,
                             .n_queries = smaller(a->block, end - q0),
                             .k0 = k0,
                             .n_keys = n_keys,
                             .diagonal = q0 == k0};
      gradient_pair(t, a, &at, want_queries ? t->dq + (q0 - first) * a->ld : NULL, want_keys,
                    dtype);
    }
    if (want_keys) store_keys(t, a, b, h, k0, n_keys, dtype);
  }
  if (want_queries) store_queries(t, a, b, h, first, end - first, dtype);
}

V_INLINE void make_delta(const backward_call *a, int64_t b, int64_t h, tri_dtype dtype)
{
  float *delta = a->delta + (b * a->n.H + h) * a->n.T;
  for (int64_t i = 0; i < a->n.T; i++) {
    const int64_t at = out_at(&a->n, b, i, h);
    vf sum = {0};
    for (int64_t d = 0; d < a->n.D; d += W)
      sum = v_fma(v_load(a->dout, at + d, a->n.D - d, dtype),
                  v_load(a->out, at + d, a->n.D - d, dtype), sum);
    delta[i] = v_sum(sum);
  }
}

static void gradient_head(const backward_call *a, int64_t b, int64_t h, tri_dtype dtype)
{
  backward_tiles t;
  const int64_t T = a->n.T, window = WINDOW / a->ld / a->block * a->block;
  V_BY_DTYPE(dtype, make_delta, a, b, h);
  const bool one_sweep = T <= window;
  sweep(&t, a, b, h, 0, T, one_sweep, true, dtype);
  for (int64_t first = 0; first < T && !one_sweep; first += window)
    sweep(&t, a, b, h, first, smaller(first + window, T), true, false, dtype);
}

static tri_status attention_backward(struct tri_stream *stream, void *dqkv, float *delta,
                                     const void *dout, const void *qkv, const void *out,
                                     const float *lse, int64_t B, int64_t T, int64_t H, int64_t D,
                                     tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(attention_check("attention_backward", B, T, H, D, dtype, dropout));
  if (D == 0) return TRI_OK;
  const backward_call a = {.dqkv = dqkv,
                           .delta = delta,
                           .dout = dout,
                           .qkv = qkv,
                           .out = out,
                           .lse = lse,
                           .n = {.B = B, .T = T, .H = H, .D = D},
                           .mask = dropout_mask_of(dropout),
                           .block = block_of(D),
                           .ld = round_up(D, NR)};
#pragma omp parallel for num_threads(v_threads(stream, B *T *H *D)) schedule(dynamic)
  for (int64_t head = 0; head < B * H; head++)
    gradient_head(&a, head / H, head % H, dtype);
  return TRI_OK;
}

void TRI_ISA(tri_vector_attention_backward)(tri_kernels *table)
{
  table->attention_backward = attention_backward;
}
