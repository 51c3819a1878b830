// A model is a chain of blocks: 0 embeds tokens, the last one ends in the loss, each between maps a
// hidden state to the next. Whoever drives the chain (the train loop on one rank, a pipeline stage
// on many) owns the memory and decides the order; the model knows no ranks and allocates nothing
// after creation.
//
// A copy of a model may hold the parameters of some blocks only; it runs those.
//
//   hidden[i] (B, T, C) dtype is the input of block i, i >= 1; block i writes hidden[i + 1]; the
//   last block none. saved[i] is what block i keeps from forward to backward, of saved_bytes(i).
//   Backward runs from the last block to 0 with one gradient buffer d_hidden (B, T, C): block i
//   replaces the gradient of hidden[i + 1] by that of hidden[i].
//   A backward may be done in halves: INPUT replaces d_hidden alone and leaves in `kept`, of
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
  const void *weights; // flat space in the model's dtype, tri_parameters_weight_count elements
  float *gradients; // f32, tri_parameters_gradient_count elements, added to; used by backward, and
                    // by the last block's forward in training
  const void *hidden_in;
  void *hidden_out;
  void *saved;
  void *d_hidden;
  tri_backward_part part;
  void *kept;    // between the halves of a backward
  void *scratch; // of scratch_bytes; content is lost between calls
  float *losses; // (B, T), written by the last block
} tri_pass;

// What a copy of a model holds. Geometry only: who holds which part is decided outside.
typedef struct tri_model_part {
  const bool *blocks; // (n_blocks): whether it is held. Read by create only
} tri_model_part;

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

// Ends a model of any family and nulls the pointer; NULL-safe.
void tri_model_destroy(tri_model **model);
