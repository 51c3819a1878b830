// One transformer block (Radford et al. 2019, section 2.3; names of the released code):
//
//   ln_1 = norm(x);  qkv = ln_1 Wa + ba;  att = attention(qkv);  r = x + drop(att Wp + bp)
//   ln_2 = norm(r);  fc = ln_2 Wf + bf;   act = GELU(fc);        y = r + drop(act Wo + bo)
//
// Saved from forward to backward, 16 N C elements and a little: ln_1, qkv, att, r, ln_2, fc, act,
// with the means, reciprocal deviations and log sums in f32. x is the driver's, y the next block's.
//
// A share (model.h) has rows of x, r and y and of the norms' work, and heads of the attention and
// columns of fc for all rows, so that each norm's output is gathered, and what Wp and Wo give are
// addends of a sum that is scattered (Korthikanti et al. 2022, section 4.2.2). ln_1 and ln_2 are
// saved whole, so that backward need not gather them again. The biases bp and bo are added by share
// 0; their gradients are made by all, from all rows.
#include "nn/gpt_model.h"

// Offsets of what is kept, in bytes.
typedef struct saved_layout {
  size_t ln_1, ln_1_mean, ln_1_rstd, qkv, att, lse, residual, ln_2, ln_2_mean, ln_2_rstd, fc, act;
  size_t size_bytes;
} saved_layout;

static saved_layout lay_out_saved(const gpt_sizes *s, tri_dtype dtype)
{
  const size_t element = tri_dtype_size(dtype);
  saved_layout o = {0};
  o.ln_1 = tri_gpt_take(&o.size_bytes, s->N * s->C, element);
  o.ln_1_mean = tri_gpt_take(&o.size_bytes, s->R, sizeof(float));
  o.ln_1_rstd = tri_gpt_take(&o.size_bytes, s->R, sizeof(float));
  o.qkv = tri_gpt_take(&o.size_bytes, 3 * s->N * s->A, element);
  o.att = tri_gpt_take(&o.size_bytes, s->N * s->A, element);
  o.lse = tri_gpt_take(&o.size_bytes, s->N * s->H, sizeof(float));
  o.residual = tri_gpt_take(&o.size_bytes, s->R * s->C, element);
  o.ln_2 = tri_gpt_take(&o.size_bytes, s->N * s->C, element);
  o.ln_2_mean = tri_gpt_take(&o.size_bytes, s->R, sizeof(float));
  o.ln_2_rstd = tri_gpt_take(&o.size_bytes, s->R, sizeof(float));
  o.fc = tri_gpt_take(&o.size_bytes, s->N * s->F, element);
  o.act = tri_gpt_take(&o.size_bytes, s->N * s->F, element);
  return o;
}

// Gradients of what each of the six layers gives, named by the layer.
typedef struct slopes_layout {
  size_t fc_proj, fc, ln_2, attn_proj, attn, ln_1;
  size_t size_bytes;
} slopes_layout;

static int64_t wider(const gpt_sizes *s)
{
  return s->F > 3 * s->A ? s->F : 3 * s->A;
}

// Those of one backward at once share memory where they are used up before others come.
static slopes_layout lay_out_passing_slopes(const gpt_sizes *s, size_t begin, size_t element)
{
  slopes_layout o = {.size_bytes = begin};
  o.fc_proj = o.ln_2 = o.ln_1 = tri_gpt_take(&o.size_bytes, s->N * s->C, element);
  o.attn_proj = o.fc_proj;
  o.fc = o.attn = tri_gpt_take(&o.size_bytes, s->N * wider(s), element);
  return o;
}

// Those that wait for the second half do not.
static slopes_layout lay_out_kept_slopes(const gpt_sizes *s, size_t element)
{
  slopes_layout o = {0};
  o.fc_proj = tri_gpt_take(&o.size_bytes, s->N * s->C, element);
  o.fc = tri_gpt_take(&o.size_bytes, s->N * s->F, element);
  o.ln_2 = tri_gpt_take(&o.size_bytes, s->R * s->C, element);
  o.attn_proj = tri_gpt_take(&o.size_bytes, s->N * s->C, element);
  o.attn = tri_gpt_take(&o.size_bytes, 3 * s->N * s->A, element);
  o.ln_1 = tri_gpt_take(&o.size_bytes, s->R * s->C, element);
  return o;
}

typedef struct scratch_layout {
  size_t whole, rows; // (N, C), (R, C); the same memory without shares
  size_t delta;       // (B, H, T) f32
  size_t unused;      // (2, C) f32: sums that nobody wants
  slopes_layout slopes;
  size_t size_bytes;
} scratch_layout;

static scratch_layout lay_out_scratch(const gpt_sizes *s, tri_dtype dtype)
{
  const size_t element = tri_dtype_size(dtype);
  scratch_layout o = {0};
  o.whole = o.rows = tri_gpt_take(&o.size_bytes, s->N * s->C, element);
  if (s->R < s->N) o.rows = tri_gpt_take(&o.size_bytes, s->R * s->C, element);
  o.delta = tri_gpt_take(&o.size_bytes, s->N * s->H, sizeof(float));
  o.unused = tri_gpt_take(&o.size_bytes, 2 * s->C, sizeof(float));
  o.slopes = lay_out_passing_slopes(s, o.size_bytes, element);
  o.size_bytes = o.slopes.size_bytes;
  return o;
}

size_t tri_gpt_block_saved_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  return lay_out_saved(sizes, gpt->model.dtype).size_bytes;
}

size_t tri_gpt_block_kept_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  return lay_out_kept_slopes(sizes, tri_dtype_size(gpt->model.dtype)).size_bytes;
}

size_t tri_gpt_block_scratch_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  return lay_out_scratch(sizes, gpt->model.dtype).size_bytes;
}

tri_status tri_gpt_block_prepare(const tri_gpt *gpt, tri_stream *stream, const gpt_sizes *s)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(stream));
  TRI_CALL(k->linear_prepare(stream, s->N, s->C, 3 * s->A, gpt->model.dtype));
  TRI_CALL(k->linear_prepare(stream, s->N, s->A, s->C, gpt->model.dtype));
  TRI_CALL(k->linear_prepare(stream, s->N, s->C, s->F, gpt->model.dtype));
  TRI_CALL(k->linear_prepare(stream, s->N, s->F, s->C, gpt->model.dtype));
  return TRI_OK;
}

// What forward and backward of one block look at: sizes, weights and gradients of the layer,
// pointers into the saved and the scratch memory.
typedef struct block_view {
  const tri_gpt *gpt;
  const tri_pass *pass;
  const tri_kernels *k;
  tri_stream *stream;
  gpt_sizes s;
  tri_dtype dtype;
  const void *w[GPT_LAYER_PARAMETERS];
  float *dw[GPT_LAYER_PARAMETERS]; // NULL in forward
  tri_dropout drop[GPT_SITES];
  void *ln_1, *qkv, *att, *residual, *ln_2, *fc, *act;
  float *ln_1_mean, *ln_1_rstd, *lse, *ln_2_mean, *ln_2_rstd;
  // Backward: gradients of what the layers give; halves of a backward keep them.
  void *d_fc_proj, *d_fc, *d_ln_2, *d_attn_proj, *d_attn, *d_ln_1;
  tri_backward_part part;
  void *whole, *rows; // scratch: (N, C) and (R, C)
  float *delta, *unused;
} block_view;

static void point_into_memory(block_view *v, const tri_pass *pass)
{
  const saved_layout saved = lay_out_saved(&v->s, v->dtype);
  char *base = pass->saved;
  v->ln_1 = base + saved.ln_1;
  v->ln_1_mean = (float *)(base + saved.ln_1_mean);
  v->ln_1_rstd = (float *)(base + saved.ln_1_rstd);
  v->qkv = base + saved.qkv;
  v->att = base + saved.att;
  v->lse = (float *)(base + saved.lse);
  v->residual = base + saved.residual;
  v->ln_2 = base + saved.ln_2;
  v->ln_2_mean = (float *)(base + saved.ln_2_mean);
  v->ln_2_rstd = (float *)(base + saved.ln_2_rstd);
  v->fc = base + saved.fc;
  v->act = base + saved.act;
  const scratch_layout scratch = lay_out_scratch(&v->s, v->dtype);
  base = pass->scratch;
  v->whole = base + scratch.whole;
  v->rows = base + scratch.rows;
  v->delta = (float *)(base + scratch.delta);
  v->unused = (float *)(base + scratch.unused);
  v->part = pass->part;
  slopes_layout slopes = scratch.slopes;
  if (pass->part != TRI_BACKWARD_WHOLE) {
    slopes = lay_out_kept_slopes(&v->s, tri_dtype_size(v->dtype));
    base = pass->kept;
  }
  v->d_fc_proj = base + slopes.fc_proj;
  v->d_fc = base + slopes.fc;
  v->d_ln_2 = base + slopes.ln_2;
  v->d_attn_proj = base + slopes.attn_proj;
  v->d_attn = base + slopes.attn;
  v->d_ln_1 = base + slopes.ln_1;
}

static void view_block(block_view *v, const tri_gpt *gpt, int layer, const tri_pass *pass,
                       bool gradients)
{
  v->gpt = gpt;
  v->pass = pass;
  v->stream = pass->stream;
  v->k = tri_device_kernels(tri_stream_device(pass->stream));
  v->s = tri_gpt_sizes(gpt, pass->batch->B, pass->batch->T);
  v->dtype = gpt->model.dtype;
  for (int i = 0; i < GPT_LAYER_PARAMETERS; i++) {
    v->w[i] = tri_gpt_weight(gpt, pass->weights, layer + 1, i);
    v->dw[i] = gradients ? tri_gpt_gradient(gpt, pass->gradients, layer + 1, i) : NULL;
  }
  for (int i = 0; i < GPT_SITES; i++) {
    v->drop[i] = (tri_dropout){
        .p = pass->training ? gpt->config.dropout : 0.0f,
        .key = gpt->site_keys[layer * GPT_SITES + i],
        .first_sample = pass->batch->first_sample,
        .first = gpt->share * (i == GPT_SITE_ATTENTION ? v->s.H : v->s.R),
    };
  }
  point_into_memory(v, pass);
}

// rows (R, C) = this share's rows of in (N, IC) w^T + bias, summed over the shares.
static tri_status row_split_linear(const block_view *v, gpt_layer_parameter which, const void *in,
                                   int64_t IC)
{
  const void *bias = v->gpt->share == 0 ? v->w[which + 1] : NULL;
  TRI_CALL(v->k->linear_forward(v->stream, v->whole, NULL, in, v->w[which], bias, v->s.N, IC,
                                v->s.C, v->dtype));
  return tri_gpt_scatter_sum(v->gpt, v->pass, v->rows, v->whole, v->s.C);
}

tri_status tri_gpt_block_forward(const tri_gpt *gpt, int layer, const tri_pass *pass)
{
  block_view v;
  view_block(&v, gpt, layer, pass, false);
  const gpt_sizes s = v.s;
  void *ln_1 = gpt->n_shares == 1 ? v.ln_1 : v.rows, *ln_2 = gpt->n_shares == 1 ? v.ln_2 : v.whole;
  TRI_CALL(v.k->layernorm_forward(v.stream, ln_1, v.ln_1_mean, v.ln_1_rstd, pass->hidden_in,
                                  v.w[GPT_LN_1_WEIGHT], v.w[GPT_LN_1_BIAS], s.R, s.C, GPT_EPS,
                                  v.dtype));
  TRI_CALL(tri_gpt_gather(gpt, pass, v.ln_1, ln_1, s.C));
  TRI_CALL(v.k->linear_forward(v.stream, v.qkv, NULL, v.ln_1, v.w[GPT_ATTN_WEIGHT],
                               v.w[GPT_ATTN_BIAS], s.N, s.C, 3 * s.A, v.dtype));
  TRI_CALL(v.k->attention_forward(v.stream, v.att, v.lse, v.qkv, s.B, s.T, s.H, s.D, v.dtype,
                                  &v.drop[GPT_SITE_ATTENTION]));
  TRI_CALL(row_split_linear(&v, GPT_ATTN_PROJ_WEIGHT, v.att, s.A));
  TRI_CALL(v.k->residual_layernorm_forward(v.stream, v.residual, ln_2, v.ln_2_mean, v.ln_2_rstd,
                                           pass->hidden_in, v.rows, v.w[GPT_LN_2_WEIGHT],
                                           v.w[GPT_LN_2_BIAS], s.R, s.T, s.C, GPT_EPS, v.dtype,
                                           &v.drop[GPT_SITE_RESIDUAL_1]));
  TRI_CALL(tri_gpt_gather(gpt, pass, v.ln_2, ln_2, s.C));
  TRI_CALL(v.k->linear_forward(v.stream, v.fc, v.act, v.ln_2, v.w[GPT_FC_WEIGHT], v.w[GPT_FC_BIAS],
                               s.N, s.C, s.F, v.dtype));
  TRI_CALL(row_split_linear(&v, GPT_FC_PROJ_WEIGHT, v.act, s.F));
  return v.k->residual_forward(v.stream, pass->hidden_out, v.residual, v.rows, s.R, s.T, s.C,
                               v.dtype, &v.drop[GPT_SITE_RESIDUAL_2]);
}

// --- backward: each layer's gradients of its input, and of its weights, by themselves

static bool gives_input(const block_view *v)
{
  return v->part != TRI_BACKWARD_WEIGHT;
}

static bool gives_weights(const block_view *v)
{
  return v->part != TRI_BACKWARD_INPUT;
}

// The gradient of the branch that site's dropout closes, of all rows, in `slope`: d_hidden itself
// when nothing is dropped, kept or gathered, so that no copy is made.
static tri_status close_branch(const block_view *v, gpt_site site, void *d_hidden, void **slope)
{
  void *rows = v->gpt->n_shares == 1 ? *slope : v->rows;
  if (v->part == TRI_BACKWARD_WEIGHT) return TRI_OK;
  if (v->drop[site].p == 0.0f && v->gpt->n_shares > 1)
    return tri_gpt_gather(v->gpt, v->pass, *slope, d_hidden, v->s.C);
  if (v->drop[site].p == 0.0f && v->part == TRI_BACKWARD_WHOLE) {
    *slope = d_hidden;
    return TRI_OK;
  }
  TRI_CALL(v->k->residual_backward(v->stream, rows, d_hidden, v->s.R, v->s.T, v->s.C, v->dtype,
                                   &v->drop[site]));
  return tri_gpt_gather(v->gpt, v->pass, *slope, rows, v->s.C);
}

// A linear layer (OC, IC) whose weight is the which-th parameter: d_in from d_out, times GELU'(pre)
// where pre is given.
static tri_status linear_backward(const block_view *v, gpt_layer_parameter which, void *d_in,
                                  const void *d_out, const void *in, const void *pre, int64_t IC,
                                  int64_t OC)
{
  if (gives_weights(v))
    TRI_CALL(v->k->linear_backward_weight(v->stream, v->dw[which], v->dw[which + 1], d_out, in,
                                          v->s.N, IC, OC, v->dtype));
  if (gives_input(v))
    TRI_CALL(v->k->linear_backward_input(v->stream, d_in, d_out, v->w[which], pre, v->s.N, IC, OC,
                                         v->dtype));
  return TRI_OK;
}

// The same for one whose input is a norm's output, which was gathered: d_in has this share's rows.
static tri_status gathered_linear_backward(const block_view *v, gpt_layer_parameter which,
                                           void *d_in, const void *d_out, const void *in,
                                           int64_t OC)
{
  void *whole = v->gpt->n_shares == 1 ? d_in : v->whole;
  TRI_CALL(linear_backward(v, which, whole, d_out, in, NULL, v->s.C, OC));
  return gives_input(v) ? tri_gpt_scatter_sum(v->gpt, v->pass, d_in, whole, v->s.C) : TRI_OK;
}

// Adds to d_hidden. The kernel gives both kinds of gradients: a half wants one, the other goes
// where it is not read. That is cheaper than it looks, since norms are a small part of a block, and
// the sums are those of a whole backward, bit for bit.
static tri_status norm_backward(const block_view *v, gpt_layer_parameter which, void *d_hidden,
                                const void *d_out, const void *x, const float *mean,
                                const float *rstd)
{
  const int64_t C = v->s.C, R = v->s.R;
  float *dw = v->dw[which], *db = v->dw[which + 1];
  void *dx = d_hidden;
  if (!gives_weights(v)) {
    dw = v->unused;
    db = v->unused + C;
    TRI_CALL(v->k->fill(v->stream, v->unused, 0.0f, 2 * C));
  }
  if (!gives_input(v)) {
    dx = v->whole;
    TRI_CALL(v->k->fill(v->stream, dx, 0.0f, R * C * (int64_t)tri_dtype_size(v->dtype) / 4));
  }
  return v->k->layernorm_backward(v->stream, dx, dw, db, d_out, x, v->w[which], mean, rstd, R, C,
                                  v->dtype);
}

// From dy to dr, in place in d_hidden.
static tri_status mlp_backward(block_view *v, void *d_hidden)
{
  const int64_t C = v->s.C, F = v->s.F;
  TRI_CALL(close_branch(v, GPT_SITE_RESIDUAL_2, d_hidden, &v->d_fc_proj));
  TRI_CALL(linear_backward(v, GPT_FC_PROJ_WEIGHT, v->d_fc, v->d_fc_proj, v->act, v->fc, F, C));
  TRI_CALL(gathered_linear_backward(v, GPT_FC_WEIGHT, v->d_ln_2, v->d_fc, v->ln_2, F));
  return norm_backward(v, GPT_LN_2_WEIGHT, d_hidden, v->d_ln_2, v->residual, v->ln_2_mean,
                       v->ln_2_rstd);
}

// From dr to dx, in place in d_hidden.
static tri_status attention_backward(block_view *v, const void *x, void *d_hidden)
{
  const gpt_sizes *s = &v->s;
  void *d_att = v->whole;
  TRI_CALL(close_branch(v, GPT_SITE_RESIDUAL_1, d_hidden, &v->d_attn_proj));
  TRI_CALL(
      linear_backward(v, GPT_ATTN_PROJ_WEIGHT, d_att, v->d_attn_proj, v->att, NULL, s->A, s->C));
  if (gives_input(v))
    TRI_CALL(v->k->attention_backward(v->stream, v->d_attn, v->delta, d_att, v->qkv, v->att, v->lse,
                                      s->B, s->T, s->H, s->D, v->dtype,
                                      &v->drop[GPT_SITE_ATTENTION]));
  TRI_CALL(gathered_linear_backward(v, GPT_ATTN_WEIGHT, v->d_ln_1, v->d_attn, v->ln_1, 3 * s->A));
  return norm_backward(v, GPT_LN_1_WEIGHT, d_hidden, v->d_ln_1, x, v->ln_1_mean, v->ln_1_rstd);
}

tri_status tri_gpt_block_backward(const tri_gpt *gpt, int layer, const tri_pass *pass)
{
  block_view v;
  view_block(&v, gpt, layer, pass, pass->part != TRI_BACKWARD_INPUT);
  TRI_CALL(mlp_backward(&v, pass->d_hidden));
  return attention_backward(&v, pass->hidden_in, pass->d_hidden);
}
