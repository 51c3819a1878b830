// What a pipeline needs to know before it starts: its lists of actions, how many sends a channel
// must be able to hold, and the buffers of a stage. Private to src/parallel. Local, pure.
#pragma once

#include "trireme/parallel/pipeline_schedule.h"

// The lists of all stages: those of a schedule, or forward passes alone, where the micro-batches go
// through all virtual stages in groups of n_stages, so that few of them are under way.
typedef struct tri_pipeline_lists {
  const tri_pipeline_schedule *schedule; // its sizes count always
  int n_forward; // -1: the schedule's own lists; else this many forward passes
} tri_pipeline_lists;

int tri_pipeline_lists_length(const tri_pipeline_lists *lists, int stage);
tri_pipeline_action tri_pipeline_lists_action(const tri_pipeline_lists *lists, int stage, int at);

// The least number of sends under way on a channel, 2 or more, with which all lists come to their
// end when a send waits for room, and a receive is posted when what the action before awaits is
// there. *out 0: none up to `most` will do.
TRI_MUST_CHECK tri_status tri_pipeline_plan_depth(const tri_pipeline_lists *lists, int most,
                                                  int *out);

// Buffers of one stage under way at once: inputs kept for backward, received, computed, being sent.
int tri_pipeline_plan_buffers(const tri_pipeline_lists *lists, int stage, int depth);
