// Learning rate schedules. Local, pure.
#pragma once

#include <stdint.h>

typedef enum tri_schedule_kind {
  TRI_SCHEDULE_CONSTANT,
  TRI_SCHEDULE_LINEAR,
  TRI_SCHEDULE_COSINE
} tri_schedule_kind;

typedef struct tri_schedule {
  tri_schedule_kind kind;
  float lr;             // peak
  float min_lr;         // reached at the last step; not used by constant
  int64_t warmup_steps; // linear from lr / warmup_steps at step 1 to lr at step warmup_steps
  int64_t steps;        // of the run
} tri_schedule;

// The rate of step 1, 2, … steps (later steps keep the last).
float tri_schedule_rate(const tri_schedule *schedule, int64_t step);
