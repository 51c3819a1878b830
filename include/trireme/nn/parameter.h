// Parameters: named logical arrays laid out in one flat space, in the order of the model's chain of
// blocks.
//
// The flat space is what optimizers, gradient buckets and ZeRO slices work on; names, global shapes
// and boxes are what checkpoints and digests see. Local. Knows no ranks: `box` is what this copy of
// the model holds of the global array (all of it, unless a tensor split from outside says less).
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
  tri_box box;                         // held part of it
  int64_t offset; // first element in the flat space, a multiple of TRI_PARAMETER_ALIGN
  int64_t count;  // elements of the flat space it takes: the box plus padding rows after it
  int block;      // block of the chain that owns it; its gradient is complete when that block's
                  // backward is done (tied arrays belong to the lowest block that uses them)
  tri_init_kind init;
  float init_std;
  bool decay; // takes part in weight decay (not norms, not biases)
} tri_parameter;

typedef struct tri_parameters {
  tri_parameter *list; // in ascending offset and block order
  int n;
  int64_t flat_count;    // elements of the flat space, padding included
  int64_t logical_count; // elements of all shapes: the published parameter count
} tri_parameters;

// Fills host_out (parameter->count elements) with the initial value: a pure function of (seed,
// name, global element index); padding is zero. The same bits on any machine and layout.
void tri_parameter_initialize(const tri_parameter *parameter, uint64_t seed, float *host_out);

// The parameter named `name`, NULL when there is none.
const tri_parameter *tri_parameters_find(const tri_parameters *parameters, const char *name);
