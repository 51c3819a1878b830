#include "comm/exit_timer.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void *exit_late(void *argument)
{
  tri_exit_timer *timer = argument;
  struct timespec end = {0};
  (void)clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += (time_t)timer->seconds;
  end.tv_nsec += (long)((timer->seconds - (double)(time_t)timer->seconds) * 1e9);
  end.tv_sec += end.tv_nsec / 1000000000;
  end.tv_nsec %= 1000000000;
  int code = 0;
  pthread_mutex_lock(&timer->mutex);
  while (!timer->is_stopped && code == 0)
    code = pthread_cond_timedwait(&timer->stopped, &timer->mutex, &end);
  const bool in_time = timer->is_stopped;
  pthread_mutex_unlock(&timer->mutex);
  if (in_time) return NULL;
  // Not by the log: the thread that does not return may hold its lock.
  if (timer->what != NULL)
    dprintf(STDERR_FILENO, "error: %s did not return within %g s: this process ends\n", timer->what,
            timer->seconds);
  _exit(timer->exit_code);
}

void tri_exit_timer_start(tri_exit_timer *timer, const char *what, double seconds, int exit_code)
{
  pthread_condattr_t monotonic;
  *timer = (tri_exit_timer){.seconds = seconds, .exit_code = exit_code, .what = what};
  if (pthread_condattr_init(&monotonic) != 0 ||
      pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) != 0 ||
      pthread_cond_init(&timer->stopped, &monotonic) != 0 ||
      pthread_mutex_init(&timer->mutex, NULL) != 0 ||
      pthread_create(&timer->thread, NULL, exit_late, timer) != 0)
    _exit(exit_code);
  (void)pthread_condattr_destroy(&monotonic);
}

void tri_exit_timer_stop(tri_exit_timer *timer)
{
  pthread_mutex_lock(&timer->mutex);
  timer->is_stopped = true;
  pthread_cond_signal(&timer->stopped);
  pthread_mutex_unlock(&timer->mutex);
  (void)pthread_join(timer->thread, NULL);
  (void)pthread_cond_destroy(&timer->stopped);
  (void)pthread_mutex_destroy(&timer->mutex);
}
