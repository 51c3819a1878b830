#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nn/gpt_model.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

// --- shapes

typedef struct named_shape {
  const char *name;
  int n_layers, n_heads, width;
} named_shape;

// Radford et al. 2019, table 2; the counts of parameters are those of the released models.
static const named_shape shapes[] = {
    {"gpt2-124M", 12, 12, 768},
    {"gpt2-355M", 24, 16, 1024},
    {"gpt2-774M", 36, 20, 1280},
    {"gpt2-1558M", 48, 25, 1600},
};

bool tri_gpt_named_shape(const char *name, tri_gpt_config *out)
{
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    if (strcmp(shapes[i].name, name) != 0) continue;
    *out = (tri_gpt_config){
        .n_layers = shapes[i].n_layers,
        .n_heads = shapes[i].n_heads,
        .width = shapes[i].width,
        .context = 1024,
        .vocab_size = 50257,
        .vocab_multiple = 128,
        .dtype = TRI_DTYPE_F32,
    };
    return true;
  }
  return false;
}

int tri_gpt_blocks(int n_layers)
{
  return n_layers + 2;
}

static int64_t round_up(int64_t n, int64_t multiple)
{
  return (n + multiple - 1) / multiple * multiple;
}

void tri_gpt_block_costs(const tri_gpt_config *config, int T, int64_t *out)
{
  const int64_t C = config->width;
  const int head = tri_gpt_blocks(config->n_layers) - 1;
  out[0] = 2 * C;
  for (int block = 1; block < head; block++)
    out[block] = 24 * C * C + 2 * C * T;
  out[head] = 2 * C * round_up(config->vocab_size, config->vocab_multiple);
}

static tri_status check_config(const tri_gpt_config *config)
{
  TRI_CHECK(config->n_layers >= 1 && config->n_heads >= 1 && config->width >= 1 &&
                config->context >= 1 && config->vocab_size >= 1 && config->vocab_multiple >= 1,
            TRI_ERR_CONFIG,
            "a model of %d layers, %d heads, width %d, context %d, vocabulary %d padded to a "
            "multiple of %d: each must be at least 1",
            config->n_layers, config->n_heads, config->width, config->context, config->vocab_size,
            config->vocab_multiple);
  TRI_CHECK(config->width % config->n_heads == 0, TRI_ERR_CONFIG,
            "%d heads do not divide the width %d: choose a width that is a multiple of the heads",
            config->n_heads, config->width);
  TRI_CHECK(config->dropout >= 0.0f && config->dropout < 1.0f, TRI_ERR_CONFIG,
            "dropout %g is not in [0, 1)", (double)config->dropout);
  TRI_CHECK(config->dtype == TRI_DTYPE_F32 || config->dtype == TRI_DTYPE_BF16, TRI_ERR_CONFIG,
            "a model in %s: only f32 and bf16 are known", tri_dtype_name(config->dtype));
  // Gradients of hidden states are zeroed in words of four bytes.
  TRI_CHECK(config->dtype != TRI_DTYPE_BF16 || config->width % 2 == 0, TRI_ERR_CONFIG,
            "a bf16 model needs an even width, not %d", config->width);
  const int64_t padded = (int64_t)config->vocab_size + config->vocab_multiple - 1;
  TRI_CHECK(padded <= INT32_MAX && 4 * (int64_t)config->width <= INT32_MAX, TRI_ERR_CONFIG,
            "vocabulary %d padded to a multiple of %d, width %d: more than 2^31 rows of a matrix",
            config->vocab_size, config->vocab_multiple, config->width);
  return TRI_OK;
}

// --- parameters

// Where the next parameter goes: in the flat space of the whole model, and in what is held of it.
typedef struct flat_layout {
  tri_gpt *gpt;
  const tri_model_part *part;
  int block;
  bool held; // the block
  int64_t whole_end;
} flat_layout;

static void begin_block(flat_layout *layout, int block)
{
  tri_parameters *parameters = &layout->gpt->model.parameters;
  parameters->flat_count = round_up(parameters->flat_count, TRI_NORM_CHUNK);
  layout->whole_end = round_up(layout->whole_end, TRI_NORM_CHUNK);
  parameters->offsets[block] = parameters->flat_count;
  parameters->whole_offsets[block] = layout->whole_end;
  layout->block = block;
  if (block == layout->gpt->model.n_blocks) return;
  const bool *blocks = layout->part == NULL ? NULL : layout->part->blocks;
  layout->held = blocks == NULL || blocks[block];
  layout->gpt->first_parameter[block] = layout->held ? parameters->n : -1;
}

// What of an array a share holds.
typedef enum array_split {
  SPLIT_NONE,
  SPLIT_ROWS,        // an equal share of the first axis
  SPLIT_THIRDS_ROWS, // of each third of it: queries, keys, values
  SPLIT_COLUMNS,     // of the second axis
  SPLIT_VOCABULARY   // rows of tokens
} array_split;

static void take_share(tri_box *box, int axis, int64_t extent, const tri_gpt *gpt)
{
  box->count[axis] = extent / gpt->n_shares;
  box->start[axis] = gpt->share * box->count[axis];
}

// Sets the boxes of a parameter whose shape is set.
static void split_array(const tri_gpt *gpt, array_split split, tri_parameter *p)
{
  p->box = tri_box_all(&p->shape);
  p->n_boxes = 1;
  p->split = split != SPLIT_NONE && gpt->n_shares > 1;
  switch (split) {
  case SPLIT_NONE: return;
  case SPLIT_ROWS: take_share(&p->box, 0, p->shape.extent[0], gpt); return;
  case SPLIT_COLUMNS: take_share(&p->box, 1, p->shape.extent[1], gpt); return;
  case SPLIT_THIRDS_ROWS:
    if (gpt->n_shares == 1) return;
    p->n_boxes = 3;
    p->box_stride = p->shape.extent[0] / 3;
    take_share(&p->box, 0, p->box_stride, gpt);
    return;
  case SPLIT_VOCABULARY:
    p->box.start[0] = gpt->first_token;
    p->box.count[0] = gpt->held_vocab;
    return;
  }
}

// Arrays of a share begin at whole chunks of the norm, so that a chunk is of one array, and those
// that all shares hold can be counted once.
static int64_t room_of(const tri_gpt *gpt, int64_t count)
{
  return round_up(count, gpt->n_shares == 1 ? TRI_PARAMETER_ALIGN : TRI_NORM_CHUNK);
}

// Appends a parameter, whose boxes are set, to the block; it takes `count` elements.
static void append(flat_layout *layout, tri_parameter p, int64_t count)
{
  tri_parameters *parameters = &layout->gpt->model.parameters;
  p.count = count;
  p.block = layout->block;
  p.offset = parameters->flat_count;
  parameters->logical_count += tri_shape_elements(&p.shape);
  layout->whole_end += room_of(layout->gpt, count);
  if (!layout->held) return;
  parameters->list[parameters->n++] = p;
  parameters->flat_count += room_of(layout->gpt, count);
}

static tri_parameter matrix(const char *prefix, const char *name, int64_t rows, int64_t columns,
                            float std)
{
  tri_parameter p = {.shape = tri_shape_2d(rows, columns),
                     .init = TRI_INIT_NORMAL,
                     .init_std = std,
                     .decay = true};
  snprintf(p.name, sizeof p.name, "%s%s", prefix, name);
  return p;
}

static void append_array(flat_layout *layout, tri_parameter p, array_split split)
{
  split_array(layout->gpt, split, &p);
  layout->gpt->padded_count += tri_shape_elements(&p.shape);
  append(layout, p, p.n_boxes * tri_box_elements(&p.box));
}

static void append_vector(flat_layout *layout, const char *prefix, const char *name, int64_t n,
                          tri_init_kind init, array_split split, bool partial_gradient)
{
  tri_parameter p = {.shape = tri_shape_1d(n), .init = init};
  snprintf(p.name, sizeof p.name, "%s%s", prefix, name);
  p.partial_gradient = partial_gradient && layout->gpt->n_shares > 1;
  append_array(layout, p, split);
}

// Each share has the gradient of its rows of hidden states.
static void append_norm(flat_layout *layout, const char *prefix, int64_t C)
{
  append_vector(layout, prefix, ".weight", C, TRI_INIT_ONE, SPLIT_NONE, true);
  append_vector(layout, prefix, ".bias", C, TRI_INIT_ZERO, SPLIT_NONE, true);
}

static void append_linear(flat_layout *layout, const char *prefix, int64_t OC, int64_t IC,
                          float std, array_split split)
{
  const array_split of_bias = split == SPLIT_COLUMNS ? SPLIT_NONE : split;
  append_array(layout, matrix(prefix, ".weight", OC, IC, std), split);
  append_vector(layout, prefix, ".bias", OC, TRI_INIT_ZERO, of_bias, false);
}

static void append_embedding(flat_layout *layout)
{
  tri_gpt *gpt = layout->gpt;
  const tri_gpt_config *config = &gpt->config;
  tri_parameter wte = matrix("", "wte.weight", config->vocab_size, config->width, 0.02f);
  tri_parameter wpe = matrix("", "wpe.weight", config->context, config->width, 0.02f);
  split_array(gpt, SPLIT_VOCABULARY, &wte);
  gpt->padded_count += gpt->n_shares * gpt->padded_vocab * config->width;
  append(layout, wte, gpt->padded_vocab * config->width);
  wpe.partial_gradient = gpt->n_shares > 1;
  append_array(layout, wpe, SPLIT_NONE);
}

// In the order of gpt_layer_parameter.
static void append_layer(flat_layout *layout, int layer, int64_t C, float residual_std)
{
  static const struct {
    const char *name;
    int out, in; // in multiples of C; 0: a norm
    bool residual;
    array_split split;
  } parts[] = {
      {"ln_1", 0, 0, false, SPLIT_NONE},          {"attn.c_attn", 3, 1, false, SPLIT_THIRDS_ROWS},
      {"attn.c_proj", 1, 1, true, SPLIT_COLUMNS}, {"ln_2", 0, 0, false, SPLIT_NONE},
      {"mlp.c_fc", 4, 1, false, SPLIT_ROWS},      {"mlp.c_proj", 1, 4, true, SPLIT_COLUMNS},
  };
  begin_block(layout, layer + 1);
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    char prefix[48];
    snprintf(prefix, sizeof prefix, "h.%d.%s", layer, parts[i].name);
    if (parts[i].out == 0)
      append_norm(layout, prefix, C);
    else
      append_linear(layout, prefix, parts[i].out * C, parts[i].in * C,
                    parts[i].residual ? residual_std : 0.02f, parts[i].split);
  }
}

// The head is tied to the embedding, whatever of the two is held.
static void tie_head(tri_gpt *gpt)
{
  tri_parameters *parameters = &gpt->model.parameters;
  const int head = gpt->model.n_blocks - 1;
  parameters->tied = gpt->first_parameter[0] < 0 ? -1 : gpt->first_parameter[0] + GPT_WTE;
  parameters->tied_count =
      gpt->first_parameter[head] < 0 ? 0 : gpt->padded_vocab * gpt->config.width;
}

static tri_status lay_out_parameters(tri_gpt *gpt, const tri_model_part *part)
{
  const tri_gpt_config *config = &gpt->config;
  const int n_blocks = gpt->model.n_blocks;
  tri_parameters *parameters = &gpt->model.parameters;
  const int most =
      GPT_EMBEDDING_PARAMETERS + config->n_layers * GPT_LAYER_PARAMETERS + GPT_HEAD_PARAMETERS;
  flat_layout layout = {.gpt = gpt, .part = part};
  parameters->n_blocks = n_blocks;
  TRI_CALL(TRI_NEW(TRI_MODULE_NN, most, &parameters->list));
  TRI_CALL(TRI_NEW(TRI_MODULE_NN, n_blocks + 1, &parameters->offsets));
  TRI_CALL(TRI_NEW(TRI_MODULE_NN, n_blocks + 1, &parameters->whole_offsets));
  TRI_CALL(TRI_NEW(TRI_MODULE_NN, n_blocks, &gpt->first_parameter));
  begin_block(&layout, 0);
  append_embedding(&layout);
  const float residual_std = (float)(0.02 / sqrt(2.0 * config->n_layers));
  for (int layer = 0; layer < config->n_layers; layer++)
    append_layer(&layout, layer, config->width, residual_std);
  begin_block(&layout, n_blocks - 1);
  append_norm(&layout, "ln_f", config->width);
  begin_block(&layout, n_blocks);
  tie_head(gpt);
  return TRI_OK;
}

static tri_status derive_dropout_keys(tri_gpt *gpt)
{
  static const char *const names[GPT_SITES] = {"attention", "residual_1", "residual_2"};
  const int n_layers = gpt->config.n_layers;
  TRI_CALL(TRI_NEW(TRI_MODULE_NN, (size_t)n_layers * GPT_SITES, &gpt->site_keys));
  gpt->embedding_key = tri_random_key(gpt->config.seed, "embedding");
  for (int i = 0; i < n_layers * GPT_SITES; i++) {
    char site[48];
    snprintf(site, sizeof site, "h.%d.%s", i / GPT_SITES, names[i % GPT_SITES]);
    gpt->site_keys[i] = tri_random_key(gpt->config.seed, site);
  }
  return TRI_OK;
}

// --- pieces that the parts share

gpt_sizes tri_gpt_sizes(const tri_gpt *gpt, int B, int T)
{
  gpt_sizes s = {.B = B,
                 .T = T,
                 .C = gpt->config.width,
                 .D = gpt->config.width / gpt->config.n_heads,
                 .N = (int64_t)B * T};
  s.H = gpt->config.n_heads / gpt->n_shares;
  s.A = s.H * s.D;
  s.F = 4 * s.C / gpt->n_shares;
  s.R = s.N / gpt->n_shares;
  return s;
}

tri_status tri_gpt_gather(const tri_gpt *gpt, const tri_pass *pass, void *whole, const void *part,
                          int64_t width)
{
  if (gpt->n_shares == 1) return TRI_OK;
  const int64_t n = (int64_t)pass->batch->B * pass->batch->T / gpt->n_shares * width;
  return pass->seams->gather(pass->seams->user, pass->stream, whole, part, n, gpt->model.dtype);
}

tri_status tri_gpt_scatter_sum(const tri_gpt *gpt, const tri_pass *pass, void *part, void *whole,
                               int64_t width)
{
  if (gpt->n_shares == 1) return TRI_OK;
  const int64_t n = (int64_t)pass->batch->B * pass->batch->T / gpt->n_shares * width;
  return pass->seams->scatter_sum(pass->seams->user, pass->stream, part, whole, n,
                                  gpt->model.dtype);
}

// In its block.
static int64_t offset_of(const tri_gpt *gpt, int block, int which)
{
  const tri_parameters *parameters = &gpt->model.parameters;
  TRI_ASSERT(gpt->first_parameter[block] >= 0);
  return parameters->list[gpt->first_parameter[block] + which].offset - parameters->offsets[block];
}

const void *tri_gpt_weight(const tri_gpt *gpt, const void *weights, int block, int which)
{
  return (const char *)weights +
         (size_t)offset_of(gpt, block, which) * tri_dtype_size(gpt->model.dtype);
}

float *tri_gpt_gradient(const tri_gpt *gpt, float *gradients, int block, int which)
{
  return gradients + offset_of(gpt, block, which);
}

size_t tri_gpt_take(size_t *end_bytes, int64_t count, size_t size)
{
  const size_t offset = *end_bytes;
  *end_bytes = (offset + (size_t)count * size + 255) / 256 * 256;
  return offset;
}

// --- the table

static const tri_gpt *as_gpt(const tri_model *model)
{
  return (const tri_gpt *)model;
}

static size_t saved_bytes(const tri_model *model, int block, int B, int T)
{
  const gpt_sizes sizes = tri_gpt_sizes(as_gpt(model), B, T);
  if (block == 0) return 0;
  if (block == model->n_blocks - 1) return tri_gpt_head_saved_bytes(as_gpt(model), &sizes);
  return tri_gpt_block_saved_bytes(as_gpt(model), &sizes);
}

// Of the embedding, the gradient of its output.
static size_t kept_bytes(const tri_model *model, int block, int B, int T)
{
  const gpt_sizes sizes = tri_gpt_sizes(as_gpt(model), B, T);
  if (block == 0) return (size_t)(sizes.R * sizes.C) * tri_dtype_size(model->dtype);
  if (block == model->n_blocks - 1) return 0;
  return tri_gpt_block_kept_bytes(as_gpt(model), &sizes);
}

static size_t scratch_bytes(const tri_model *model, int B, int T)
{
  const gpt_sizes sizes = tri_gpt_sizes(as_gpt(model), B, T);
  const size_t block = tri_gpt_block_scratch_bytes(as_gpt(model), &sizes);
  const size_t head = tri_gpt_head_scratch_bytes(as_gpt(model), &sizes);
  const size_t embedding = tri_gpt_embedding_scratch_bytes(as_gpt(model), &sizes);
  const size_t larger = block > head ? block : head;
  return larger > embedding ? larger : embedding;
}

static tri_status prepare(const tri_model *model, tri_stream *stream, int B, int T)
{
  const gpt_sizes sizes = tri_gpt_sizes(as_gpt(model), B, T);
  TRI_CALL(tri_gpt_block_prepare(as_gpt(model), stream, &sizes));
  TRI_CALL(tri_gpt_head_prepare(as_gpt(model), stream, sizes.N));
  return TRI_OK;
}

static tri_status check_pass(const tri_model *model, int block, const tri_pass *pass)
{
  TRI_CHECK(block >= 0 && block < model->n_blocks && as_gpt(model)->first_parameter[block] >= 0,
            TRI_ERR_ARGUMENT, "block %d of a chain of %d is not held", block, model->n_blocks);
  TRI_CHECK(pass->batch->B >= 0 && pass->batch->T >= 0 && pass->batch->T <= model->max_context,
            TRI_ERR_ARGUMENT, "a micro-batch of %d samples of %d tokens, the context is %d",
            pass->batch->B, pass->batch->T, model->max_context);
  const int n_shares = as_gpt(model)->n_shares;
  TRI_CHECK(n_shares == 1 ||
                (pass->seams != NULL && pass->batch->B * pass->batch->T % n_shares == 0),
            TRI_ERR_ARGUMENT, "%d rows cannot be divided between %d shares",
            pass->batch->B * pass->batch->T, n_shares);
  return TRI_OK;
}

static tri_status forward(const tri_model *model, int block, const tri_pass *pass)
{
  TRI_CALL(check_pass(model, block, pass));
  if (block == 0)
    TRI_CALL(tri_gpt_embedding_forward(as_gpt(model), pass));
  else if (block == model->n_blocks - 1)
    TRI_CALL(tri_gpt_head_forward(as_gpt(model), pass));
  else
    TRI_CALL(tri_gpt_block_forward(as_gpt(model), block - 1, pass));
  return TRI_OK;
}

static tri_status backward(const tri_model *model, int block, const tri_pass *pass)
{
  TRI_CALL(check_pass(model, block, pass));
  if (block == 0)
    TRI_CALL(tri_gpt_embedding_backward(as_gpt(model), pass));
  else if (block == model->n_blocks - 1)
    TRI_CALL(tri_gpt_head_backward(as_gpt(model), pass));
  else
    TRI_CALL(tri_gpt_block_backward(as_gpt(model), block - 1, pass));
  return TRI_OK;
}

// 6 flops a parameter and token for the products, forward and backward (padded rows are multiplied
// too), and 2 * 2 * 3 * T * C a layer for scores and values, of which causality keeps half.
static double flops_per_token(const tri_model *model, int T, const char **convention)
{
  const double N = (double)as_gpt(model)->padded_count;
  *convention = "6N + 6LCT (causal attention, N with tied embedding and norms)";
  return 6.0 * N + 6.0 * as_gpt(model)->config.n_layers * (double)model->width * T;
}

static void destroy(tri_model *model)
{
  tri_gpt *gpt = (tri_gpt *)model;
  TRI_FREE(&gpt->model.parameters.list);
  TRI_FREE(&gpt->model.parameters.offsets);
  TRI_FREE(&gpt->model.parameters.whole_offsets);
  TRI_FREE(&gpt->first_parameter);
  TRI_FREE(&gpt->site_keys);
  TRI_FREE(&gpt->name);
  tri_free(gpt);
}

static const tri_model_operations operations = {
    .family = "gpt",
    .saved_bytes = saved_bytes,
    .kept_bytes = kept_bytes,
    .scratch_bytes = scratch_bytes,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .flops_per_token = flops_per_token,
    .destroy = destroy,
};

// Rows of the vocabulary are shared as evenly as whole multiples allow: of 64 where there are
// shares, else as the job says.
static tri_status take_shares(tri_gpt *gpt, const tri_model_part *part)
{
  const tri_gpt_config *config = &gpt->config;
  const int64_t V = config->vocab_size;
  gpt->n_shares = part == NULL || part->n_shares < 1 ? 1 : part->n_shares;
  gpt->share = gpt->n_shares == 1 ? 0 : part->share;
  const int64_t n = gpt->n_shares;
  TRI_CHECK(gpt->share >= 0 && gpt->share < n && config->n_heads % n == 0, TRI_ERR_CONFIG,
            "share %d of %d of a model of %d heads: the shares must divide the heads", gpt->share,
            gpt->n_shares, config->n_heads);
  gpt->padded_vocab = round_up((V + n - 1) / n, n == 1 ? config->vocab_multiple : 64);
  gpt->first_token = gpt->share * gpt->padded_vocab;
  const int64_t left = V - gpt->first_token;
  gpt->held_vocab = left < 0 ? 0 : left < gpt->padded_vocab ? left : gpt->padded_vocab;
  if (gpt->held_vocab == 0) gpt->first_token = V;
  return TRI_OK;
}

tri_status tri_gpt_create(const tri_gpt_config *config, const char *name, tri_model **out)
{
  tri_status status = TRI_OK;
  tri_gpt *gpt = NULL;
  TRI_CALL(check_config(config));
  TRI_CALL(TRI_NEW(TRI_MODULE_NN, 1, &gpt));
  gpt->config = *config;
  gpt->config.part = NULL; // the caller's
  TRI_CALL_GOTO(err_destroy, take_shares(gpt, config->part));
  gpt->name = tri_strdup(TRI_MODULE_NN, name);
  TRI_CALL_GOTO(err_destroy, gpt->name == NULL ? TRI_ERR_MEMORY : TRI_OK);
  gpt->model.operations = &operations;
  gpt->model.name = gpt->name;
  gpt->model.dtype = config->dtype;
  gpt->model.n_blocks = tri_gpt_blocks(config->n_layers);
  gpt->model.width = config->width;
  gpt->model.max_context = config->context;
  gpt->model.vocab_size = config->vocab_size;
  TRI_CALL_GOTO(err_destroy, lay_out_parameters(gpt, config->part));
  TRI_CALL_GOTO(err_destroy, derive_dropout_keys(gpt));
  *out = &gpt->model;
  return TRI_OK;

err_destroy:
  destroy(&gpt->model);
  return status;
}
