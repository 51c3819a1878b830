// A job with one rank in trouble, for the scripts of tests/comm and tests/runtime: trouble KIND
// RANK [LIMIT]
//
// All ranks do three good operations, then "gradient bucket"; rank RANK gets into trouble of KIND
// before it. "late" is within the limit, "tardy" beyond it. LIMIT is the wait limit in seconds, 2
// by default.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trireme/base/memory.h"
#include "trireme/comm/comm.h"
#include "trireme/runtime/runtime.h"
#include "trireme/telemetry/clock.h"

static void pause_seconds(double seconds)
{
  const double end = tri_clock_seconds() + seconds;
  const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
  while (tri_clock_seconds() < end)
    (void)nanosleep(&pause, NULL);
}

// The trouble of the one rank. What returns TRI_OK goes on with "gradient bucket".
static tri_status get_into_trouble(const char *kind, tri_comm *world)
{
  if (strcmp(kind, "late") == 0) pause_seconds(1);
  if (strcmp(kind, "tardy") == 0) pause_seconds(3);
  if (strcmp(kind, "stop") == 0 || strcmp(kind, "apart") == 0) raise(SIGSTOP);
  if (strcmp(kind, "kill") == 0) raise(SIGKILL);
  if (strcmp(kind, "crash") == 0) abort();
  const double start = tri_clock_seconds();
  while (strcmp(kind, "loop") == 0 && tri_clock_seconds() < start + 60) {
  }
  if (strcmp(kind, "other") == 0) TRI_CALL(tri_comm_barrier(world, "gradient norm"));
  if (strcmp(kind, "error") == 0) return TRI_ERROR(TRI_ERR_IO, "disk of rank in trouble is full");
  // The others do not know of any agreement.
  if (strcmp(kind, "agree-alone") == 0)
    return tri_comm_agree(world, "file",
                          TRI_ERROR(TRI_ERR_FORMAT, "file of rank in trouble is bad"));
  if (strcmp(kind, "exit") == 0) exit(3);
  return TRI_OK;
}

static tri_status bucket(tri_comm *world)
{
  static char out[64][1000], in[64][1000];
  tri_message sends[64], receives[64];
  tri_request *request = NULL;
  const int size = tri_comm_size(world);
  for (int peer = 0; peer < size; peer++) {
    sends[peer] = (tri_message){.data = out[peer], .size_bytes = 1000, .peer = peer};
    receives[peer] = (tri_message){.data = in[peer], .size_bytes = 1000, .peer = peer};
  }
  TRI_CALL(
      tri_comm_exchange_start(world, "gradient bucket", sends, size, receives, size, &request));
  TRI_CALL(tri_comm_request_wait(&request));
  return TRI_OK;
}

// Every rank exchanges with its neighbours only; the last one, in trouble, does not.
static tri_status chain(tri_comm *world)
{
  static char out[8], in[2][8];
  tri_message sends[2], receives[2];
  tri_request *request = NULL;
  const int size = tri_comm_size(world), own = tri_comm_rank(world);
  int n = 0;
  for (int peer = own - 1; peer <= own + 1; peer += 2) {
    if (peer < 0 || peer >= size) continue;
    sends[n] = (tri_message){.data = out, .size_bytes = 8, .peer = peer};
    receives[n] = (tri_message){.data = in[n], .size_bytes = 8, .peer = peer};
    n++;
  }
  for (int turn = 0; turn < size; turn++) {
    TRI_CALL(tri_comm_exchange_start(world, "gradient bucket", sends, n, receives, n, &request));
    TRI_CALL(tri_comm_request_wait(&request));
  }
  return TRI_OK;
}

// Rank `rank` waits in a communicator of its own with its neighbour, the others in the world.
static tri_status wait_elsewhere(tri_comm *world, int rank)
{
  const int size = tri_comm_size(world), own = tri_comm_rank(world);
  const bool in_pair = own == rank || own == (rank + 1) % size;
  tri_comm *pair = NULL;
  TRI_CALL(tri_comm_split(world, "pair", in_pair, 0, &pair));
  tri_status status = own == rank ? tri_comm_barrier(pair, "pair sums") : bucket(world);
  tri_comm_destroy(&pair);
  return status;
}

static tri_status run(const char *kind, int rank, tri_comm *world)
{
  const bool mine = tri_comm_rank(world) == rank;
  int64_t most = 0;
  TRI_CALL(tri_comm_reserve(world, 1, 2 * tri_comm_size(world)));
  TRI_CALL(tri_comm_barrier(world, "start"));
  TRI_CALL(tri_comm_max(world, "flag", 1, &most));
  TRI_CALL(bucket(world));
  if (strcmp(kind, "agree") == 0) {
    tri_status status = mine ? TRI_ERROR(TRI_ERR_FORMAT, "file of rank in trouble is bad") : TRI_OK;
    TRI_CALL(tri_comm_agree(world, "file", status));
  }
  if (strcmp(kind, "pair") == 0) return wait_elsewhere(world, rank);
  if (strcmp(kind, "chain") == 0) {
    if (mine) pause_seconds(60);
    return chain(world);
  }
  if (strcmp(kind, "leave") == 0 && mine) return TRI_OK;
  if (strcmp(kind, "interrupt") == 0) return TRI_ERROR(TRI_ERR_INTERRUPTED, "stopped by a signal");
  // A rank that came a moment ago is there all the same.
  if (strcmp(kind, "apart") == 0 && tri_comm_rank(world) == 0) pause_seconds(2.8);
  if (mine) TRI_CALL(get_into_trouble(kind, world));
  TRI_CALL(bucket(world));
  return TRI_OK;
}

int main(int argc, char **argv)
{
  if (argc < 3) return 2;
  tri_runtime *runtime = NULL;
  const char *kind = argv[1];
  const int rank = atoi(argv[2]);
  tri_status status = tri_runtime_start(argc > 3 ? atof(argv[3]) : 2, &runtime);
  if (status == TRI_OK) status = run(kind, rank, tri_runtime_world(runtime));
  // Missing only at the end of the program.
  if (strcmp(kind, "hang-at-end") == 0 && tri_comm_rank(tri_runtime_world(runtime)) == rank)
    pause_seconds(60);
  const int code = tri_runtime_finish(&runtime, status);
  if (tri_memory_check_balance() != TRI_OK) {
    fprintf(stderr, "unbalanced: %s\n", tri_error_message());
    return 99;
  }
  return code;
}
