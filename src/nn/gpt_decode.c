#include <string.h>

#include "nn/gpt_model.h"
#include "trireme/base/memory.h"
#include "trireme/device/arena.h"

// Where one token's activations and the caches of all layers live, in bytes from the arena's base.
typedef struct decoder_layout {
  size_t token, x, norm, mean, rstd, qkv, att, delta, residual, fc, act, logits, logits_f32;
  size_t keys, values; // (L, context, H, D)
} decoder_layout;

struct tri_gpt_decoder {
  const tri_gpt *gpt;
  tri_stream *stream;
  const void *weights;
  tri_arena arena;
  decoder_layout at;
  void *host_token; // one int32_t, in memory that copies may run from
  int position;     // of the next token
};

static void reserve(tri_gpt_decoder *d)
{
  const tri_gpt *gpt = d->gpt;
  const size_t element = tri_dtype_size(gpt->model.dtype);
  const size_t C = (size_t)gpt->config.width, Vp = (size_t)gpt->padded_vocab;
  const size_t cache = (size_t)gpt->config.n_layers * (size_t)gpt->config.context * C * element;
  tri_arena *arena = &d->arena;
  d->at = (decoder_layout){
      .token = tri_arena_reserve(arena, sizeof(int32_t)),
      .x = tri_arena_reserve(arena, C * element),
      .norm = tri_arena_reserve(arena, C * element),
      .mean = tri_arena_reserve(arena, sizeof(float)),
      .rstd = tri_arena_reserve(arena, sizeof(float)),
      .qkv = tri_arena_reserve(arena, 3 * C * element),
      .att = tri_arena_reserve(arena, C * element),
      .delta = tri_arena_reserve(arena, C * element),
      .residual = tri_arena_reserve(arena, C * element),
      .fc = tri_arena_reserve(arena, 4 * C * element),
      .act = tri_arena_reserve(arena, 4 * C * element),
      .logits = tri_arena_reserve(arena, Vp * element),
      .logits_f32 = tri_arena_reserve(arena, Vp * sizeof(float)),
      .keys = tri_arena_reserve(arena, cache),
      .values = tri_arena_reserve(arena, cache),
  };
}

static tri_status prepare_products(const tri_gpt_decoder *d)
{
  const gpt_sizes sizes = tri_gpt_sizes(d->gpt, 1, 1);
  TRI_CALL(tri_gpt_block_prepare(d->gpt, d->stream, &sizes));
  TRI_CALL(tri_gpt_head_prepare(d->gpt, d->stream, 1));
  return TRI_OK;
}

tri_status tri_gpt_decoder_create(const tri_model *model, tri_stream *stream, const void *weights,
                                  tri_gpt_decoder **out)
{
  TRI_CHECK(strcmp(model->operations->family, "gpt") == 0, TRI_ERR_ARGUMENT,
            "a decoder of GPT models was given a model of family %s", model->operations->family);
  const tri_parameters *parameters = &model->parameters;
  TRI_CHECK(((const tri_gpt *)model)->n_shares == 1, TRI_ERR_ARGUMENT,
            "a decoder runs whole blocks, and of these a share is held");
  for (int block = 0; block < model->n_blocks; block++) {
    TRI_CHECK(parameters->offsets[block] < parameters->offsets[block + 1], TRI_ERR_ARGUMENT,
              "a decoder runs all blocks, and block %d of %d is not held", block, model->n_blocks);
  }
  tri_status status = TRI_OK;
  tri_gpt_decoder *d = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_NN, 1, &d));
  d->gpt = (const tri_gpt *)model;
  d->stream = stream;
  d->weights = weights;
  tri_arena_begin(&d->arena, tri_stream_device(stream), "decoder");
  reserve(d);
  TRI_CALL_GOTO(err_destroy, tri_arena_commit(&d->arena));
  TRI_CALL_GOTO(err_destroy,
                tri_device_alloc_host(tri_stream_device(stream), sizeof(int32_t), &d->host_token));
  TRI_CALL_GOTO(err_destroy, prepare_products(d));
  *out = d;
  return TRI_OK;

err_destroy:
  tri_gpt_decoder_destroy(&d);
  return status;
}

void tri_gpt_decoder_destroy(tri_gpt_decoder **decoder)
{
  tri_gpt_decoder *d = *decoder;
  if (d == NULL) return;
  tri_device_free_host(tri_stream_device(d->stream), &d->host_token);
  tri_arena_end(&d->arena);
  TRI_FREE(decoder);
}

int tri_gpt_decoder_position(const tri_gpt_decoder *decoder)
{
  return decoder->position;
}

void tri_gpt_decoder_restart(tri_gpt_decoder *decoder)
{
  decoder->position = 0;
}

static const void *weight_of(const tri_gpt_decoder *d, int block, int which)
{
  const tri_model *model = &d->gpt->model;
  const size_t offset = (size_t)model->parameters.offsets[block] * tri_dtype_size(model->dtype);
  return tri_gpt_weight(d->gpt, (const char *)d->weights + offset, block, which);
}

static const void *layer_weight(const tri_gpt_decoder *d, int layer, gpt_layer_parameter which)
{
  return weight_of(d, layer + 1, (int)which);
}

// Block `layer` on the one new row: x is replaced by the block's output. The caches of the layer
// take the new key and value.
static tri_status decode_block(tri_gpt_decoder *d, int layer)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(d->stream));
  const tri_gpt *gpt = d->gpt;
  const gpt_sizes s = tri_gpt_sizes(gpt, 1, 1);
  const tri_dtype dtype = gpt->model.dtype;
  const int64_t C = s.C, T_max = gpt->config.context;
  const size_t cache = (size_t)layer * (size_t)(T_max * C) * tri_dtype_size(dtype);
  char *base = tri_arena_at(&d->arena, 0);
  float *mean = (float *)(base + d->at.mean), *rstd = (float *)(base + d->at.rstd);
  void *x = base + d->at.x, *norm = base + d->at.norm, *delta = base + d->at.delta;
  void *qkv = base + d->at.qkv, *att = base + d->at.att, *residual = base + d->at.residual;
  void *fc = base + d->at.fc, *act = base + d->at.act;

  TRI_CALL(k->layernorm_forward(d->stream, norm, mean, rstd, x,
                                layer_weight(d, layer, GPT_LN_1_WEIGHT),
                                layer_weight(d, layer, GPT_LN_1_BIAS), 1, C, GPT_EPS, dtype));
  TRI_CALL(k->linear_forward(d->stream, qkv, NULL, norm, layer_weight(d, layer, GPT_ATTN_WEIGHT),
                             layer_weight(d, layer, GPT_ATTN_BIAS), 1, C, 3 * C, dtype));
  TRI_CALL(k->attention_decode(d->stream, att, base + d->at.keys + cache,
                               base + d->at.values + cache, qkv, d->position, 1, T_max, s.H, s.D,
                               dtype));
  TRI_CALL(k->linear_forward(d->stream, delta, NULL, att,
                             layer_weight(d, layer, GPT_ATTN_PROJ_WEIGHT),
                             layer_weight(d, layer, GPT_ATTN_PROJ_BIAS), 1, C, C, dtype));
  TRI_CALL(k->residual_layernorm_forward(
      d->stream, residual, norm, mean, rstd, x, delta, layer_weight(d, layer, GPT_LN_2_WEIGHT),
      layer_weight(d, layer, GPT_LN_2_BIAS), 1, 1, C, GPT_EPS, dtype, NULL));
  TRI_CALL(k->linear_forward(d->stream, fc, act, norm, layer_weight(d, layer, GPT_FC_WEIGHT),
                             layer_weight(d, layer, GPT_FC_BIAS), 1, C, 4 * C, dtype));
  TRI_CALL(k->linear_forward(d->stream, delta, NULL, act,
                             layer_weight(d, layer, GPT_FC_PROJ_WEIGHT),
                             layer_weight(d, layer, GPT_FC_PROJ_BIAS), 1, 4 * C, C, dtype));
  TRI_CALL(k->residual_forward(d->stream, x, residual, delta, 1, 1, C, dtype, NULL));
  return TRI_OK;
}

// x (C) -> logits (Vp) in f32.
static tri_status decode_head(tri_gpt_decoder *d)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(d->stream));
  const tri_gpt *gpt = d->gpt;
  const tri_dtype dtype = gpt->model.dtype;
  const int block = gpt->model.n_blocks - 1;
  char *base = tri_arena_at(&d->arena, 0);
  TRI_CALL(k->layernorm_forward(
      d->stream, base + d->at.norm, (float *)(base + d->at.mean), (float *)(base + d->at.rstd),
      base + d->at.x, weight_of(d, block, GPT_LN_F_WEIGHT), weight_of(d, block, GPT_LN_F_BIAS), 1,
      gpt->config.width, GPT_EPS, dtype));
  TRI_CALL(k->linear_forward(d->stream, base + d->at.logits, NULL, base + d->at.norm,
                             weight_of(d, 0, GPT_WTE), NULL, 1, gpt->config.width,
                             gpt->padded_vocab, dtype));
  TRI_CALL(k->convert(d->stream, base + d->at.logits_f32, TRI_DTYPE_F32, base + d->at.logits, dtype,
                      gpt->padded_vocab));
  return TRI_OK;
}

tri_status tri_gpt_decoder_step(tri_gpt_decoder *decoder, int32_t token, float *host_logits)
{
  tri_gpt_decoder *d = decoder;
  const tri_gpt *gpt = d->gpt;
  TRI_CHECK(d->position < gpt->config.context, TRI_ERR_ARGUMENT,
            "the context of %d tokens is full: restart the decoder with its last tokens",
            gpt->config.context);
  TRI_CHECK(token >= 0 && token < gpt->config.vocab_size, TRI_ERR_ARGUMENT,
            "token %d is not in the vocabulary of %d", token, gpt->config.vocab_size);
  const tri_kernels *k = tri_device_kernels(tri_stream_device(d->stream));
  char *base = tri_arena_at(&d->arena, 0);
  memcpy(d->host_token, &token, sizeof token);
  TRI_CALL(tri_stream_copy_to_device(d->stream, base + d->at.token, d->host_token, sizeof token));
  TRI_CALL(k->embedding_forward(d->stream, base + d->at.x, (const int32_t *)(base + d->at.token),
                                weight_of(d, 0, GPT_WTE), weight_of(d, 0, GPT_WPE), 1, 1,
                                gpt->config.width, 0, gpt->padded_vocab, d->position,
                                gpt->model.dtype, NULL));
  for (int layer = 0; layer < gpt->config.n_layers; layer++)
    TRI_CALL(decode_block(d, layer));
  TRI_CALL(decode_head(d));
  TRI_CALL(tri_stream_copy_to_host(d->stream, host_logits, base + d->at.logits_f32,
                                   (size_t)gpt->config.vocab_size * sizeof(float)));
  TRI_CALL(tri_stream_synchronize(d->stream));
  d->position++;
  return TRI_OK;
}
