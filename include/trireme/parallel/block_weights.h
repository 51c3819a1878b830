// ZeRO, stage 3: weights that no rank holds whole (Rajbhandari et al. 2020, section 5.3). Each data
// rank has what it owns; a block's weights are gathered from all before it is computed, while the
// one before is computed, and give way to those of another.
//
// Memory: the block of the tied array (the embedding) and the last block have places of their own,
// where they stay for a step; the others take turns in two. A block that is still there is not
// gathered again.
#pragma once

#include "trireme/parallel/data_parallel.h"

typedef struct tri_block_weights tri_block_weights;

// Collective on comm, errors agree.
//   comm       the data ranks of one copy of the model, those of dp; borrowed
//   stream     that passes are queued on; borrowed
//   dp         with zero 3; borrowed
//   transport  as in tri_transport_create
//   out        owned: tri_block_weights_destroy
TRI_MUST_CHECK tri_status tri_block_weights_create(tri_comm *comm, tri_stream *stream,
                                                   const tri_model *model,
                                                   const tri_data_parallel *dp,
                                                   const char *transport, tri_block_weights **out);
// The orderly end. Collective; no-op on NULL.
TRI_MUST_CHECK tri_status tri_block_weights_finish(tri_block_weights *weights);
void tri_block_weights_destroy(tri_block_weights **weights); // NULL-safe

// The weights have changed: `owned` holds what this rank owns, in the model's type, range after
// range (tri_owned_range.at), as later work of the stream sees it. Borrowed until the next call.
void tri_block_weights_renew(tri_block_weights *weights, const void *owned);
// The block's weights, and, of the last block, those of the tied array where its owner is held,
// else NULL, as later work of the stream sees them. They are there until the next block is taken.
// Starts to gather block `next`; -1: none. Collective: all ranks take the same blocks in the same
// order; errors are local.
TRI_MUST_CHECK tri_status tri_block_weights_take(tri_block_weights *weights, int block, int next,
                                                 const void **block_weights,
                                                 const void **tied_weights);
// Moves forward what is under way, never waits; no-op on NULL. Local.
TRI_MUST_CHECK tri_status tri_block_weights_progress(tri_block_weights *weights);

// How often each block is gathered when these are taken one after another (n_takes), after a
// renewal: adds to gathers (n_blocks). tied: the block of the tied array, -1: not held. Pure.
void tri_block_weights_count(int n_blocks, int tied, const int *takes, int n_takes, int *gathers);

// Bytes sent by this rank so far; bytes of memory it holds; seconds it has waited for others. 0 for
// NULL.
int64_t tri_block_weights_bytes_sent(const tri_block_weights *weights);
size_t tri_block_weights_memory_bytes(const tri_block_weights *weights);
double tri_block_weights_wait_seconds(const tri_block_weights *weights);
