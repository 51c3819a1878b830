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
  int zero; // 1: each rank gets the sums of the ranges that it owns alone, updates those, and
            // gather_weights brings all together (Rajbhandari et al. 2020, section 5.1); not with
            // fast
  // The parts of the chain of blocks whose backward passes run apart, as the chunks of a pipeline
  // stage do: their first blocks, ascending (n_chunks). NULL: what is held runs as one.
  const int *first_blocks; // read by create only
  int n_chunks;
} tri_data_parallel_options;

// What a rank holds for gradients and exchange, for the memory lines of the header.
typedef struct tri_data_parallel_memory {
  int n_gradient_buffers;
  size_t gradient_bytes;
  size_t exchange_bytes;
} tri_data_parallel_memory;

// Elements [first, end) of the flat space that a rank owns: the place `at` of the first in an array
// of what it owns alone.
typedef struct tri_owned_range {
  int64_t first, end, at;
} tri_owned_range;

// Plans buckets, buffers and requests; allocates them all. Collective on the transport's
// communicator, errors agree. transport, stream and model are borrowed. The transport is destroyed
// before it, so that nothing is under way when memory is released. *out owned.
TRI_MUST_CHECK tri_status tri_data_parallel_create(tri_transport *transport, tri_stream *stream,
                                                   const tri_model *model,
                                                   const tri_data_parallel_options *options,
                                                   tri_data_parallel **out);
void tri_data_parallel_destroy(tri_data_parallel **dp);

// Micro-batches [first, end) of every global batch that this rank computes.
void tri_data_parallel_share(const tri_data_parallel *dp, int *first, int *end);
// What this rank owns: ascending ranges that begin at multiples of TRI_NORM_CHUNK; all of the space
// with zero 0 or one rank. Borrowed; returns how many.
int tri_data_parallel_owned(const tri_data_parallel *dp, const tri_owned_range **out);
void tri_data_parallel_get_memory(const tri_data_parallel *dp, tri_data_parallel_memory *out);

// A step: begin; for each micro-batch of the share in order: gradients() says where to add, then,
// after backward of each block from the last to 0, block_done(); finally wait(), which returns the
// global gradient (f32, device, borrowed until the next begin) as later work of the stream sees it.
// Chunks do so each by itself: gradients() for the blocks [first_block, end_block) of one of them.
// A chunk may be ahead of those before it; with its last micro-batch it must be. A rank with an
// empty share calls begin and wait only. Collective as a whole; errors are local.
//
// With zero 1 the flat space of the gradient holds sums in the owned ranges alone; after it lies
// the whole second use of a tied array whose owner is not held. The gradient is an array as
// parameter.h describes; where the owner of a tied array and its second use are both held, the
// owner's part is the sum of both.
TRI_MUST_CHECK tri_status tri_data_parallel_begin(tri_data_parallel *dp);
TRI_MUST_CHECK tri_status tri_data_parallel_gradients(tri_data_parallel *dp, int microbatch,
                                                      int first_block, int end_block, float **out);
TRI_MUST_CHECK tri_status tri_data_parallel_block_done(tri_data_parallel *dp, int microbatch,
                                                       int block);

// For a micro-batch whose work between gradients() and the last block_done() is recorded in a graph
// (device/graph.h): tell when the recording begins and ends, and after each launch, the first
// included, call launched() in place of what was recorded. Buckets are then exchanged as their
// events in the graph are passed. Local.
void tri_data_parallel_record(tri_data_parallel *dp, bool recording);
TRI_MUST_CHECK tri_status tri_data_parallel_launched(tri_data_parallel *dp, int microbatch);

TRI_MUST_CHECK tri_status tri_data_parallel_wait(tri_data_parallel *dp, float **gradient);
// With zero 1: the ranges of the flat array `weights` that others own come from them, as later work
// of the stream sees it; own ranges are there in the order of the stream. No-op otherwise.
// Collective, errors are local.
TRI_MUST_CHECK tri_status tri_data_parallel_gather_weights(tri_data_parallel *dp, void *weights,
                                                           tri_dtype dtype);
// The host waits until the gradient is there, within the limit of the communicator; to be called
// before it waits for the stream, which would wait for ever for a rank that is gone.
TRI_MUST_CHECK tri_status tri_data_parallel_synchronize(tri_data_parallel *dp);

// The sum of one number per micro-batch over the whole global batch, in the order of the gradient's
// sum: in order inside a leaf, then the tree. `own` holds this rank's micro-batches. Collective.
TRI_MUST_CHECK tri_status tri_data_parallel_sum(tri_data_parallel *dp, const char *what,
                                                const double *own, double *out);
