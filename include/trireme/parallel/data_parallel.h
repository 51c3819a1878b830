// Data parallelism whose bits do not move: the gradient of a global batch is the sum over its sum
// groups in the fixed tree of sum_tree.h, in f32, whatever rank computed which.
//
// Each rank computes the leaves of its share and merges what it can alone. Then, bucket by bucket
// in the order in which gradients become ready, each rank sends the partial sums of every slice to
// the slice's owner, the owner merges them in tree order and sends the result to all (a
// reduce-scatter and an all-gather). The exchange of a bucket runs on a stream of its own, while
// the backward pass of earlier blocks goes on (overlap), or after it. The faster choice, NCCL's
// all-reduce, adds in an order of its own, so that bits depend on the number of ranks.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/comm/transport.h"
#include "trireme/device/device.h"
#include "trireme/nn/model.h"
#include "trireme/parallel/owned_range.h"
#include "trireme/parallel/sum_tree.h"

typedef struct tri_data_parallel tri_data_parallel;

typedef struct tri_data_parallel_options {
  int n_leaves;          // sum groups of a global batch, >= 1
  int leaf_microbatches; // micro-batches summed in order in one leaf (the last may hold fewer)
  int n_microbatches;    // of a global batch
  bool overlap;          // exchange buckets during backward
  int64_t bucket_bytes;  // a bucket closes at the first block boundary at or above this
  int in_flight;         // buckets that may be exchanged at once, >= 1
  bool fast;             // sums by the transport's all-reduce, where it has one
  // ZeRO (Rajbhandari et al. 2020, section 5). 1: each rank gets the sums of the ranges that it
  // owns alone, updates those, and gather_weights brings all together. 2: and no rank holds a whole
  // gradient. 3 is 2 here: weights are block_weights.h. Not with fast.
  int zero;
  // The parts of the chain of blocks whose backward passes run apart, as the chunks of a pipeline
  // stage do: their first blocks, ascending (n_chunks). NULL: what is held runs as one.
  const int *first_blocks; // read by create only
  int n_chunks;
} tri_data_parallel_options;

// What a rank holds for gradients and exchange, for the memory lines of the header.
typedef struct tri_data_parallel_memory {
  int n_gradient_buffers; // of the whole space; 0 with zero 2
  size_t gradient_bytes;
  size_t exchange_bytes;
} tri_data_parallel_memory;

// Plans buckets, buffers and requests; allocates them all. Collective on the transport's
// communicator, errors agree. transport, stream and model are borrowed. The transport is destroyed
// before it, so that nothing is under way when memory is released. *out owned.
TRI_MUST_CHECK tri_status tri_data_parallel_create(tri_transport *transport, tri_stream *stream,
                                                   const tri_model *model,
                                                   const tri_data_parallel_options *options,
                                                   tri_data_parallel **out);
void tri_data_parallel_destroy(tri_data_parallel **dp);

// How many micro-batches of every global batch this rank computes; and the number of its i-th in
// the batch. With zero 2 all ranks compute as many, and where there are fewer, -1: its gradient and
// its loss are not used, whatever was computed.
int tri_data_parallel_count(const tri_data_parallel *dp);
int tri_data_parallel_microbatch(const tri_data_parallel *dp, int i);
// What this rank owns, ascending: all of the space with zero 0 or one rank. Borrowed; returns how
// many.
int tri_data_parallel_owned(const tri_data_parallel *dp, const tri_owned_range **out);
void tri_data_parallel_get_memory(const tri_data_parallel *dp, tri_data_parallel_memory *out);

// A step: begin; for the i-th micro-batch of this rank, from 0 on, and each block from the last to
// 0: gradients() says where to add (tied: for the last block, its use of the tied array; the same
// until block_done), block_done() after the block's backward; finally wait(), which returns the
// global gradient (f32, device, borrowed until the next begin) as later work of the stream sees it.
// Chunks do so each by itself. A chunk may be ahead of those before it; with its last micro-batch
// it must be. With zero 2 all ranks call in the same order. A rank with an empty share calls begin
// and wait only. Collective as a whole; errors are local.
//
// The gradient holds sums in the owned ranges (tri_owned_range.gradient_at), which is all of the
// flat space with zero 0; where a tied array and its second use are both held, the sum of both.
// tied: the whole second use where the owner is not held, else NULL.
TRI_MUST_CHECK tri_status tri_data_parallel_begin(tri_data_parallel *dp);
TRI_MUST_CHECK tri_status tri_data_parallel_gradients(tri_data_parallel *dp, int i, int block,
                                                      float **gradients, float **tied);
TRI_MUST_CHECK tri_status tri_data_parallel_block_done(tri_data_parallel *dp, int i, int block);

// For a micro-batch whose work between gradients() and the last block_done() is recorded in a graph
// (device/graph.h): tell when the recording begins and ends, and after each launch, the first
// included, call launched() in place of what was recorded. Buckets are then exchanged as their
// events in the graph are passed. Not with zero 2. Local.
void tri_data_parallel_record(tri_data_parallel *dp, bool recording);
TRI_MUST_CHECK tri_status tri_data_parallel_launched(tri_data_parallel *dp, int i);

TRI_MUST_CHECK tri_status tri_data_parallel_wait(tri_data_parallel *dp, float **gradient,
                                                 float **tied);
// With zero 1 and 2: the ranges of the flat array `weights` that others own come from them, as
// later work of the stream sees it; own ranges are there in the order of the stream. No-op
// otherwise. Collective, errors are local.
TRI_MUST_CHECK tri_status tri_data_parallel_gather_weights(tri_data_parallel *dp, void *weights,
                                                           tri_dtype dtype);
// The host waits until the gradient is there, within the limit of the communicator; to be called
// before it waits for the stream, which would wait for ever for a rank that is gone.
TRI_MUST_CHECK tri_status tri_data_parallel_synchronize(tri_data_parallel *dp);

// The sum of one number per micro-batch over the whole global batch, in the order of the gradient's
// sum: in order inside a leaf, then the tree. own (count): of this rank's micro-batches.
// Collective.
TRI_MUST_CHECK tri_status tri_data_parallel_sum(tri_data_parallel *dp, const char *what,
                                                const double *own, double *out);
