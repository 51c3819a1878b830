// One transformer block (Radford et al. 2019, section 2.3; names of the released code):
//
//   ln_1 = norm(x);  qkv = ln_1 Wa + ba;  att = attention(qkv);  r = x + drop(att Wp + bp)
//   ln_2 = norm(r);  fc = ln_2 Wf + bf;   act = GELU(fc);        y = r + drop(act Wo + bo)
//
// Saved from forward to backward, 16 N C elements and a little: ln_1, qkv, att, r, ln_2, fc, act,
// with the means, reciprocal deviations and log sums in f32. x is the driver's, y the next block's.
#include "nn/gpt_model.h"

// Offsets of what is kept, in bytes.
typedef struct saved_layout {
  size_t ln_1, ln_1_mean, ln_1_rstd, qkv, att, lse, residual, ln_2, ln_2_mean, ln_2_rstd, fc, act;
  size_t size_bytes;
} saved_layout;

static saved_layout lay_out_saved(const gpt_sizes *s, tri_dtype dtype)
{
  const size_t element = tri_dtype_size(dtype);
  const int64_t NC = s->N * s->C;
  saved_layout o = {0};
  o.ln_1 = tri_gpt_take(&o.size_bytes, NC, element);
  o.ln_1_mean = tri_gpt_take(&o.size_bytes, s->N, sizeof(float));
  o.ln_1_rstd = tri_gpt_take(&o.size_bytes, s->N, sizeof(float));
  o.qkv = tri_gpt_take(&o.size_bytes, 3 * NC, element);
  o.att = tri_gpt_take(&o.size_bytes, NC, element);
  o.lse = tri_gpt_take(&o.size_bytes, s->N * s->H, sizeof(float));
  o.residual = tri_gpt_take(&o.size_bytes, NC, element);
  o.ln_2 = tri_gpt_take(&o.size_bytes, NC, element);
  o.ln_2_mean = tri_gpt_take(&o.size_bytes, s->N, sizeof(float));
  o.ln_2_rstd = tri_gpt_take(&o.size_bytes, s->N, sizeof(float));
  o.fc = tri_gpt_take(&o.size_bytes, 4 * NC, element);
  o.act = tri_gpt_take(&o.size_bytes, 4 * NC, element);
  return o;
}

typedef struct scratch_layout {
  size_t narrow, wide, delta; // (N, C), (N, 4C), (B, H, T) f32
  size_t narrow_2;            // (N, C)
  size_t size_bytes;
} scratch_layout;

static scratch_layout lay_out_scratch(const gpt_sizes *s, tri_dtype dtype)
{
  const size_t element = tri_dtype_size(dtype);
  scratch_layout o = {0};
  o.narrow = tri_gpt_take(&o.size_bytes, s->N * s->C, element);
  o.narrow_2 = tri_gpt_take(&o.size_bytes, s->N * s->C, element);
  o.wide = tri_gpt_take(&o.size_bytes, 4 * s->N * s->C, element);
  o.delta = tri_gpt_take(&o.size_bytes, s->N * s->H, sizeof(float));
  return o;
}

size_t tri_gpt_block_saved_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  return lay_out_saved(sizes, gpt->model.dtype).size_bytes;
}

size_t tri_gpt_block_scratch_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  return lay_out_scratch(sizes, gpt->model.dtype).size_bytes;
}

tri_status tri_gpt_block_prepare(const tri_gpt *gpt, tri_stream *stream, int64_t N)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(stream));
  const int64_t C = gpt->config.width;
  TRI_CALL(k->linear_prepare(stream, N, C, 3 * C, gpt->model.dtype));
  TRI_CALL(k->linear_prepare(stream, N, C, C, gpt->model.dtype));
  TRI_CALL(k->linear_prepare(stream, N, C, 4 * C, gpt->model.dtype));
  TRI_CALL(k->linear_prepare(stream, N, 4 * C, C, gpt->model.dtype));
  return TRI_OK;
}

// What forward and backward of one block look at: sizes, weights and gradients of the layer,
// pointers into the saved and the scratch memory.
typedef struct block_view {
  const tri_kernels *k;
  tri_stream *stream;
  gpt_sizes s;
  tri_dtype dtype;
  const void *w[GPT_LAYER_PARAMETERS];
  float *dw[GPT_LAYER_PARAMETERS]; // NULL in forward
  tri_dropout drop[GPT_SITES];
  void *ln_1, *qkv, *att, *residual, *ln_2, *fc, *act;
  float *ln_1_mean, *ln_1_rstd, *lse, *ln_2_mean, *ln_2_rstd;
  void *narrow, *narrow_2, *wide;
  float *delta;
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
  v->narrow = base + scratch.narrow;
  v->narrow_2 = base + scratch.narrow_2;
  v->wide = base + scratch.wide;
  v->delta = (float *)(base + scratch.delta);
}

static void view_block(block_view *v, const tri_gpt *gpt, int layer, const tri_pass *pass,
                       bool gradients)
{
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
    };
  }
  point_into_memory(v, pass);
}

tri_status tri_gpt_block_forward(const tri_gpt *gpt, int layer, const tri_pass *pass)
{
  block_view v;
  view_block(&v, gpt, layer, pass, false);
  const int64_t B = v.s.B, T = v.s.T, C = v.s.C, N = v.s.N;
  TRI_CALL(v.k->layernorm_forward(v.stream, v.ln_1, v.ln_1_mean, v.ln_1_rstd, pass->hidden_in,
                                  v.w[GPT_LN_1_WEIGHT], v.w[GPT_LN_1_BIAS], N, C, GPT_EPS,
                                  v.dtype));
  TRI_CALL(v.k->linear_forward(v.stream, v.qkv, NULL, v.ln_1, v.w[GPT_ATTN_WEIGHT],
                               v.w[GPT_ATTN_BIAS], N, C, 3 * C, v.dtype));
  TRI_CALL(v.k->attention_forward(v.stream, v.att, v.lse, v.qkv, B, T, v.s.H, v.s.D, v.dtype,
                                  &v.drop[GPT_SITE_ATTENTION]));
  TRI_CALL(v.k->linear_forward(v.stream, v.narrow, NULL, v.att, v.w[GPT_ATTN_PROJ_WEIGHT],
                               v.w[GPT_ATTN_PROJ_BIAS], N, C, C, v.dtype));
  TRI_CALL(v.k->residual_layernorm_forward(v.stream, v.residual, v.ln_2, v.ln_2_mean, v.ln_2_rstd,
                                           pass->hidden_in, v.narrow, v.w[GPT_LN_2_WEIGHT],
                                           v.w[GPT_LN_2_BIAS], B, T, C, GPT_EPS, v.dtype,
                                           &v.drop[GPT_SITE_RESIDUAL_1]));
  TRI_CALL(v.k->linear_forward(v.stream, v.fc, v.act, v.ln_2, v.w[GPT_FC_WEIGHT], v.w[GPT_FC_BIAS],
                               N, C, 4 * C, v.dtype));
  TRI_CALL(v.k->linear_forward(v.stream, v.narrow, NULL, v.act, v.w[GPT_FC_PROJ_WEIGHT],
                               v.w[GPT_FC_PROJ_BIAS], N, 4 * C, C, v.dtype));
  TRI_CALL(v.k->residual_forward(v.stream, pass->hidden_out, v.residual, v.narrow, B, T, C, v.dtype,
                                 &v.drop[GPT_SITE_RESIDUAL_2]));
  return TRI_OK;
}

// The gradient of the branch that site's dropout closes: d_hidden itself when nothing is dropped,
// so that no copy is made.
static tri_status branch_gradient(const block_view *v, gpt_site site, const void *d_hidden,
                                  const void **out)
{
  *out = d_hidden;
  if (v->drop[site].p == 0.0f) return TRI_OK;
  TRI_CALL(v->k->residual_backward(v->stream, v->narrow, d_hidden, v->s.B, v->s.T, v->s.C, v->dtype,
                                   &v->drop[site]));
  *out = v->narrow;
  return TRI_OK;
}

// From dy to dr, in place in d_hidden.
static tri_status mlp_backward(const block_view *v, void *d_hidden)
{
  const int64_t N = v->s.N, C = v->s.C;
  const void *dout;
  TRI_CALL(branch_gradient(v, GPT_SITE_RESIDUAL_2, d_hidden, &dout));
  TRI_CALL(v->k->linear_backward_weight(v->stream, v->dw[GPT_FC_PROJ_WEIGHT],
                                        v->dw[GPT_FC_PROJ_BIAS], dout, v->act, N, 4 * C, C,
                                        v->dtype));
  TRI_CALL(v->k->linear_backward_input(v->stream, v->wide, dout, v->w[GPT_FC_PROJ_WEIGHT], v->fc, N,
                                       4 * C, C, v->dtype));
  TRI_CALL(v->k->linear_backward_weight(v->stream, v->dw[GPT_FC_WEIGHT], v->dw[GPT_FC_BIAS],
                                        v->wide, v->ln_2, N, C, 4 * C, v->dtype));
  TRI_CALL(v->k->linear_backward_input(v->stream, v->narrow, v->wide, v->w[GPT_FC_WEIGHT], NULL, N,
                                       C, 4 * C, v->dtype));
  TRI_CALL(v->k->layernorm_backward(
      v->stream, d_hidden, v->dw[GPT_LN_2_WEIGHT], v->dw[GPT_LN_2_BIAS], v->narrow, v->residual,
      v->w[GPT_LN_2_WEIGHT], v->ln_2_mean, v->ln_2_rstd, N, C, v->dtype));
  return TRI_OK;
}

// From dr to dx, in place in d_hidden.
static tri_status attention_backward(const block_view *v, const void *x, void *d_hidden)
{
  const int64_t N = v->s.N, C = v->s.C;
  const void *dout;
  TRI_CALL(branch_gradient(v, GPT_SITE_RESIDUAL_1, d_hidden, &dout));
  TRI_CALL(v->k->linear_backward_weight(v->stream, v->dw[GPT_ATTN_PROJ_WEIGHT],
                                        v->dw[GPT_ATTN_PROJ_BIAS], dout, v->att, N, C, C,
                                        v->dtype));
  TRI_CALL(v->k->linear_backward_input(v->stream, v->narrow_2, dout, v->w[GPT_ATTN_PROJ_WEIGHT],
                                       NULL, N, C, C, v->dtype));
  TRI_CALL(v->k->attention_backward(v->stream, v->wide, v->delta, v->narrow_2, v->qkv, v->att,
                                    v->lse, v->s.B, v->s.T, v->s.H, v->s.D, v->dtype,
                                    &v->drop[GPT_SITE_ATTENTION]));
  TRI_CALL(v->k->linear_backward_weight(v->stream, v->dw[GPT_ATTN_WEIGHT], v->dw[GPT_ATTN_BIAS],
                                        v->wide, v->ln_1, N, C, 3 * C, v->dtype));
  TRI_CALL(v->k->linear_backward_input(v->stream, v->narrow, v->wide, v->w[GPT_ATTN_WEIGHT], NULL,
                                       N, C, 3 * C, v->dtype));
  TRI_CALL(v->k->layernorm_backward(v->stream, d_hidden, v->dw[GPT_LN_1_WEIGHT],
                                    v->dw[GPT_LN_1_BIAS], v->narrow, x, v->w[GPT_LN_1_WEIGHT],
                                    v->ln_1_mean, v->ln_1_rstd, N, C, v->dtype));
  return TRI_OK;
}

tri_status tri_gpt_block_backward(const tri_gpt *gpt, int layer, const tri_pass *pass)
{
  block_view v;
  view_block(&v, gpt, layer, pass, true);
  TRI_CALL(mlp_backward(&v, pass->d_hidden));
  TRI_CALL(attention_backward(&v, pass->hidden_in, pass->d_hidden));
  return TRI_OK;
}
