// Parameters: named logical arrays laid out in one flat space, in the order of the model's chain of
// blocks.
//
// The flat space is what optimizers, gradient buckets and ZeRO slices work on; names, global shapes
// and boxes are what checkpoints and digests see. Local. Knows no ranks: a copy of the model holds
// the parameters of some blocks of the chain (model.h: all of them, unless a split from outside
// says less), one block after another, and `box` is what it holds of a global array. Blocks begin
// at multiples of TRI_NORM_CHUNK, so that the chunks of a norm do not depend on who holds what.
//
// An array may be used by a second block, the last (a head tied to the embedding). The gradient of
// that use is a sum of its own, kept after the flat space, and the gradient of the array is the
// owner's sum plus that one: so two stages of a pipeline sum by themselves. A copy that holds the
// second block but not the owner keeps a copy of the array there, too, in its weights.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/base/status.h"
#include "trireme/tensor/box.h"

enum { TRI_PARAMETER_NAME_BYTES = 64, TRI_PARAMETER_ALIGN = 64 };

typedef enum tri_init_kind { TRI_INIT_ZERO, TRI_INIT_ONE, TRI_INIT_NORMAL } tri_init_kind;

typedef struct tri_parameter {
  char name[TRI_PARAMETER_NAME_BYTES]; // global name, "h.3.attn.c_attn.weight"
  tri_shape shape;                     // global logical shape
  tri_box box;                         // held part of it, or the first of several
  int n_boxes; // >= 1; the k-th is `box` moved by k * box_stride along the first axis: a share of
               // rows that several arrays make together, one after another
  int64_t box_stride;
  int64_t offset; // first element in the flat space, a multiple of TRI_PARAMETER_ALIGN
  int64_t count;  // elements of the flat space it takes: the boxes plus padding rows after them
  int block;      // block of the chain that owns it; its gradient is complete when that block's
                  // backward is done (tied arrays belong to the lowest block that uses them)
  tri_init_kind init;
  float init_std;
  bool decay; // takes part in weight decay (not norms, not biases)
  bool split; // a copy that holds a share of the model (model.h) holds a part of the array
  bool partial_gradient; // of a share, it is one addend of several: the array's is their sum
} tri_parameter;

typedef struct tri_parameters {
  tri_parameter *list; // what is held, in ascending offset and block order
  int n;
  int64_t flat_count;    // elements of the flat space, padding included
  int64_t logical_count; // elements of all shapes of the whole model: the published count
  int n_blocks;
  int64_t *offsets;       // (n_blocks + 1): where blocks begin; one that is not held is empty
  int64_t *whole_offsets; // (n_blocks + 1): the same in a copy that holds all blocks
  int64_t tied_count;     // elements of the second use's gradient, [flat_count, flat_count +
                          // tied_count); 0: none, or its block is not held
  int tied;               // the owner's array in the list, -1: there is none, or it is not held
} tri_parameters;

// Elements of an array of gradients, and of an array of weights that passes read.
int64_t tri_parameters_gradient_count(const tri_parameters *parameters);
int64_t tri_parameters_weight_count(const tri_parameters *parameters);
// Where the tied array, or the copy of it, begins in an array of weights; tied_count > 0.
int64_t tri_parameters_tied_offset(const tri_parameters *parameters);

// The k-th of its boxes; their elements lie one after another.
tri_box tri_parameter_box(const tri_parameter *parameter, int k);

// Fills host_out (parameter->count elements) with the initial value: a pure function of (seed,
// name, global element index); padding is zero. The same bits on any machine and layout.
void tri_parameter_initialize(const tri_parameter *parameter, uint64_t seed, float *host_out);

// The parameter named `name`, NULL when there is none.
const tri_parameter *tri_parameters_find(const tri_parameters *parameters, const char *name);
