// The wait loop of every operation: test, spin briefly, yield, sleep; and know the deadline.
//
// Ranks may share cores, so a waiting rank must leave the core to the one it waits for; but a wait
// is often a few microseconds, so it must not sleep at once.
#include <sched.h>
#include <time.h>

#include "comm/comm_private.h"
#include "trireme/telemetry/clock.h"

static const double SPIN_SECONDS = 20e-6, YIELD_SECONDS = 2e-3, DOZE_SECONDS = 0.1;
static const double WATCH_SECONDS = 10e-3; // from then on, and this often, the side channel is read

void tri_comm_rest(double waited)
{
  if (waited < SPIN_SECONDS) return;
  if (waited < YIELD_SECONDS) {
    (void)sched_yield();
    return;
  }
  const struct timespec pause = {.tv_nsec = waited < DOZE_SECONDS ? 20 * 1000 : 500 * 1000};
  (void)nanosleep(&pause, NULL);
}

// Which of the messages of a group failed, and why.
static tri_status group_error(const tri_operation *operation, const MPI_Status *statuses)
{
  const tri_request *group = operation->group;
  for (int i = 0; i < group->n; i++) {
    const int code = statuses[i].MPI_ERROR;
    if (code == MPI_SUCCESS || code == MPI_ERR_PENDING) continue;
    const int peer = group->comm->job_ranks[group->peers[i]];
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
    return TRI_ERROR(TRI_ERR_COMM, "operation %lld \"%s\" of \"%s\": %s rank %d, %zu bytes: %s",
                     (long long)operation->number, operation->what, group->comm->name,
                     i < group->n_receives ? "receive from" : "send to", peer, group->sizes[i],
                     text);
  }
  return TRI_ERROR(TRI_ERR_COMM, "operation %lld \"%s\" of \"%s\" failed in MPI_Testall",
                   (long long)operation->number, operation->what, group->comm->name);
}

tri_status tri_comm_test_all(const tri_operation *operation, int n, MPI_Request *requests,
                             MPI_Status *statuses, int *done)
{
  const int code = MPI_Testall(n, requests, done, statuses);
  if (code == MPI_SUCCESS) return TRI_OK;
  *done = 0;
  if (operation->group != NULL && statuses != MPI_STATUSES_IGNORE)
    return group_error(operation, statuses);
  return tri_comm_mpi_error(code, "MPI_Testall", __func__, __FILE__, __LINE__);
}

tri_status tri_comm_wait_all(tri_comm *comm, const tri_operation *operation, int n,
                             MPI_Request *requests, MPI_Status *statuses)
{
  const double start = tri_clock_seconds();
  double waited = 0, next_watch = WATCH_SECONDS;
  tri_status status;
  int done = 0;
  for (;;) {
    status = tri_comm_test_all(operation, n, requests, statuses, &done);
    waited = tri_clock_seconds() - start;
    if (status != TRI_OK || done) break;
    tri_comm_rest(waited);
    if (waited < next_watch) continue;
    status = tri_comm_watch(comm, operation, waited, next_watch == WATCH_SECONDS);
    next_watch = waited + WATCH_SECONDS;
    if (status != TRI_OK) break;
  }
  comm->wait_seconds += waited;
  if (status != TRI_OK) {
    comm->side->broken = true;
    tri_comm_cancel_groups(comm);
    tri_error_trace(__func__, __FILE__, __LINE__);
  }
  return status;
}
