// One training run on one rank: everything it holds. Private to src/job.
//
// train_setup.c opens and closes it, train_layout.c finds what this rank holds of the model and of
// the data and opens what goes between ranks, train_memory.c plans its memory; train_batch.c brings
// micro-batches to the device, train_chunk.c runs passes over the blocks that are held,
// train_step.c does a step, train_validate.c a validation, train_state.c initializes, saves,
// resumes and digests, train_report.c writes the header, lines, metrics and pictures; train.c is
// the loop.
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
#include "trireme/parallel/block_weights.h"
#include "trireme/parallel/data_parallel.h"
#include "trireme/parallel/grid_comm.h"
#include "trireme/parallel/pipeline.h"
#include "trireme/parallel/tensor.h"
#include "trireme/parallel/tied.h"
#include "trireme/runtime/runtime.h"
#include "trireme/telemetry/metrics.h"
#include "trireme/telemetry/progress.h"

enum { TRI_TRAIN_PATH_BYTES = 4096 };

// Seconds of one step on this rank.
typedef struct tri_step_times {
  double total, communication, data;
} tri_step_times;

// Micro-batches on the device at once, at least: one is computed while the next is copied.
enum { TRI_TRAIN_SLOTS = 2 };

typedef struct tri_batch_slot {
  int32_t *tokens, *targets;           // (B, T) on the device
  int32_t *host_tokens, *host_targets; // what is copied there
  tri_event *copied;                   // the host memory may be filled again
  tri_event *used;                     // the device memory may be filled again
} tri_batch_slot;

// A run of blocks that this rank computes one after another: all of them, or one of the chunks of a
// pipeline stage.
typedef struct tri_train_chunk {
  int first, end; // blocks
  int n_slots;    // micro-batches whose activations it can hold
  void **hidden;  // (n_slots, end - first): the input of each block; not of the first, which comes
                  // from outside
  void **saved;   // (n_slots, end - first): what each block keeps; the head's is one for all
  int n_weight_slots;
  void **kept; // (n_weight_slots, end - first): between the halves of a backward
} tri_train_chunk;

// One micro-batch in one chunk.
typedef struct tri_train_work {
  const tri_train_chunk *chunk;
  int slot, weight_slot;
  tri_backward_part part;
  tri_batch batch;
  bool training;
  int index;         // in the micro-batches of this rank
  const void *input; // hidden states that come in, for a chunk that does not begin the model
  void *output;      // and go out, for one that does not end it
  void *d_hidden;    // backward: the gradient of the output, then of the input
} tri_train_work;

typedef struct tri_train {
  tri_runtime *runtime; // borrowed
  tri_comm *comm;       // borrowed: the world
  const tri_job *job;   // borrowed
  int rank, n_ranks;
  int B, T;           // of a micro-batch
  int n_microbatches; // of a global batch

  tri_grid grid;
  int at[TRI_GRID_AXES]; // this rank's place on each axis
  tri_grid_comms *comms;
  tri_comm *tensor_comm, *data_comm, *pipeline_comm; // borrowed from comms
  int *first_blocks;       // (virtual stages + 1): where they begin in the chain, and its end
  tri_train_chunk *chunks; // (grid.n_virtual)
  bool is_first, is_last;  // this rank holds the first block, the last block

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
  tri_transport *transport; // of the data axis
  tri_data_parallel *dp;
  tri_block_weights *block_weights; // NULL but with parallel.zero 3 and several data ranks
  tri_pipeline *pipeline;           // NULL for one virtual stage
  tri_tied *tied;                   // NULL but in the first and last of several stages
  tri_transport *tensor_transport;
  tri_tensor *tensor; // NULL where blocks are not shared

  // Device memory, one arena a kind. Flat arrays have model->parameters.flat_count elements, what
  // passes read tri_parameters_weight_count.
  tri_arena parameter_arena, optimizer_arena, activation_arena;
  // Moments, and parameters that are not the weights, exist for what this rank owns alone
  // (parallel.zero), range after range.
  const tri_owned_range *owned; // borrowed from dp, (n_owned)
  int n_owned;
  int64_t owned_count; // elements
  bool sharded;        // whether data ranks own different elements
  float *parameters;   // f32
  void *weights; // in the model's type: the parameters themselves for f32, a rounded copy for bf16.
                 // With block_weights of what is owned, range after range
  void *tied_copy; // what the last stage has of the tied array, where the first stage owns it
  float *moment1, *moment2;
  void *d_hidden; // NULL in a pipeline, which has its own
  void *scratch;
  float *losses;     // (B, T)
  double *sums;      // [n_sums]: the chunks of the gradient norm, then the losses of micro-batches
  double *host_sums; // the same on the host
  int64_t n_norm, n_sums;
  double *stage_norms; // host: the chunks of all stages, one after another, padded to the widest
  double *whole_norm;  // host: the chunks of the whole model, in its order
  double *data_norms;  // host: of all data ranks, one after another; where they own parts
  double *share_norms; // host: of all shares, one after another
  int64_t widest_norm; // chunks
  tri_batch_slot *slots;
  int n_slots;
  int64_t n_batches;      // brought to the device so far: the next takes slot n_batches % n_slots
  int64_t step_batches;   // n_batches when this step began
  tri_graph **graphs;     // [n_slots * micro-batches of the share]; NULL unless cuda.graph
  tri_event *handed_over; // from the stream that computes to the one that copies
  float *staging;         // host: largest parameter

  int n_own;             // micro-batches of a step that this rank computes
  uint64_t start_step;   // step at which prefetching began
  uint64_t next_request; // micro-batches of this share asked for since then

  int64_t step;     // steps done
  uint64_t samples; // consumed: the whole position in the data
  tri_adamw adamw;
  tri_schedule schedule;
  tri_ckpt_array *arrays; // logical state: of each parameter it and its moments, by boxes
  float **array_data;     // (n_arrays), device
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

// The grid, refused where it cannot work, before anything is opened. Local, the same on all ranks.
TRI_MUST_CHECK tri_status tri_train_plan_grid(tri_train *train);
// The blocks of the virtual stages, and those of this rank: blocks (n_blocks) becomes whether each
// is held. Local; *blocks owned (tri_free).
TRI_MUST_CHECK tri_status tri_train_plan_chunks(tri_train *train, const tri_gpt_config *config,
                                                bool **blocks);
// Communicators, transports, data parallelism, pipeline. Collective; model and device are there.
TRI_MUST_CHECK tri_status tri_train_open_layout(tri_train *train);
TRI_MUST_CHECK tri_status tri_train_finish_layout(tri_train *train);
// In the order in which they must go: what is under way, then memory, then communicators.
void tri_train_close_transfers(tri_train *train);
void tri_train_close_layout(tri_train *train);
// All memory of steps. Local; the layout is there.
TRI_MUST_CHECK tri_status tri_train_open_memory(tri_train *train);
void tri_train_close_memory(tri_train *train);

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
// Whether the f32 parameters are the weights of all of the space.
bool tri_train_has_whole_parameters(const tri_train *train);
// Fills train->arrays. Local.
TRI_MUST_CHECK tri_status tri_train_list_arrays(tri_train *train);
// Brings the weights up to date with the parameters: those in another type, those that others own,
// and the last stage's copy of the tied array. Collective.
TRI_MUST_CHECK tri_status tri_train_round_weights(tri_train *train);

// Owned weights have changed: those that others own come from them, or will (block_weights.h), and
// the last stage's copy of the tied array. Collective.
TRI_MUST_CHECK tri_status tri_train_share_weights(tri_train *train);
// Where the weights of an owned range are, in bf16; NULL for f32, where they are the parameters.
tri_bf16 *tri_train_rounded(const tri_train *train, const tri_owned_range *range);

// One step: gradient of a global batch, clipping, update. Collective. TRI_ERR_NUMERIC when loss or
// norm is not finite, on all ranks alike.
TRI_MUST_CHECK tri_status tri_train_step(tri_train *train, tri_step_metrics *metrics,
                                         tri_step_times *times);
// Mean loss in nats a token over the validation samples. Collective.
TRI_MUST_CHECK tri_status tri_train_validate(tri_train *train, double *loss);
// Asks the loader for the micro-batches that come next.
TRI_MUST_CHECK tri_status tri_train_prefetch(tri_train *train);
// Brings sums [first, first + n) to the host, which waits for the device.
TRI_MUST_CHECK tri_status tri_train_fetch_sums(tri_train *train, int64_t first, int64_t n);
// A number that the last stage knows, to all stages. Collective.
TRI_MUST_CHECK tri_status tri_train_from_last_stage(tri_train *train, const char *what,
                                                    double *value);
// Bytes of hidden states of a micro-batch between two blocks, of this rank's rows.
size_t tri_train_hidden_bytes(const tri_train *train);
// Seconds this rank has waited for others so far.
double tri_train_wait_seconds(const tri_train *train);

// Passes over the blocks of a chunk. The head, the last block, is no part of forward: in training
// it runs at the beginning of backward. Local.
TRI_MUST_CHECK tri_status tri_train_forward(tri_train *train, const tri_train_work *work);
TRI_MUST_CHECK tri_status tri_train_backward(tri_train *train, const tri_train_work *work);
// The head's losses, without gradients.
TRI_MUST_CHECK tri_status tri_train_losses(tri_train *train, const tri_train_work *work);
// Sums the losses that the head left, as the index-th sum of losses.
TRI_MUST_CHECK tri_status tri_train_sum_losses(tri_train *train, const tri_batch *batch, int index);

// Root prints what runs where and with which memory. Collective (it gathers).
TRI_MUST_CHECK tri_status tri_train_report_header(tri_train *train);
void tri_train_report_step(const tri_progress *progress, const tri_step_metrics *metrics);
TRI_MUST_CHECK tri_status tri_train_report_end(tri_train *train, const tri_progress *progress);
// Peak flop/s of this rank's matrix products, measured by a short one.
TRI_MUST_CHECK tri_status tri_train_measure_peak(tri_train *train);

// Makes data.corpus from data.text or data.text_command when the file is missing. Local; root calls
// it.
TRI_MUST_CHECK tri_status tri_prepare_corpus(const tri_job_data *data);
