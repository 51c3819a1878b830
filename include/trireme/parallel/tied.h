// An array that the first and the last stage of a pipeline share, such as an embedding tied to the
// head (parameter.h): each sums the gradient of its own use, the first stage owns the array.
//
// Between the two stages goes, once a step, the last one's gradient, in pieces, and what the first
// one makes of it, the new weights. Stages between have no part.
#pragma once

#include <stddef.h>

#include "trireme/comm/comm.h"
#include "trireme/device/device.h"
#include "trireme/nn/parameter.h"
#include "trireme/parallel/owned_range.h"

typedef struct tri_tied tri_tied;

typedef struct tri_tied_options {
  size_t piece_bytes;    // of what is sent at once
  const char *transport; // as in tri_transport_create
} tri_tied_options;

// Collective on `comm`, errors agree.
//   comm        the ranks of one pipeline, rank = stage, two or more; borrowed
//   parameters  of this stage's copy of the model; borrowed
//   dtype       of weights
//   out         owned: tri_tied_destroy; NULL on stages that have no part
TRI_MUST_CHECK tri_status tri_tied_create(tri_comm *comm, tri_stream *stream,
                                          const tri_parameters *parameters, tri_dtype dtype,
                                          const tri_tied_options *options, tri_tied **out);
// The orderly end. Collective on the two stages; no-op on NULL.
TRI_MUST_CHECK tri_status tri_tied_finish(tri_tied *tied);
void tri_tied_destroy(tri_tied **tied); // NULL-safe

// In the first stage what is owned of the array's gradient becomes the sum of both uses. Collective
// on the two stages, errors are local; no-op on NULL.
//   owned (n)    first stage: the ranges of the flat space that `gradient` holds, at gradient_at
//   second_use   last stage: its gradient, whole
TRI_MUST_CHECK tri_status tri_tied_sum_gradient(tri_tied *tied, const tri_owned_range *owned, int n,
                                                float *gradient, float *second_use);
// The last stage's copy becomes the first stage's array: `array` is either. As above.
TRI_MUST_CHECK tri_status tri_tied_copy_weights(tri_tied *tied, void *array);

// Bytes sent by this rank so far; bytes of memory it holds. 0 for NULL.
int64_t tri_tied_bytes_sent(const tri_tied *tied);
size_t tri_tied_memory_bytes(const tri_tied *tied);
// Seconds spent waiting for the other stage so far; 0 for NULL.
double tri_tied_wait_seconds(const tri_tied *tied);
