// What the files of pipeline_schedule share. Private to parallel.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trireme/parallel/pipeline_schedule.h"

// Bad when a table's numbers are out of range, so that nobody may index with them. Slots are looked
// at by tri_pipeline_schedule_check alone.
TRI_MUST_CHECK tri_status tri_pipeline_check_ranges(const tri_pipeline_schedule *schedule);

// tri_pipeline_schedule_simulate with forwards and halves of backwards that take 1, transfers 0.
TRI_MUST_CHECK tri_status tri_pipeline_simulate_units(const tri_pipeline_schedule *schedule,
                                                      tri_pipeline_timing **out);

// Whether `work` sends its gradient on: BACKWARD and BACKWARD_INPUT.
static inline bool tri_pipeline_gives_gradient(tri_pipeline_work work)
{
  return work == TRI_PIPELINE_BACKWARD || work == TRI_PIPELINE_BACKWARD_INPUT;
}

// "stage 2, action 7 (forward of micro-batch 3, chunk 0)"
enum { TRI_PIPELINE_WHERE_BYTES = 128 };
const char *tri_pipeline_where(char where[TRI_PIPELINE_WHERE_BYTES],
                               const tri_pipeline_schedule *schedule, int stage, int at);

// "activations of micro-batch 3 from stage 1, chunk 0"
const char *tri_pipeline_what(char what[TRI_PIPELINE_WHERE_BYTES],
                              const tri_pipeline_transfer *transfer);
