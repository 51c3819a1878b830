// One training run on one rank: everything it holds. Private to src/job.
//
// train_setup.c opens and closes it, train_batch.c brings micro-batches to the device, train_step.c
// does a step and a validation, train_state.c initializes, saves, resumes and digests,
// train_report.c writes the header, lines, metrics and pictures; train.c is the loop.
#pragma once

#include "trireme/ckpt/ckpt.h"
#include "trireme/data/corpus.h"
#include "trireme/data/loader.h"
#include "trireme/device/arena.h"
#include "trireme/device/device.h"
#include "trireme/device/graph.h"
#include "trireme/job/job.h"
#include "trireme/nn/gpt.h"
#include "trireme/optim/adamw.h"
#include "trireme/parallel/data_parallel.h"
#include "trireme/runtime/runtime.h"
#include "trireme/telemetry/metrics.h"
#include "trireme/telemetry/progress.h"

enum { TRI_TRAIN_PATH_BYTES = 4096 };

// Seconds of one step on this rank.
typedef struct tri_step_times {
  double total, communication, data;
} tri_step_times;

// Micro-batches on their way: one is computed while the next is copied.
enum { TRI_TRAIN_SLOTS = 2 };

typedef struct tri_batch_slot {
  int32_t *tokens, *targets;           // (B, T) on the device
  int32_t *host_tokens, *host_targets; // what is copied there
  tri_event *copied;                   // the host memory may be filled again
  tri_event *used;                     // the device memory may be filled again
} tri_batch_slot;

typedef struct tri_train {
  tri_runtime *runtime; // borrowed
  tri_comm *comm;       // borrowed: the world
  const tri_job *job;   // borrowed
  int rank, n_ranks;
  int B, T;           // of a micro-batch
  int n_microbatches; // of a global batch

  char device_name[32]; // "cpu", "cuda:1"
  tri_device *device;
  const tri_kernels *kernels;
  tri_stream *stream; // computes
  tri_stream *copies; // micro-batches to the device, checkpoints from it
  tri_corpus *corpus;
  tri_corpus_facts corpus_facts;
  tri_loader *loader;     // training samples
  tri_loader *validation; // in order; NULL when there is no validation split
  tri_model *model;
  tri_transport *transport;
  tri_data_parallel *dp;

  // Device memory, one arena a kind. All flat arrays have model->parameters.flat_count elements.
  tri_arena parameter_arena, optimizer_arena, activation_arena;
  float *parameters; // f32
  void *weights; // in the model's type: the parameters themselves for f32, a rounded copy for bf16
  float *moment1, *moment2;
  void **hidden; // [n_blocks], hidden[0] NULL
  void **saved;  // [n_blocks]
  void *d_hidden, *scratch;
  float *losses;     // (B, T)
  double *sums;      // [n_sums]: the chunks of the gradient norm, then the losses of micro-batches
  double *host_sums; // the same on the host
  int64_t n_chunks, n_sums;
  tri_batch_slot slots[TRI_TRAIN_SLOTS];
  int64_t n_batches;      // brought to the device so far: the next takes slot n_batches % SLOTS
  tri_graph **graphs;     // [TRI_TRAIN_SLOTS * micro-batches of the share]; NULL unless cuda.graph
  tri_event *handed_over; // from the stream that computes to the one that copies
  float *staging;         // host: largest parameter

  int first_microbatch, end_microbatch; // share of this rank
  uint64_t start_step;                  // step at which prefetching began
  uint64_t next_request;                // micro-batches of this share asked for since then

  int64_t step;     // steps done
  uint64_t samples; // consumed: the whole position in the data
  tri_adamw adamw;
  tri_schedule schedule;
  tri_ckpt_array *arrays; // logical state, 3 for each parameter
  int n_arrays;

  char run_dir[TRI_TRAIN_PATH_BYTES];
  char checkpoint_dir[TRI_TRAIN_PATH_BYTES];
  tri_metrics *metrics; // root
  int log_fd;           // root, -1 elsewhere
  double flops_per_token;
  const char *flop_convention;
  double peak_flops;         // of one rank
  double checkpoint_seconds; // of the checkpoint written since the last metrics line
  int64_t last_saved_step;
} tri_train;

// The next micro-batch of `n` samples of a loader, on its way to the device; the compute stream
// waits for it, the host does not. Whoever has queued its last use calls tri_train_batch_done.
// Local.
TRI_MUST_CHECK tri_status tri_train_batch_take(tri_train *train, tri_loader *loader, int n,
                                               tri_batch_slot **out);
TRI_MUST_CHECK tri_status tri_train_batch_done(tri_train *train, tri_batch_slot *slot);
// Memory and events of the slots, after the arenas are there (`tokens` and `targets` of each slot
// are set). NULL-safe close.
TRI_MUST_CHECK tri_status tri_train_batch_open(tri_train *train);
void tri_train_batch_close(tri_train *train);

// Opens everything; memory is planned and allocated here. Collective, errors agree. `train` is
// zeroed by the caller and closed by tri_train_close also after an error.
TRI_MUST_CHECK tri_status tri_train_open(tri_train *train, tri_runtime *runtime,
                                         const tri_job *job);
void tri_train_close(tri_train *train);

// Fresh parameters and moments, a pure function of the seed.
TRI_MUST_CHECK tri_status tri_train_initialize(tri_train *train);
// Loads the checkpoint that the job asks for, if there is one. Collective, errors agree.
TRI_MUST_CHECK tri_status tri_train_resume(tri_train *train, bool *resumed);
TRI_MUST_CHECK tri_status tri_train_save(tri_train *train);
TRI_MUST_CHECK tri_status tri_train_digest(tri_train *train, tri_digest *out);
// Fills train->arrays. Local.
TRI_MUST_CHECK tri_status tri_train_list_arrays(tri_train *train);
// Brings the weights in the model's type up to date with the parameters.
TRI_MUST_CHECK tri_status tri_train_round_weights(tri_train *train);

// One step: gradient of a global batch, clipping, update. Collective. TRI_ERR_NUMERIC when loss or
// norm is not finite, on all ranks alike.
TRI_MUST_CHECK tri_status tri_train_step(tri_train *train, tri_step_metrics *metrics,
                                         tri_step_times *times);
// Mean loss in nats a token over the validation samples. Collective.
TRI_MUST_CHECK tri_status tri_train_validate(tri_train *train, double *loss);
// Asks the loader for the micro-batches that come next.
TRI_MUST_CHECK tri_status tri_train_prefetch(tri_train *train);

// Root prints what runs where and with which memory. Collective (it gathers).
TRI_MUST_CHECK tri_status tri_train_report_header(tri_train *train);
void tri_train_report_step(const tri_progress *progress, const tri_step_metrics *metrics);
TRI_MUST_CHECK tri_status tri_train_report_end(tri_train *train, const tri_progress *progress);
// Peak flop/s of this rank's matrix products, measured by a short one.
TRI_MUST_CHECK tri_status tri_train_measure_peak(tri_train *train);

// Makes data.corpus from data.text or data.text_command when the file is missing. Local; root calls
// it.
TRI_MUST_CHECK tri_status tri_prepare_corpus(const tri_job_data *data);
