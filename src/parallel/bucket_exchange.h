// The exchange of gradient buckets between ranks: private to src/parallel.
//
// exact: each rank sends its partial sums of every slice of a bucket to the slice's owner, the
// owner merges those of all ranks in the order of sum_tree.h and sends the result to all. fast: one
// all-reduce of the transport. Either way the work runs on a stream of its own, which waits for the
// caller's stream where a bucket becomes ready, and for which the caller's stream waits at the end:
// the caller's backward pass goes on meanwhile.
#pragma once

#include "parallel/buckets.h"
#include "trireme/comm/transport.h"

typedef struct tri_bucket_exchange tri_bucket_exchange;

typedef struct tri_bucket_exchange_plan {
  int n_leaves;               // of the tree; each rank holds the share that sum_tree.h gives it
  int in_flight;              // buckets under way at once
  bool fast;                  // needs the transport's sums
  int64_t sharded_end;        // the sums of buckets below it stay with the owners of their slices
  const tri_buckets *buckets; // borrowed
  float *const *buffers; // borrowed: the rank's nodes in leaf order, flat space each; at the end
                         // the sum of all ranks is in buffers[0]
} tri_bucket_exchange_plan;

// Allocates all that steps need. `compute` is the caller's stream; it is borrowed, as is the
// transport, which is not used by destroy. Local; more than one rank. *out owned.
TRI_MUST_CHECK tri_status tri_bucket_exchange_create(tri_transport *transport, tri_stream *compute,
                                                     const tri_bucket_exchange_plan *plan,
                                                     tri_bucket_exchange **out);
void tri_bucket_exchange_destroy(tri_bucket_exchange **exchange);
size_t tri_bucket_exchange_bytes(const tri_bucket_exchange *exchange);

// A step: begin; ready and progress while buckets become complete; finish. Collective as a whole,
// errors are local.
void tri_bucket_exchange_begin(tri_bucket_exchange *exchange);
// Buckets [0, n) are complete once `compute` has done its work queued so far, and nothing of it
// reads the sums of the step before.
TRI_MUST_CHECK tri_status tri_bucket_exchange_ready(tri_bucket_exchange *exchange, int n);
// Buckets [0, n) are complete where their events, recorded by ready in a graph that was launched
// since begin, are passed.
void tri_bucket_exchange_launched(tri_bucket_exchange *exchange, int n);
// Whatever can move without waiting moves.
TRI_MUST_CHECK tri_status tri_bucket_exchange_progress(tri_bucket_exchange *exchange);
// Later work of `compute` sees the sums. Waits for other ranks where the transport needs the host.
TRI_MUST_CHECK tri_status tri_bucket_exchange_finish(tri_bucket_exchange *exchange);
// The host waits until the sums are there.
TRI_MUST_CHECK tri_status tri_bucket_exchange_synchronize(tri_bucket_exchange *exchange);
// Each rank's slices of buckets below `count`, of an array of elements of that size, go to all:
// later work of `compute` sees them. Between steps. Waits for other ranks where the transport needs
// the host.
TRI_MUST_CHECK tri_status tri_bucket_exchange_gather(tri_bucket_exchange *exchange, void *array,
                                                     int64_t count, size_t element_size);
