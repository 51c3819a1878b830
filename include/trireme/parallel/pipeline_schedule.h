// Pipeline schedules as data: for every stage the list of what it computes, in order.
//
// Local, pure arithmetic: no messages, no device. A stage walks its list; before an action it
// receives, after it it sends, what tri_pipeline_schedule_receive and _send say, and needs no other
// knowledge of the schedule.
//
// The model is cut into n_virtual * n_stages virtual stages; stage s holds n_virtual of them, its
// chunks: chunk c of stage s is virtual stage c * n_stages + s. A micro-batch goes forward through
// the virtual stages in ascending order and backward in descending order.
//
//   FORWARD          computes the chunk's output and keeps what backward needs
//   BACKWARD         gradients of the chunk's input and parameters
//   BACKWARD_INPUT   the first half of BACKWARD: the gradient of the input, which others wait for
//   BACKWARD_WEIGHT  the second half: the gradients of the parameters, which nobody waits for
//
// The loss head belongs to the last virtual stage and runs at the beginning of its BACKWARD or
// BACKWARD_INPUT, not in FORWARD: logits of one micro-batch are alive at a time.
//
// In every schedule, on every chunk, the backwards (whole, input halves, weight halves) come in
// ascending order of micro-batches, so that gradients are summed in one order whatever the
// schedule; and on one stage the last backward of chunk c + 1 comes before the last of chunk c.
//
// docs/pipeline.md has pictures and formulas.
#pragma once

#include <stdbool.h>

#include "trireme/base/status.h"

typedef enum tri_pipeline_kind {
  TRI_PIPELINE_GPIPE,       // all forwards, then all backwards; with chunks, breadth first
  TRI_PIPELINE_1F1B,        // one forward, one backward; one chunk a stage
  TRI_PIPELINE_INTERLEAVED, // the same with chunks, two or more a stage
  TRI_PIPELINE_ZB_H1,       // 1F1B with backward in halves (arXiv 2401.10241); one chunk a stage
  TRI_PIPELINE_KIND_COUNT
} tri_pipeline_kind;

typedef enum tri_pipeline_work {
  TRI_PIPELINE_FORWARD,
  TRI_PIPELINE_BACKWARD,
  TRI_PIPELINE_BACKWARD_INPUT,
  TRI_PIPELINE_BACKWARD_WEIGHT
} tri_pipeline_work;

typedef struct tri_pipeline_action {
  tri_pipeline_work work;
  int microbatch;  // [0, n_microbatches)
  int chunk;       // [0, n_virtual)
  int slot;        // [0, n_slots[chunk]): where the activations are that FORWARD keeps, from there
                   // until the end of BACKWARD or BACKWARD_WEIGHT
  int weight_slot; // [0, n_weight_slots[chunk]): where BACKWARD_INPUT leaves for BACKWARD_WEIGHT
                   // the gradients that it needs; -1 for FORWARD and BACKWARD
  int time_slot;   // when it begins if FORWARD and each half of a backward take 1 and transfers 0
} tri_pipeline_action;

typedef struct tri_pipeline_stage {
  tri_pipeline_action *actions;
  int n_actions;
  int *n_slots;        // of each chunk
  int *n_weight_slots; // of each chunk
  // The most activations alive at once, counted in micro-batches of a chunk, over all chunks; and
  // the same for what lies between the halves of a backward. The slots of all chunks together may
  // be more: not every chunk has its most at the same time.
  int peak, weight_peak;
} tri_pipeline_stage;

typedef struct tri_pipeline_schedule {
  tri_pipeline_kind kind;
  int n_stages, n_virtual, n_microbatches;
  tri_pipeline_stage *stages;
} tri_pipeline_schedule;

// "gpipe", "1f1b", "interleaved", "zb-h1"; also "forward", "backward", "backward (input)",
// "backward (weight)".
const char *tri_pipeline_kind_name(tri_pipeline_kind kind);
const char *tri_pipeline_work_name(tri_pipeline_work work);

// The kind of that name; TRI_ERR_ARGUMENT names the nearest and all others.
TRI_MUST_CHECK tri_status tri_pipeline_kind_parse(const char *name, tri_pipeline_kind *out);

// Builds a schedule.
//
// Any n_stages >= 1 and n_microbatches >= 1 will do, fewer micro-batches than stages too, and for
// INTERLEAVED any number of them (where Megatron-LM wants a multiple of n_stages: the micro-batches
// go in n_microbatches / n_stages groups as equal as can be, none below n_stages). n_virtual >= 1
// for GPIPE, 1 for 1F1B and ZB_H1, >= 2 for INTERLEAVED. TRI_ERR_ARGUMENT names the rule and the
// nearest choices, also when the tables would be too long.
//   out    owned by the caller, release with tri_pipeline_schedule_destroy; untouched on error
TRI_MUST_CHECK tri_status tri_pipeline_schedule_create(tri_pipeline_kind kind, int n_stages,
                                                       int n_virtual, int n_microbatches,
                                                       tri_pipeline_schedule **out);
void tri_pipeline_schedule_destroy(tri_pipeline_schedule **schedule);

// One of the virtual stages.
typedef struct tri_pipeline_place {
  int stage, chunk;
} tri_pipeline_place;

// The virtual stage before or after `place`; false at the ends of the model.
bool tri_pipeline_schedule_previous(const tri_pipeline_schedule *schedule, tri_pipeline_place place,
                                    tri_pipeline_place *out);
bool tri_pipeline_schedule_next(const tri_pipeline_schedule *schedule, tri_pipeline_place place,
                                tri_pipeline_place *out);

// What goes from one virtual stage to the next (activations) or to the one before (gradients). The
// peer may be a chunk of the same stage (n_stages == 1). Between two stages, messages of one
// direction, activations or gradients, are received in the order in which they are sent; no order
// is promised between the two directions.
typedef struct tri_pipeline_transfer {
  tri_pipeline_place peer;
  bool gradient;
  int microbatch;
} tri_pipeline_transfer;

// What an action of `stage` must have received before it begins; false: nothing.
bool tri_pipeline_schedule_receive(const tri_pipeline_schedule *schedule, int stage,
                                   const tri_pipeline_action *action, tri_pipeline_transfer *out);
// What it sends when it is done, without waiting for it to arrive; false: nothing.
bool tri_pipeline_schedule_send(const tri_pipeline_schedule *schedule, int stage,
                                const tri_pipeline_action *action, tri_pipeline_transfer *out);

// Proves a table, however it was made:
//   complete    on every chunk each micro-batch has one FORWARD and one BACKWARD, or both halves
//   ordered     the orders promised above; messages are received in the order they are sent in;
//               and the lists come to their end, with receives that wait and sends that do not
//   in slots    no slot is given twice at a time, and each action names the slot its data is in
//   in memory   never more activations alive than the stage's peak and its slots
// TRI_ERR_ARGUMENT names stage, action and what is wrong; of a deadlock, who waits for what.
TRI_MUST_CHECK tri_status tri_pipeline_schedule_check(const tri_pipeline_schedule *schedule);

// Seconds of one virtual stage; BACKWARD takes both its halves. `transfer`: from its output's being
// there to its being with the next virtual stage, and of the gradient that comes back; not counted
// where both are on one stage. All finite, >= 0.
typedef struct tri_pipeline_cost {
  double forward, backward_input, backward_weight, transfer;
} tri_pipeline_cost;

typedef struct tri_pipeline_span {
  double start, end;
} tri_pipeline_span;

typedef struct tri_pipeline_timing {
  int n_stages;
  double makespan;           // seconds until the last action ends
  double bubble;             // idle / busy seconds, both summed over all stages; 0 if none is busy
  double *busy;              // seconds of each stage
  tri_pipeline_span **spans; // of each stage, of each of its actions
} tri_pipeline_timing;

// Lets every stage do its list as early as it can. Transfers overlap computing and one another.
//   costs    of each virtual stage, n_virtual * n_stages of them
//   out      owned by the caller, release with tri_pipeline_timing_destroy; untouched on error
// TRI_ERR_ARGUMENT when the lists never come to their end, as tri_pipeline_schedule_check.
TRI_MUST_CHECK tri_status tri_pipeline_schedule_simulate(const tri_pipeline_schedule *schedule,
                                                         const tri_pipeline_cost *costs,
                                                         tri_pipeline_timing **out);
void tri_pipeline_timing_destroy(tri_pipeline_timing **timing);

// What the bubble is by formula when all virtual stages cost the same and transfers nothing, p
// stages, v chunks, m micro-batches:
//   gpipe, 1f1b, interleaved    (p - 1) / (v m), and for m < p more by (v - 1) (p - m) / (v m)
//   zb-h1, m >= p               (p - 1) (F + I - W) / (m (F + I + W)), for W <= F and W <= I; a
//                               third of 1f1b's when F = I = W
// Negative where no formula is known (zb-h1 elsewhere).
double tri_pipeline_schedule_bubble(const tri_pipeline_schedule *schedule,
                                    const tri_pipeline_cost *cost);
