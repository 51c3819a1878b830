#include "trireme/telemetry/progress.h"

#include <stdio.h>

#include "trireme/telemetry/clock.h"

void tri_progress_begin(tri_progress *progress, const char *what, int64_t first, int64_t total)
{
  *progress = (tri_progress){
      .what = what, .first = first, .total = total, .began_seconds = tri_clock_seconds()};
}

void tri_progress_remaining(const tri_progress *progress, int64_t done, char *buffer, int size)
{
  const int64_t ahead = progress->total - done, behind = done - progress->first;
  if (behind <= 0) {
    snprintf(buffer, (size_t)size, "unknown time");
    return;
  }
  const double elapsed = tri_clock_seconds() - progress->began_seconds;
  const long long left = (long long)(elapsed / (double)behind * (double)ahead + 0.5);
  if (left >= 3600) {
    snprintf(buffer, (size_t)size, "%lld h %02lld min", left / 3600, left % 3600 / 60);
  } else if (left >= 60) {
    snprintf(buffer, (size_t)size, "%lld min %02lld s", left / 60, left % 60);
  } else {
    snprintf(buffer, (size_t)size, "%lld s", left);
  }
}
