#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "trireme/runtime/runtime.h"

// A signal reaches no object, only the process.
static volatile sig_atomic_t first_signal, n_ends;

static void note_signal(int number)
{
  if (first_signal == 0) first_signal = number;
  if (number == SIGUSR1) return;
  n_ends = n_ends + 1;
  if (n_ends > 1) _exit(128 + number);
}

tri_status tri_runtime_catch_signals(void)
{
  const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 3; i++)
    TRI_CHECK(sigaction(numbers[i], &action, NULL) == 0, TRI_ERR_UNSUPPORTED,
              "signal %s cannot be caught: %s", strsignal(numbers[i]), strerror(errno));
  return TRI_OK;
}

int tri_runtime_signal(void)
{
  return first_signal;
}
