// One stage of a pipeline: walks its list of the schedule (pipeline_schedule.h), receives what each
// action needs, calls for its computation, and sends what it made.
//
// Between two neighbouring stages activations go one way and gradients the other, each through a
// channel of its own: a communicator of the two ranks, a transport, a stream. Receives are posted
// one action ahead and sends are waited for late, so that transfers overlap computing. Everything
// that travels has one size and lies in one pool, planned by walking the list: a step allocates
// nothing.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "trireme/comm/comm.h"
#include "trireme/device/device.h"
#include "trireme/parallel/pipeline_schedule.h"

typedef struct tri_pipeline tri_pipeline;

typedef struct tri_pipeline_options {
  tri_pipeline_kind kind;
  int n_virtual;
  int n_microbatches;    // of a global batch that this pipeline computes; 0: none, and run returns
  size_t message_bytes;  // of one micro-batch between two virtual stages
  const char *transport; // as in tri_transport_create
  double limit_seconds;  // of a wait, as that of the communicator
} tri_pipeline_options;

// What is to be queued on the pipeline's stream for one action. Pointers are device memory, valid
// until the next call.
typedef struct tri_pipeline_call {
  const tri_pipeline_action *action;
  const void *input; // of the chunk for this micro-batch, as FORWARD had it; NULL in the first
                     // virtual stage
  void *output;      // FORWARD: to be written; NULL in the last virtual stage
  void *gradient;    // BACKWARD, BACKWARD_INPUT: that of the output, to be replaced by that of the
                     // input; undefined before in the last virtual stage, after in the first
} tri_pipeline_call;

typedef tri_status (*tri_pipeline_compute)(void *user, const tri_pipeline_call *call);

typedef struct tri_pipeline_memory {
  int n_buffers; // of message_bytes each
  size_t pool_bytes, staging_bytes;
} tri_pipeline_memory;

// Makes the schedule, the channels and the pool. Collective on `comm`, errors agree.
//   comm     the ranks of one pipeline, rank = stage; borrowed, outlives the pipeline
//   stream   computes; borrowed
//   out      owned: tri_pipeline_destroy
TRI_MUST_CHECK tri_status tri_pipeline_create(tri_comm *comm, tri_stream *stream,
                                              const tri_pipeline_options *options,
                                              tri_pipeline **out);
// The orderly end of the channels. Collective, errors are local.
TRI_MUST_CHECK tri_status tri_pipeline_finish(tri_pipeline *pipeline);
// NULL-safe. Collective where the pipeline was finished.
void tri_pipeline_destroy(tri_pipeline **pipeline);

// Borrowed; NULL when there are no micro-batches.
const tri_pipeline_schedule *tri_pipeline_get_schedule(const tri_pipeline *pipeline);
int tri_pipeline_stage_number(const tri_pipeline *pipeline);
void tri_pipeline_get_memory(const tri_pipeline *pipeline, tri_pipeline_memory *out);
// Seconds spent waiting for other stages and bytes sent to them so far.
double tri_pipeline_wait_seconds(const tri_pipeline *pipeline);
int64_t tri_pipeline_bytes_sent(const tri_pipeline *pipeline);

// Forward and backward of a global batch's share. Returns with all of it queued. Collective as a
// whole, errors are local.
TRI_MUST_CHECK tri_status tri_pipeline_run(tri_pipeline *pipeline, tri_pipeline_compute compute,
                                           void *user);
// Forward only, of micro-batches 0 .. n - 1: calls are FORWARD, each input is free again after its
// call, slot is 0. Collective as a whole, n alike; errors are local.
TRI_MUST_CHECK tri_status tri_pipeline_run_forward(tri_pipeline *pipeline, int n,
                                                   tri_pipeline_compute compute, void *user);

// Lets transfers move on; called between the pieces of a long computation. Never waits.
TRI_MUST_CHECK tri_status tri_pipeline_progress(tri_pipeline *pipeline);
