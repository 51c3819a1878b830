// A model is a chain of blocks: 0 embeds tokens, the last one ends in the loss, each between maps a
// hidden state to the next. Whoever drives the chain (the train loop on one rank, a pipeline stage
// on many) owns the memory and decides the order; the model knows no ranks and allocates nothing
// after creation.
//
// A copy of a model may hold the parameters of some blocks only; it runs those. And of a block it
// may hold a share, one of `count` equal ones: some heads, some columns of the first linear layer
// of the feed-forward part and rows of the second, some of the vocabulary. Then hidden states are
// split, too: of the N = B T rows of a micro-batch a copy has N / count, from index N / count on,
// and tri_seams brings together what the shares of one model need of one another.
//
//   hidden[i] (B, T, C) dtype (of a share, its rows) is the input of block i, i >= 1; block i
//   writes hidden[i + 1]; the last block none. saved[i] is what block i keeps from forward to
//   backward, of saved_bytes(i). Backward runs from the last block to 0 with one gradient buffer
//   d_hidden (B, T, C): block i replaces the gradient of hidden[i + 1] by that of hidden[i]. A
//   backward may be done in halves: INPUT replaces d_hidden alone and leaves in `kept`, of
//   kept_bytes(i), what WEIGHT needs to add to the gradients, later, with the same bits as at once.
//   The last block has no halves: its INPUT is all of it.
//
// Local. Every call is queued on pass->stream.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/device/device.h"
#include "trireme/nn/parameter.h"

typedef struct tri_model tri_model;

// One micro-batch, on the device.
typedef struct tri_batch {
  const int32_t *tokens;  // (B, T)
  const int32_t *targets; // (B, T), -1: ignored
  int B, T;
  uint64_t first_sample; // ordinal in the run of its first sample, for dropout
  float loss_scale;      // d (training loss) / d (loss of one token)
} tri_batch;

// What a copy of a model holds. Geometry only: who holds which part is decided outside.
typedef struct tri_model_part {
  const bool *blocks;  // (n_blocks): whether it is held; NULL: all are. Read by create only
  int share, n_shares; // of each block: share `share` of n_shares; n_shares 0 or 1: all of it
} tri_model_part;

// Between the shares of a model: queued on `stream`, called by all shares in the same order.
typedef struct tri_seams {
  // whole (n_shares, n) = the `part` (n) of every share, in their order. n elements of dtype.
  tri_status (*gather)(void *user, tri_stream *stream, void *whole, const void *part, int64_t n,
                       tri_dtype dtype);
  // part (n) = the sum over the shares, in their order, of the n elements from share * n on of each
  // share's whole (n_shares, n). `whole` is lost.
  tri_status (*scatter_sum)(void *user, tri_stream *stream, void *part, void *whole, int64_t n,
                            tri_dtype dtype);
  void *user;
} tri_seams;

typedef enum tri_backward_part {
  TRI_BACKWARD_WHOLE,
  TRI_BACKWARD_INPUT,
  TRI_BACKWARD_WEIGHT
} tri_backward_part;

// Everything one forward or backward of one block works on. Borrowed for the call.
typedef struct tri_pass {
  tri_stream *stream;
  const tri_batch *batch;
  bool training; // dropout on, and the last block also computes gradients of logits in its forward
  // Of the block, in the model's dtype: its part of the flat space, wherever that lies. And, for
  // the last block, the tied array (parameter.h).
  const void *weights, *tied_weights;
  // f32, added to by backward, and by the last block's forward in training: of the block, and, for
  // the last, of its use of the tied array.
  float *gradients, *tied_gradients;
  const void *hidden_in;
  void *hidden_out;
  void *saved;
  void *d_hidden;
  tri_backward_part part;
  void *kept;             // between the halves of a backward
  void *scratch;          // of scratch_bytes; content is lost between calls
  float *losses;          // (B, T), written by the last block
  const tri_seams *seams; // of a copy that holds a share
} tri_pass;

// A family of models is one such table; a model begins with a pointer to it.
typedef struct tri_model_operations {
  const char *family; // "gpt"
  // Bytes for micro-batches of up to (B, T).
  size_t (*saved_bytes)(const tri_model *model, int block, int B, int T);
  size_t (*kept_bytes)(const tri_model *model, int block, int B, int T);
  size_t (*scratch_bytes)(const tri_model *model, int B, int T);
  // Plans the device calls of these sizes, so that passes allocate nothing.
  tri_status (*prepare)(const tri_model *model, tri_stream *stream, int B, int T);
  tri_status (*forward)(const tri_model *model, int block, const tri_pass *pass);
  tri_status (*backward)(const tri_model *model, int block, const tri_pass *pass);
  // Model flops of forward and backward per token at context T; `convention` names the formula (a
  // literal).
  double (*flops_per_token)(const tri_model *model, int T, const char **convention);
  void (*destroy)(tri_model *model);
} tri_model_operations;

struct tri_model {
  const tri_model_operations *operations;
  const char *name; // "gpt2-124M" or the family
  tri_dtype dtype;  // of weights, hidden states and activations
  int n_blocks;
  int width;       // C of the hidden states
  int max_context; // largest T
  int vocab_size;  // logits that count
  tri_parameters parameters;
};

// Points the pass at the block's places in a flat array of weights (tri_parameters_weight_count
// elements) and one of gradients (tri_parameters_gradient_count; NULL: none).
void tri_pass_set_arrays(tri_pass *pass, const tri_model *model, int block, const void *weights,
                         float *gradients);

// Ends a model of any family and nulls the pointer; NULL-safe.
void tri_model_destroy(tri_model **model);
