// Signals only set a flag; the second call to end ends at once. Each case in a process of its own.
// timeout: 30
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "trireme/runtime/runtime.h"

// What the child that raises these signals ends with; it exits with the signal it remembers.
static int end_of(const int *signals, int n)
{
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    if (tri_runtime_catch_signals() != TRI_OK || tri_runtime_signal() != 0) _exit(99);
    for (int i = 0; i < n; i++)
      raise(signals[i]);
    _exit(tri_runtime_signal());
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(first_signal_is_remembered)
{
  EXPECT(end_of(NULL, 0) == 0);
  EXPECT(end_of((const int[]){SIGTERM}, 1) == SIGTERM);
  EXPECT(end_of((const int[]){SIGUSR1, SIGUSR1, SIGINT}, 3) == SIGUSR1);
}

TEST(second_call_to_end_ends_at_once)
{
  EXPECT(end_of((const int[]){SIGTERM, SIGTERM}, 2) == 128 + SIGTERM);
  EXPECT(end_of((const int[]){SIGTERM, SIGUSR1, SIGINT}, 3) == 128 + SIGINT);
}

int main(void)
{
  TEST_RUN(first_signal_is_remembered);
  TEST_RUN(second_call_to_end_ends_at_once);
  return test_end();
}
