// Both ends of the chain: the embedding, and the final norm with the head (tied to the embedding)
// and the loss.
//
// The head works on HEAD_ROWS rows at a time, so that the logits, the largest array of a GPT by
// far, are never there as a whole: a chunk's logits live in scratch, turn into their own gradient,
// and are spent on the gradients of the embedding and of the norm's output before the next chunk.
// So in training the head's backward happens in its forward, and what it saves is the gradient of
// the norm's output, which takes the place of that output chunk by chunk.
//
// A share (model.h) has some of the vocabulary. It looks up its own tokens, and the sum over the
// shares, each row of which has one addend that is not zero, goes to whoever has the row. In the
// head it has some of the logits of all rows: the shares bring together three numbers a row
// (Shoeybi et al. 2019, section 3).
#include "nn/gpt_model.h"

// Each chunk reads and writes the embedding's gradient (Vp, C) once while it does 6 HEAD_ROWS flops
// on every element of it; larger chunks cost HEAD_ROWS * Vp elements of scratch and gain little.
enum { HEAD_ROWS = 1024 };

// --- the embedding

static tri_dropout embedding_dropout(const tri_gpt *gpt, const tri_pass *pass, int64_t first)
{
  return (tri_dropout){
      .p = pass->training ? gpt->config.dropout : 0.0f,
      .key = gpt->embedding_key,
      .first_sample = pass->batch->first_sample,
      .first = first,
  };
}

// Of a share: (N, C) of what it looked up, or of the gradient of all rows.
size_t tri_gpt_embedding_scratch_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  size_t size_bytes = 0;
  if (gpt->n_shares > 1)
    (void)tri_gpt_take(&size_bytes, sizes->N * sizes->C, tri_dtype_size(gpt->model.dtype));
  return size_bytes;
}

tri_status tri_gpt_embedding_forward(const tri_gpt *gpt, const tri_pass *pass)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const tri_batch *batch = pass->batch;
  const gpt_sizes s = tri_gpt_sizes(gpt, batch->B, batch->T);
  const tri_dtype dtype = gpt->model.dtype;
  const void *wte = tri_gpt_weight(gpt, pass->weights, 0, GPT_WTE);
  const void *wpe = tri_gpt_weight(gpt, pass->weights, 0, GPT_WPE);
  const tri_dropout dropout = embedding_dropout(gpt, pass, gpt->share * s.R);
  if (gpt->n_shares == 1)
    return k->embedding_forward(pass->stream, pass->hidden_out, batch->tokens, wte, wpe, s.B, s.T,
                                s.C, 0, gpt->held_vocab, 0, dtype, &dropout);
  TRI_CALL(k->embedding_forward(pass->stream, pass->scratch, batch->tokens, wte, NULL, s.B, s.T,
                                s.C, gpt->first_token, gpt->held_vocab, 0, dtype, NULL));
  TRI_CALL(tri_gpt_scatter_sum(gpt, pass, pass->hidden_out, pass->scratch, s.C));
  return k->positions_forward(pass->stream, pass->hidden_out, pass->hidden_out, wpe, s.R, s.T, s.C,
                              0, dtype, &dropout);
}

// d_out (R, C) is lost where there are shares.
static tri_status embedding_gradients(const tri_gpt *gpt, const tri_pass *pass, void *d_out)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const tri_batch *batch = pass->batch;
  const gpt_sizes s = tri_gpt_sizes(gpt, batch->B, batch->T);
  const tri_dtype dtype = gpt->model.dtype;
  float *dwte = tri_gpt_gradient(gpt, pass->gradients, 0, GPT_WTE);
  float *dwpe = tri_gpt_gradient(gpt, pass->gradients, 0, GPT_WPE);
  const tri_dropout dropout = embedding_dropout(gpt, pass, gpt->share * s.R);
  if (gpt->n_shares == 1)
    return k->embedding_backward(pass->stream, dwte, dwpe, d_out, batch->tokens, s.B, s.T, s.C, 0,
                                 gpt->held_vocab, dtype, &dropout);
  TRI_CALL(k->positions_backward(pass->stream, d_out, dwpe, d_out, s.R, s.T, s.C, dtype, &dropout));
  TRI_CALL(tri_gpt_gather(gpt, pass, pass->scratch, d_out, s.C));
  return k->embedding_backward(pass->stream, dwte, NULL, pass->scratch, batch->tokens, s.B, s.T,
                               s.C, gpt->first_token, gpt->held_vocab, dtype, NULL);
}

tri_status tri_gpt_embedding_backward(const tri_gpt *gpt, const tri_pass *pass)
{
  const gpt_sizes s = tri_gpt_sizes(gpt, pass->batch->B, pass->batch->T);
  if (pass->part == TRI_BACKWARD_INPUT)
    return tri_stream_copy_on_device(pass->stream, pass->kept, pass->d_hidden,
                                     (size_t)(s.R * s.C) * tri_dtype_size(gpt->model.dtype));
  return embedding_gradients(gpt, pass,
                             pass->part == TRI_BACKWARD_WEIGHT ? pass->kept : pass->d_hidden);
}

// --- the head

typedef struct saved_layout {
  size_t norm; // (N, C): the norm's output, then (in training) its gradient
  size_t mean, rstd;
  size_t size_bytes;
} saved_layout;

static saved_layout lay_out_saved(const gpt_sizes *s, tri_dtype dtype)
{
  saved_layout o = {0};
  o.norm = tri_gpt_take(&o.size_bytes, s->N * s->C, tri_dtype_size(dtype));
  o.mean = tri_gpt_take(&o.size_bytes, s->R, sizeof(float));
  o.rstd = tri_gpt_take(&o.size_bytes, s->R, sizeof(float));
  return o;
}

size_t tri_gpt_head_saved_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  return lay_out_saved(sizes, gpt->model.dtype).size_bytes;
}

typedef struct scratch_layout {
  size_t logits;            // (HEAD_ROWS, Vp); in backward (R, C) of a share instead
  size_t own, all, softmax; // of shares, f32: (HEAD_ROWS, 3), that of all, (HEAD_ROWS, 2)
  size_t size_bytes;
} scratch_layout;

static scratch_layout lay_out_scratch(const tri_gpt *gpt, const gpt_sizes *s)
{
  const int64_t rows = s->N < HEAD_ROWS ? s->N : HEAD_ROWS;
  const size_t element = tri_dtype_size(gpt->model.dtype);
  const int64_t logits = rows * gpt->padded_vocab, norm = s->R * s->C;
  scratch_layout o = {0};
  if (gpt->n_shares == 1) {
    o.logits = tri_gpt_take(&o.size_bytes, logits, element);
    return o;
  }
  o.logits = tri_gpt_take(&o.size_bytes, logits > norm ? logits : norm, element);
  o.own = tri_gpt_take(&o.size_bytes, rows * 3, sizeof(float));
  o.all = tri_gpt_take(&o.size_bytes, gpt->n_shares * rows * 3, sizeof(float));
  o.softmax = tri_gpt_take(&o.size_bytes, rows * 2, sizeof(float));
  return o;
}

size_t tri_gpt_head_scratch_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  return lay_out_scratch(gpt, sizes).size_bytes;
}

tri_status tri_gpt_head_prepare(const tri_gpt *gpt, tri_stream *stream, int64_t N)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(stream));
  const int64_t C = gpt->config.width, Vp = gpt->padded_vocab;
  if (N >= HEAD_ROWS) TRI_CALL(k->linear_prepare(stream, HEAD_ROWS, C, Vp, gpt->model.dtype));
  if (N % HEAD_ROWS != 0)
    TRI_CALL(k->linear_prepare(stream, N % HEAD_ROWS, C, Vp, gpt->model.dtype));
  return TRI_OK;
}

// Some rows of the norm's output.
typedef struct head_rows {
  int64_t n;
  void *x;      // (n, C)
  void *logits; // (n, Vp)
  float *losses;
  const int32_t *targets;
} head_rows;

// Losses, and in training the logits' gradients in their place.
static tri_status losses_of_rows(const tri_gpt *gpt, const tri_pass *pass, const head_rows *rows)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const int64_t V = gpt->held_vocab, Vp = gpt->padded_vocab;
  if (!pass->training)
    return k->cross_entropy_forward(pass->stream, rows->losses, rows->logits, rows->targets,
                                    rows->n, V, Vp, gpt->model.dtype);
  return k->cross_entropy_backward(pass->stream, rows->losses, rows->logits, rows->targets,
                                   pass->batch->loss_scale, rows->n, V, Vp, gpt->model.dtype);
}

// The same of a share's logits.
static tri_status losses_of_share(const tri_gpt *gpt, const tri_pass *pass, const head_rows *rows)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const gpt_sizes s = tri_gpt_sizes(gpt, pass->batch->B, pass->batch->T);
  const scratch_layout scratch = lay_out_scratch(gpt, &s);
  const int64_t V = gpt->held_vocab, Vp = gpt->padded_vocab;
  float *own = (float *)((char *)pass->scratch + scratch.own);
  float *all = (float *)((char *)pass->scratch + scratch.all);
  float *softmax = (float *)((char *)pass->scratch + scratch.softmax);
  TRI_CALL(k->cross_entropy_statistics(pass->stream, own, rows->logits, rows->targets, rows->n, V,
                                       Vp, gpt->first_token, gpt->model.dtype));
  TRI_CALL(
      pass->seams->gather(pass->seams->user, pass->stream, all, own, rows->n * 3, TRI_DTYPE_F32));
  TRI_CALL(k->cross_entropy_combine(pass->stream, rows->losses, softmax, all, rows->targets,
                                    gpt->n_shares, rows->n));
  if (!pass->training) return TRI_OK;
  return k->cross_entropy_gradient(pass->stream, rows->logits, softmax, rows->targets,
                                   pass->batch->loss_scale, rows->n, V, Vp, gpt->first_token,
                                   gpt->model.dtype);
}

static tri_status classify_rows(const tri_gpt *gpt, const tri_pass *pass, const head_rows *rows)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const tri_dtype dtype = gpt->model.dtype;
  const int64_t C = gpt->config.width, Vp = gpt->padded_vocab;
  const void *wte = pass->tied_weights;
  TRI_CALL(k->linear_forward(pass->stream, rows->logits, NULL, rows->x, wte, NULL, rows->n, C, Vp,
                             dtype));
  TRI_CALL(gpt->n_shares == 1 ? losses_of_rows(gpt, pass, rows) : losses_of_share(gpt, pass, rows));
  if (!pass->training) return TRI_OK;
  TRI_CALL(k->linear_backward_weight(pass->stream, pass->tied_gradients, NULL, rows->logits,
                                     rows->x, rows->n, C, Vp, dtype));
  // The last use of these rows of x was above: their gradient takes their place.
  return k->linear_backward_input(pass->stream, rows->x, rows->logits, wte, NULL, rows->n, C, Vp,
                                  dtype);
}

tri_status tri_gpt_head_forward(const tri_gpt *gpt, const tri_pass *pass)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const gpt_sizes s = tri_gpt_sizes(gpt, pass->batch->B, pass->batch->T);
  const saved_layout saved = lay_out_saved(&s, gpt->model.dtype);
  const scratch_layout scratch = lay_out_scratch(gpt, &s);
  const size_t row_bytes = (size_t)s.C * tri_dtype_size(gpt->model.dtype);
  char *base = pass->saved, *norm = base + saved.norm;
  void *logits = (char *)pass->scratch + scratch.logits;
  void *own_norm = gpt->n_shares == 1 ? norm : logits;
  const int block = gpt->model.n_blocks - 1;
  TRI_CALL(k->layernorm_forward(pass->stream, own_norm, (float *)(base + saved.mean),
                                (float *)(base + saved.rstd), pass->hidden_in,
                                tri_gpt_weight(gpt, pass->weights, block, GPT_LN_F_WEIGHT),
                                tri_gpt_weight(gpt, pass->weights, block, GPT_LN_F_BIAS), s.R, s.C,
                                GPT_EPS, gpt->model.dtype));
  TRI_CALL(tri_gpt_gather(gpt, pass, norm, own_norm, s.C));
  for (int64_t first = 0; first < s.N; first += HEAD_ROWS) {
    const head_rows rows = {.n = s.N - first < HEAD_ROWS ? s.N - first : HEAD_ROWS,
                            .x = norm + (size_t)first * row_bytes,
                            .logits = logits,
                            .losses = pass->losses + first,
                            .targets = pass->batch->targets + first};
    TRI_CALL(classify_rows(gpt, pass, &rows));
  }
  return TRI_OK;
}

// All of it is the first half: the head's own gradients were added in its forward.
tri_status tri_gpt_head_backward(const tri_gpt *gpt, const tri_pass *pass)
{
  if (pass->part == TRI_BACKWARD_WEIGHT) return TRI_OK;
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const gpt_sizes s = tri_gpt_sizes(gpt, pass->batch->B, pass->batch->T);
  const saved_layout saved = lay_out_saved(&s, gpt->model.dtype);
  char *base = pass->saved;
  const int block = gpt->model.n_blocks - 1;
  void *d_norm = gpt->n_shares == 1 ? base + saved.norm
                                    : (char *)pass->scratch + lay_out_scratch(gpt, &s).logits;
  TRI_CALL(tri_gpt_scatter_sum(gpt, pass, d_norm, base + saved.norm, s.C));
  // The norm adds to its input's gradient, and here begins the chain. Zero is zero bits in every
  // type, and a bf16 model has an even width.
  const int64_t words = s.R * s.C * (int64_t)tri_dtype_size(gpt->model.dtype) / 4;
  TRI_CALL(k->fill(pass->stream, pass->d_hidden, 0.0f, words));
  TRI_CALL(k->layernorm_backward(
      pass->stream, pass->d_hidden, tri_gpt_gradient(gpt, pass->gradients, block, GPT_LN_F_WEIGHT),
      tri_gpt_gradient(gpt, pass->gradients, block, GPT_LN_F_BIAS), d_norm, pass->hidden_in,
      tri_gpt_weight(gpt, pass->weights, block, GPT_LN_F_WEIGHT),
      (const float *)(base + saved.mean), (const float *)(base + saved.rstd), s.R, s.C,
      gpt->model.dtype));
  return TRI_OK;
}
