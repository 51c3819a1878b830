// AdamW over ranges of the flat parameter space, and global gradient norms that no layout changes.
// Local.
#pragma once

#include <stdint.h>

#include "trireme/device/device.h"
#include "trireme/nn/parameter.h"

typedef struct tri_adamw {
  float beta1, beta2, eps;
  float weight_decay; // decoupled; parameters with decay == false get none
} tri_adamw;

// Updates the elements [first, end) of the flat space: p, m, v, g point at element `first` (f32),
// p_bf16 too or NULL, so that an owner of some elements need not have arrays of all. `step` counts
// from 1. Queued; any partition of the space into ranges gives the same bits.
TRI_MUST_CHECK tri_status tri_adamw_update(const tri_adamw *adamw, tri_stream *stream,
                                           const tri_parameters *parameters, int64_t first,
                                           int64_t end, float *p, tri_bf16 *p_bf16, float *m,
                                           float *v, const float *g, int64_t step, float lr,
                                           float grad_scale);

// sqrt of the sum of the n chunk sums that kernels->sum_squares gave, added in a fixed binary tree.
// Host, pure.
double tri_norm_of_chunks(const double *chunk_sums, int64_t n);

// The factor that clips a gradient of this norm: min(1, clip / norm); 1 when clip == 0.
float tri_clip_scale(double norm, float clip);
