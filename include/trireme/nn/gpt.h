// GPT-2 as published (Radford et al. 2019; pre-norm, learned positions, tanh-GELU, head tied to the
// embedding).
//
// Blocks: 0 embedding (wte, wpe), 1 .. L transformer blocks (h.0 … h.L-1), L + 1 final norm, head
// and loss. Parameter names and shapes are those of the released checkpoints, except that linear
// weights are stored (out, in): wte.weight (V, C), wpe.weight (T, C), h.i.ln_1.{weight,bias} (C),
// h.i.attn.c_attn.weight (3C, C) .bias, h.i.attn.c_proj.weight (C, C) .bias, h.i.ln_2.*,
// h.i.mlp.c_fc.weight (4C, C) .bias, h.i.mlp.c_proj.weight (C, 4C) .bias, ln_f.*. Initialization:
// normal, std 0.02, residual projections 0.02 / sqrt(2 L), wpe 0.02 (the released code has 0.01 for
// wpe), biases 0, norm weights 1.
#pragma once

#include "trireme/nn/model.h"

typedef struct tri_gpt_config {
  int n_layers;       // L
  int n_heads;        // H, divides width
  int width;          // C
  int context;        // largest T
  int vocab_size;     // V
  int vocab_multiple; // rows of wte are padded to a multiple of this, >= 1
  float dropout;      // embedding, attention and residual dropout, 0 <= p < 1
  uint64_t seed;      // of the dropout streams
  tri_dtype dtype;
  const tri_model_part *part; // NULL: all blocks; read by tri_gpt_create only
} tri_gpt_config;

// Fills the shape of a published size: "gpt2-124M", "gpt2-355M", "gpt2-774M", "gpt2-1558M". False:
// no such name.
bool tri_gpt_named_shape(const char *name, tri_gpt_config *out);

// Blocks of the chain of a GPT of so many layers.
int tri_gpt_blocks(int n_layers);

// Flops of a forward pass a token, at T tokens a sample, of each block: (tri_gpt_blocks). Matrix
// products, and causal attention at half its square.
void tri_gpt_block_costs(const tri_gpt_config *config, int T, int64_t *out);

// TRI_ERR_CONFIG with the rule that is broken (heads must divide the width, …). *out owned:
// tri_model_destroy.
TRI_MUST_CHECK tri_status tri_gpt_create(const tri_gpt_config *config, const char *name,
                                         tri_model **out);

// --- generation with a key/value cache

typedef struct tri_gpt_decoder tri_gpt_decoder;

// A decoder for one sequence of up to `context` tokens. model, weights (flat, model dtype, device)
// borrowed. Allocates here and never later. Local. *out owned.
TRI_MUST_CHECK tri_status tri_gpt_decoder_create(const tri_model *model, tri_stream *stream,
                                                 const void *weights, tri_gpt_decoder **out);
void tri_gpt_decoder_destroy(tri_gpt_decoder **decoder);

// Feeds one token at the next position and writes the logits (vocab_size) f32 of what follows to
// host memory (of tri_device_alloc_host). Synchronizes. TRI_ERR_ARGUMENT when the context is full
// or the token is not in the vocabulary.
TRI_MUST_CHECK tri_status tri_gpt_decoder_step(tri_gpt_decoder *decoder, int32_t token,
                                               float *host_logits);

// The position of the next token: how many tokens were fed since the beginning or the last restart.
int tri_gpt_decoder_position(const tri_gpt_decoder *decoder);

// Forgets all tokens: the next one is at position 0.
void tri_gpt_decoder_restart(tri_gpt_decoder *decoder);

// Draws a token from logits (n >= 1): temperature 0 takes the largest (lowest index on ties); top_k
// 0 takes all, else the k largest (lowest indices on ties). `uniform` in [0, 1) decides. Pure.
int32_t tri_sample_token(const float *logits, int n, float temperature, int top_k, double uniform);
