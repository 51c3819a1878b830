// Lines for people: lower case, values with units, one line an event.
//
// Local, thread-safe. Only root prints by default; a rank that has something of its own to say
// calls tri_log_rank.
#pragma once

#include "trireme/base/status.h"

typedef enum tri_log_level {
  TRI_LOG_ERROR,
  TRI_LOG_WARN,
  TRI_LOG_INFO,
  TRI_LOG_DEBUG,
  TRI_LOG_TRACE
} tri_log_level;

// Sets what this process prints: messages up to `level`; `rank` (-1 before it is known) marks lines
// of tri_log_rank, and tri_log prints on rank 0 or -1 only.
void tri_log_configure(tri_log_level level, int rank);

// Where lines of level info and below go: standard error (the default), or standard output for a
// command whose lines are its output. Errors and warnings always go to standard error.
void tri_log_info_to(int fd);

// Also writes every line printed to the open file descriptor `fd` (a run's log); -1 ends that.
// Borrowed.
void tri_log_tee(int fd);

// One line from the whole job.
void tri_log(tri_log_level level, const char *format, ...) TRI_PRINTF(2, 3);

// One line from this rank: "rank 3: …".
void tri_log_rank(tri_log_level level, const char *format, ...) TRI_PRINTF(2, 3);
