// ZeRO, stage 2 and on: gradients that no rank holds whole (Rajbhandari et al. 2020, section 5.2).
// Private to src/parallel.
//
// Leaves are dealt by rounds (deal.h). When a block's gradient of a leaf is complete, bucket by
// bucket each rank sends to every owner its slice, the owner merges the round's leaves in the order
// of sum_tree.h into what it has of the rounds before, and the memory of the block's gradient
// serves another block. All runs on a stream of its own, behind the backward passes of other
// blocks.
//
// A leaf of several micro-batches needs the gradient of all blocks until its last one; of one
// micro-batch, the memory of two blocks at a time, and of the first or the last block of the model.
#pragma once

#include "parallel/buckets.h"
#include "parallel/deal.h"
#include "trireme/comm/transport.h"
#include "trireme/parallel/owned_range.h"

typedef struct tri_leaf_exchange tri_leaf_exchange;

typedef struct tri_leaf_exchange_plan {
  tri_deal deal;                    // by rounds
  int in_flight;                    // buckets under way at once
  bool overlap;                     // else each block waits for its exchange
  const tri_buckets *buckets;       // borrowed; none holds elements of two blocks
  const tri_parameters *parameters; // borrowed
} tri_leaf_exchange_plan;

// Allocates all that steps need. `compute` is the caller's stream; it is borrowed, as is the
// transport, whose pool is taken; the transport is destroyed first. *out owned. Local.
TRI_MUST_CHECK tri_status tri_leaf_exchange_create(tri_transport *transport, tri_stream *compute,
                                                   const tri_leaf_exchange_plan *plan,
                                                   tri_leaf_exchange **out);
void tri_leaf_exchange_destroy(tri_leaf_exchange **exchange);
// Of gradients, whole or owned, and of sums on their way.
size_t tri_leaf_exchange_gradient_bytes(const tri_leaf_exchange *exchange);
size_t tri_leaf_exchange_bytes(const tri_leaf_exchange *exchange);
// Ascending; gradient_at is in the array of tri_leaf_exchange_sum. Borrowed.
int tri_leaf_exchange_owned(const tri_leaf_exchange *exchange, const tri_owned_range **out);

// One step: begin; gradients and block_done of each block of each place, in the same order on all
// ranks; finish. Errors are local.
void tri_leaf_exchange_begin(tri_leaf_exchange *exchange);
// Where the block's gradient in place i is added to, and, of the last block, that of its use of the
// tied array. The same until block_done.
TRI_MUST_CHECK tri_status tri_leaf_exchange_gradients(tri_leaf_exchange *exchange, int i, int block,
                                                      float **gradients, float **tied);
TRI_MUST_CHECK tri_status tri_leaf_exchange_block_done(tri_leaf_exchange *exchange, int i,
                                                       int block);
// Later work of the compute stream sees the sums of what is owned, and of a tied array whose owner
// is not held the whole second use in *tied (else NULL).
TRI_MUST_CHECK tri_status tri_leaf_exchange_finish(tri_leaf_exchange *exchange, float **sum,
                                                   float **tied);
// After finish: the ranges of a flat array that others own come from them, in stream order.
TRI_MUST_CHECK tri_status tri_leaf_exchange_gather(tri_leaf_exchange *exchange, void *array,
                                                   size_t element_size);
// The host waits until the sums are there.
TRI_MUST_CHECK tri_status tri_leaf_exchange_synchronize(tri_leaf_exchange *exchange);
