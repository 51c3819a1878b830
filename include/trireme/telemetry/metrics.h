// metrics.jsonl: one JSON object a step, in the run folder. Written by root, flushed a line at a
// time, so that a killed run keeps all lines but perhaps the last. Local.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/base/status.h"

// One training step. Not-a-number fields are written as null.
typedef struct tri_step_metrics {
  int64_t step;     // from 1
  int64_t tokens;   // seen since the run began
  double loss;      // nats a token, of the global batch
  double grad_norm; // before clipping
  double lr;
  double step_seconds;
  double compute_seconds;       // of root
  double communication_seconds; // exposed
  double data_seconds;
  double checkpoint_seconds; // of the checkpoint written since the line before
  double tokens_per_second;
  double model_flops_per_second; // of the whole job
  double mfu;                    // model flops / (ranks * peak)
  double validation_loss;        // nats a token; NaN: not measured at this step
  double validation_loss_per_byte;
} tri_step_metrics;

typedef struct tri_metrics tri_metrics;

// Opens for appending; `resume_step` >= 0 first drops the lines of later steps (a resumed run
// writes them again). *out owned.
TRI_MUST_CHECK tri_status tri_metrics_open(const char *path, int64_t resume_step,
                                           tri_metrics **out);
TRI_MUST_CHECK tri_status tri_metrics_close(tri_metrics **metrics);
// `mfu_convention` and `peak` name what the flop numbers mean; written once at the head as
// {"header": {…}}.
TRI_MUST_CHECK tri_status tri_metrics_header(tri_metrics *metrics, const char *flop_convention,
                                             double flops_per_token, const char *peak_name,
                                             double peak_flops, int n_ranks);
TRI_MUST_CHECK tri_status tri_metrics_write(tri_metrics *metrics, const tri_step_metrics *step);

// Reads all whole lines of a file; a broken last line is left out. *steps owned by the caller
// (tri_free).
TRI_MUST_CHECK tri_status tri_metrics_read(const char *path, tri_step_metrics **steps,
                                           int64_t *n_steps);
