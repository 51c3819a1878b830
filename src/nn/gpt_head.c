// Both ends of the chain: the embedding, and the final norm with the head (tied to the embedding)
// and the loss.
//
// The head works on HEAD_ROWS rows at a time, so that the logits, the largest array of a GPT by
// far, are never there as a whole: a chunk's logits live in scratch, turn into their own gradient,
// and are spent on the gradients of the embedding and of the norm's output before the next chunk.
// So in training the head's backward happens in its forward, and what it saves is the gradient of
// the norm's output, which takes the place of that output chunk by chunk.
#include "nn/gpt_model.h"

// Each chunk reads and writes the embedding's gradient (Vp, C) once while it does 6 HEAD_ROWS flops
// on every element of it; larger chunks cost HEAD_ROWS * Vp elements of scratch and gain little.
enum { HEAD_ROWS = 1024 };

static tri_dropout embedding_dropout(const tri_gpt *gpt, const tri_pass *pass)
{
  return (tri_dropout){
      .p = pass->training ? gpt->config.dropout : 0.0f,
      .key = gpt->embedding_key,
      .first_sample = pass->batch->first_sample,
  };
}

tri_status tri_gpt_embedding_forward(const tri_gpt *gpt, const tri_pass *pass)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const tri_batch *batch = pass->batch;
  const tri_dropout dropout = embedding_dropout(gpt, pass);
  TRI_CALL(k->embedding_forward(
      pass->stream, pass->hidden_out, batch->tokens, tri_gpt_weight(gpt, pass->weights, 0, GPT_WTE),
      tri_gpt_weight(gpt, pass->weights, 0, GPT_WPE), batch->B, batch->T, gpt->config.width, 0,
      gpt->padded_vocab, 0, gpt->model.dtype, &dropout));
  return TRI_OK;
}

tri_status tri_gpt_embedding_backward(const tri_gpt *gpt, const tri_pass *pass)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const tri_batch *batch = pass->batch;
  const tri_dropout dropout = embedding_dropout(gpt, pass);
  const gpt_sizes s = tri_gpt_sizes(gpt, batch->B, batch->T);
  const void *d_out = pass->part == TRI_BACKWARD_WEIGHT ? pass->kept : pass->d_hidden;
  if (pass->part == TRI_BACKWARD_INPUT)
    return tri_stream_copy_on_device(pass->stream, pass->kept, d_out,
                                     (size_t)(s.N * s.C) * tri_dtype_size(gpt->model.dtype));
  TRI_CALL(k->embedding_backward(pass->stream, tri_gpt_gradient(gpt, pass->gradients, 0, GPT_WTE),
                                 tri_gpt_gradient(gpt, pass->gradients, 0, GPT_WPE), d_out,
                                 batch->tokens, batch->B, batch->T, gpt->config.width, 0,
                                 gpt->padded_vocab, gpt->model.dtype, &dropout));
  return TRI_OK;
}

typedef struct saved_layout {
  size_t norm; // (N, C): the norm's output, then (in training) its gradient
  size_t mean, rstd;
  size_t size_bytes;
} saved_layout;

static saved_layout lay_out_saved(const gpt_sizes *s, tri_dtype dtype)
{
  saved_layout o = {0};
  o.norm = tri_gpt_take(&o.size_bytes, s->N * s->C, tri_dtype_size(dtype));
  o.mean = tri_gpt_take(&o.size_bytes, s->N, sizeof(float));
  o.rstd = tri_gpt_take(&o.size_bytes, s->N, sizeof(float));
  return o;
}

size_t tri_gpt_head_saved_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  return lay_out_saved(sizes, gpt->model.dtype).size_bytes;
}

size_t tri_gpt_head_scratch_bytes(const tri_gpt *gpt, const gpt_sizes *sizes)
{
  const int64_t rows = sizes->N < HEAD_ROWS ? sizes->N : HEAD_ROWS;
  size_t size_bytes = 0;
  (void)tri_gpt_take(&size_bytes, rows * gpt->padded_vocab, tri_dtype_size(gpt->model.dtype));
  return size_bytes;
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

// Rows [first, first + rows) of the norm's output: their losses, and in training the gradients.
static tri_status classify_rows(const tri_gpt *gpt, const tri_pass *pass, char *norm, int64_t first,
                                int64_t rows)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const tri_dtype dtype = gpt->model.dtype;
  const int64_t C = gpt->config.width, V = gpt->config.vocab_size, Vp = gpt->padded_vocab;
  const void *wte = tri_gpt_head_weight(gpt, pass->weights);
  void *x = norm + (size_t)(first * C) * tri_dtype_size(dtype);
  void *logits = pass->scratch;
  float *losses = pass->losses + first;
  const int32_t *targets = pass->batch->targets + first;
  TRI_CALL(k->linear_forward(pass->stream, logits, NULL, x, wte, NULL, rows, C, Vp, dtype));
  if (!pass->training) {
    TRI_CALL(k->cross_entropy_forward(pass->stream, losses, logits, targets, rows, V, Vp, dtype));
    return TRI_OK;
  }
  TRI_CALL(k->cross_entropy_backward(pass->stream, losses, logits, targets, pass->batch->loss_scale,
                                     rows, V, Vp, dtype));
  TRI_CALL(k->linear_backward_weight(pass->stream, tri_gpt_head_gradient(gpt, pass->gradients),
                                     NULL, logits, x, rows, C, Vp, dtype));
  // The last use of these rows of x was above: their gradient takes their place.
  TRI_CALL(k->linear_backward_input(pass->stream, x, logits, wte, NULL, rows, C, Vp, dtype));
  return TRI_OK;
}

tri_status tri_gpt_head_forward(const tri_gpt *gpt, const tri_pass *pass)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(pass->stream));
  const gpt_sizes s = tri_gpt_sizes(gpt, pass->batch->B, pass->batch->T);
  const saved_layout saved = lay_out_saved(&s, gpt->model.dtype);
  char *base = pass->saved;
  const int block = gpt->model.n_blocks - 1;
  TRI_CALL(k->layernorm_forward(pass->stream, base + saved.norm, (float *)(base + saved.mean),
                                (float *)(base + saved.rstd), pass->hidden_in,
                                tri_gpt_weight(gpt, pass->weights, block, GPT_LN_F_WEIGHT),
                                tri_gpt_weight(gpt, pass->weights, block, GPT_LN_F_BIAS), s.N, s.C,
                                GPT_EPS, gpt->model.dtype));
  for (int64_t first = 0; first < s.N; first += HEAD_ROWS) {
    const int64_t rows = s.N - first < HEAD_ROWS ? s.N - first : HEAD_ROWS;
    TRI_CALL(classify_rows(gpt, pass, base + saved.norm, first, rows));
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
  // The norm adds to its input's gradient, and here begins the chain. Zero is zero bits in every
  // type, and a bf16 model has an even width.
  const int64_t words = s.N * s.C * (int64_t)tri_dtype_size(gpt->model.dtype) / 4;
  TRI_CALL(k->fill(pass->stream, pass->d_hidden, 0.0f, words));
  TRI_CALL(k->layernorm_backward(
      pass->stream, pass->d_hidden, tri_gpt_gradient(gpt, pass->gradients, block, GPT_LN_F_WEIGHT),
      tri_gpt_gradient(gpt, pass->gradients, block, GPT_LN_F_BIAS), base + saved.norm,
      pass->hidden_in, tri_gpt_weight(gpt, pass->weights, block, GPT_LN_F_WEIGHT),
      (const float *)(base + saved.mean), (const float *)(base + saved.rstd), s.N, s.C,
      gpt->model.dtype));
  return TRI_OK;
}
