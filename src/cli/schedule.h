// The timetable of a pipeline schedule, in two forms. Private to cli.
#pragma once

#include "trireme/parallel/pipeline_schedule.h"

// A schedule and the times of its actions, where every chunk costs the same. Borrowed.
typedef struct tri_cli_timetable {
  const tri_pipeline_schedule *schedule;
  const tri_pipeline_timing *timing;
  tri_pipeline_cost cost;
} tri_cli_timetable;

// `trireme info schedule KIND …`: argv[0] is "info", "schedule" is gone.
TRI_MUST_CHECK tri_status tri_cli_schedule(int argc, char **argv);

// "F", "B" (whole, or the input half) or "W".
const char *tri_cli_timetable_letter(tri_pipeline_work work);

// The shortest time above 0 that an action takes; 0 when none takes any.
double tri_cli_timetable_unit(const tri_cli_timetable *table);

// Writes a self-contained SVG picture to `path`, whole or not at all.
TRI_MUST_CHECK tri_status tri_cli_timetable_svg(const tri_cli_timetable *table, const char *path);
