// The GPT model inside: what creation fixes, and the pieces that forward, backward and decoding
// share. Private to src/nn.
#pragma once

#include "trireme/nn/gpt.h"

// Parameters of one transformer block, in flat order.
typedef enum gpt_layer_parameter {
  GPT_LN_1_WEIGHT,
  GPT_LN_1_BIAS,
  GPT_ATTN_WEIGHT,
  GPT_ATTN_BIAS,
  GPT_ATTN_PROJ_WEIGHT,
  GPT_ATTN_PROJ_BIAS,
  GPT_LN_2_WEIGHT,
  GPT_LN_2_BIAS,
  GPT_FC_WEIGHT,
  GPT_FC_BIAS,
  GPT_FC_PROJ_WEIGHT,
  GPT_FC_PROJ_BIAS,
  GPT_LAYER_PARAMETERS
} gpt_layer_parameter;

// Parameters of block 0 and of the last, in flat order.
enum { GPT_WTE = 0, GPT_WPE = 1, GPT_EMBEDDING_PARAMETERS = 2 };
enum { GPT_LN_F_WEIGHT = 0, GPT_LN_F_BIAS = 1, GPT_HEAD_PARAMETERS = 2 };

// Dropout sites of one transformer block.
typedef enum gpt_site {
  GPT_SITE_ATTENTION,
  GPT_SITE_RESIDUAL_1,
  GPT_SITE_RESIDUAL_2,
  GPT_SITES
} gpt_site;

// Layer norm's epsilon, as published.
#define GPT_EPS 1e-5f

typedef struct tri_gpt {
  tri_model model; // first: a tri_model * is a tri_gpt *
  tri_gpt_config config;
  int share, n_shares;  // of each block, n_shares >= 1
  int64_t padded_vocab; // rows of wte that are held, Vp
  int64_t first_token;  // the first of them …
  int64_t held_vocab;   // … and how many are tokens, V
  int64_t padded_count; // elements of all parameters of the whole model, padding rows included
  int *first_parameter; // (n_blocks): list index of a block's first parameter, -1: not held
  char *name;           // what model.name points at
  uint64_t embedding_key;
  uint64_t *site_keys; // (L, GPT_SITES)
} tri_gpt;

// The sizes of one call. Without shares R = N, A = C, F = 4 C.
typedef struct gpt_sizes {
  int64_t B, T, C, D, N; // N = B * T, D = C / all heads
  int64_t H, A, F;       // of the share: heads, their width A = H D, width of the feed-forward part
  int64_t R;             // of the share: rows of hidden states
} gpt_sizes;

gpt_sizes tri_gpt_sizes(const tri_gpt *gpt, int B, int T);

// Weights and gradients of the which-th parameter of a block that is held, in those of the block.
const void *tri_gpt_weight(const tri_gpt *gpt, const void *weights, int block, int which);
float *tri_gpt_gradient(const tri_gpt *gpt, float *gradients, int block, int which);

// Between shares; each does nothing where there is one, and `whole` and `part` are the same memory.
// whole (N, width) from part (R, width) of all shares.
tri_status tri_gpt_gather(const tri_gpt *gpt, const tri_pass *pass, void *whole, const void *part,
                          int64_t width);
// part (R, width): the rows of this share of the sum of all wholes (N, width), which are lost.
tri_status tri_gpt_scatter_sum(const tri_gpt *gpt, const tri_pass *pass, void *part, void *whole,
                               int64_t width);

// Takes a piece of count * size bytes at the end of a layout, aligned to 256 bytes; returns its
// offset.
size_t tri_gpt_take(size_t *end_bytes, int64_t count, size_t size);

// Block 0 (gpt_head.c).
size_t tri_gpt_embedding_scratch_bytes(const tri_gpt *gpt, const gpt_sizes *sizes);
tri_status tri_gpt_embedding_forward(const tri_gpt *gpt, const tri_pass *pass);
tri_status tri_gpt_embedding_backward(const tri_gpt *gpt, const tri_pass *pass);

// Blocks 1 .. L (gpt_block.c); layer counts from 0.
size_t tri_gpt_block_saved_bytes(const tri_gpt *gpt, const gpt_sizes *sizes);
size_t tri_gpt_block_kept_bytes(const tri_gpt *gpt, const gpt_sizes *sizes);
size_t tri_gpt_block_scratch_bytes(const tri_gpt *gpt, const gpt_sizes *sizes);
tri_status tri_gpt_block_prepare(const tri_gpt *gpt, tri_stream *stream, const gpt_sizes *sizes);
tri_status tri_gpt_block_forward(const tri_gpt *gpt, int layer, const tri_pass *pass);
tri_status tri_gpt_block_backward(const tri_gpt *gpt, int layer, const tri_pass *pass);

// Block L + 1 (gpt_head.c).
size_t tri_gpt_head_saved_bytes(const tri_gpt *gpt, const gpt_sizes *sizes);
size_t tri_gpt_head_scratch_bytes(const tri_gpt *gpt, const gpt_sizes *sizes);
tri_status tri_gpt_head_prepare(const tri_gpt *gpt, tri_stream *stream, int64_t N);
tri_status tri_gpt_head_forward(const tri_gpt *gpt, const tri_pass *pass);
tri_status tri_gpt_head_backward(const tri_gpt *gpt, const tri_pass *pass);
