// How far a long job is and when it ends. Local.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_progress {
  const char *what;     // "train"; borrowed
  int64_t first, total; // steps done at the start, steps in all
  double began_seconds; // tri_clock_seconds at the start
} tri_progress;

void tri_progress_begin(tri_progress *progress, const char *what, int64_t first, int64_t total);

// Time to go by the mean rate since the start, as "1 h 02 min", "3 min 20 s", "12 s"; into buffer.
void tri_progress_remaining(const tri_progress *progress, int64_t done, char *buffer, int size);
