// Ends the process when something that may never return does not return in time. Private to
// src/comm.
#pragma once

#include <pthread.h>
#include <stdbool.h>

typedef struct tri_exit_timer {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t stopped;
  bool is_stopped;
  double seconds;
  int exit_code;
  const char *what; // borrowed; NULL: nothing is said
} tri_exit_timer;

// Unless it is stopped within `seconds`, the process says that `what` did not return, and exits. A
// process that cannot even start the timer exits at once: its job is over anyway.
void tri_exit_timer_start(tri_exit_timer *timer, const char *what, double seconds, int exit_code);
void tri_exit_timer_stop(tri_exit_timer *timer);
