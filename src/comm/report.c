// When a wait is over its limit: the ranks compare notes, and name those that are missing.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "comm/comm_private.h"
#include "trireme/base/log.h"
#include "trireme/telemetry/clock.h"

// Ranks that wait hear of the trouble within milliseconds; the rest is room for a loaded machine.
static const double GRACE_SECONDS = 2, GRACE_PER_LIMIT = 0.05, GRACE_MOST_SECONDS = 10;
// What a rank sent before it failed may still be under way: so long it may take.
static const double IN_FLIGHT_SECONDS = 1;

enum { MOST_NAMED = 8, LINE_BYTES = 1900 };

typedef struct line {
  char text[LINE_BYTES];
  size_t used;
} line;

TRI_PRINTF(2, 3) static void add(line *l, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(l->text + l->used, LINE_BYTES - l->used, format, arguments);
  va_end(arguments);
  if (n > 0) l->used += (size_t)n < LINE_BYTES - l->used ? (size_t)n : LINE_BYTES - 1 - l->used;
}

typedef enum place { HERE, ELSEWHERE, LATE, ENDED, MISSING } place;

// Where a rank of the communicator is, by what it said.
static place place_of(const tri_comm *comm, const tri_operation *operation, int rank)
{
  const int job_rank = comm->job_ranks[rank];
  const tri_wait_note *wait = &comm->side->waits[job_rank];
  if (rank == comm->rank) return HERE;
  if (wait->late) return LATE;
  if (wait->comm_id == comm->id && wait->number == operation->number &&
      strncmp(wait->what, operation->what, TRI_WHAT_BYTES - 1) == 0)
    return HERE;
  if (wait->comm_id != 0) return ELSEWHERE;
  return comm->side->ends[job_rank] == TRI_NOT_ENDED ? MISSING : ENDED;
}

// Whether a group still waits for a message of this rank.
static bool group_awaits(const tri_request *group, int rank)
{
  for (int i = 0; i < group->n; i++) {
    int done = 0;
    if (group->peers[i] == rank &&
        MPI_Request_get_status(group->requests[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
        !done)
      return true;
  }
  return false;
}

// A group waits for its peers only; if all of them said where they are, whoever is silent is to
// blame, since a peer waits for him.
static bool has_missing_peer(const tri_comm *comm, const tri_operation *operation)
{
  for (int rank = 0; operation->group != NULL && rank < comm->size; rank++)
    if (place_of(comm, operation, rank) == MISSING && group_awaits(operation->group, rank))
      return true;
  return false;
}

static int count(const tri_comm *comm, const tri_operation *operation, place wanted)
{
  int n = 0;
  for (int rank = 0; rank < comm->size; rank++)
    n += place_of(comm, operation, rank) == wanted;
  return n;
}

// "ranks 0-2, 5 wait here"
static void add_here(line *l, const tri_comm *comm, const tri_operation *operation)
{
  const int n = count(comm, operation, HERE);
  const char *separator = "";
  add(l, n == 1 ? "; rank " : "; ranks ");
  for (int rank = 0; rank < comm->size; rank++) {
    if (place_of(comm, operation, rank) != HERE) continue;
    int last = rank;
    while (last + 1 < comm->size && place_of(comm, operation, last + 1) == HERE &&
           comm->job_ranks[last + 1] == comm->job_ranks[last] + 1)
      last++;
    add(l, "%s%d", separator, comm->job_ranks[rank]);
    if (last > rank) add(l, last == rank + 1 ? ", %d" : "-%d", comm->job_ranks[last]);
    separator = ", ";
    rank = last;
  }
  add(l, n == 1 ? " waits here" : " wait here");
}

static void add_elsewhere(line *l, const tri_comm *comm, const tri_operation *operation)
{
  const tri_side *side = comm->side;
  int n = 0;
  for (int rank = 0; rank < comm->size; rank++) {
    const int job_rank = comm->job_ranks[rank];
    const tri_wait_note *wait = &side->waits[job_rank];
    const place at = place_of(comm, operation, rank);
    if (at == HERE || at == MISSING || n++ >= MOST_NAMED) continue;
    if (at == LATE) {
      add(l, "; rank %d (host %s) came too late", job_rank, side->hosts[job_rank]);
    } else if (at == ENDED) {
      add(l, "; rank %d has ended (%s)", job_rank,
          tri_status_name((tri_status)side->ends[job_rank]));
    } else {
      add(l, "; rank %d waits in operation %lld \"%s\"", job_rank, (long long)wait->number,
          wait->what);
      if (wait->comm_id != comm->id) add(l, " of \"%s\"", wait->comm_name);
    }
  }
  if (n > MOST_NAMED) add(l, "; %d more ranks are elsewhere", n - MOST_NAMED);
}

static void add_missing(line *l, const tri_comm *comm, const tri_operation *operation)
{
  const bool only_peers = has_missing_peer(comm, operation);
  int n = 0;
  for (int rank = 0; rank < comm->size; rank++) {
    const int job_rank = comm->job_ranks[rank];
    if (place_of(comm, operation, rank) != MISSING) continue;
    if (only_peers && !group_awaits(operation->group, rank)) continue;
    if (n++ < MOST_NAMED)
      add(l, "%srank %d (host %s)", n == 1 ? "; " : ", ", job_rank, comm->side->hosts[job_rank]);
  }
  if (n > MOST_NAMED) add(l, " and %d more", n - MOST_NAMED);
  if (n > 0)
    add(l, " did not arrive");
  else if (count(comm, operation, ELSEWHERE) > 0 && count(comm, operation, LATE) == 0)
    add(l, "; no rank is missing: they do not call the same operations in the same order");
}

// Until every rank of the communicator said where it is, or the time is up.
static void collect(const tri_comm *comm, const tri_operation *operation)
{
  double grace = GRACE_SECONDS + GRACE_PER_LIMIT * comm->limit_seconds;
  if (grace > GRACE_MOST_SECONDS) grace = GRACE_MOST_SECONDS;
  const double start = tri_clock_seconds();
  double waited = 0;
  while (waited < grace) {
    tri_side_listen(comm->side);
    if (count(comm, operation, MISSING) == 0) return;
    tri_comm_rest(waited + 0.01);
    waited = tri_clock_seconds() - start;
  }
}

static tri_status peer_error(const tri_comm *comm, const tri_operation *operation)
{
  const tri_side *side = comm->side;
  return TRI_ERROR(TRI_ERR_PEER,
                   "rank %d: %s: %s (this rank waited for it in operation %lld \"%s\" of \"%s\")",
                   side->culprit, tri_status_name((tri_status)side->ends[side->culprit]),
                   side->culprit_text, (long long)operation->number, operation->what, comm->name);
}

static tri_status report(const tri_comm *comm, const tri_operation *operation, double waited)
{
  tri_log_rank(TRI_LOG_ERROR, "waits in operation %lld \"%s\" of \"%s\", for %.3g s now",
               (long long)operation->number, operation->what, comm->name, waited);
  tri_side_tell_wait(comm, operation, false);
  collect(comm, operation);
  // An error of a rank says more than that it is missing.
  if (comm->side->culprit >= 0) return peer_error(comm, operation);
  line l = {.used = 0};
  add(&l, "operation %lld \"%s\" of \"%s\": no answer for %.3g s", (long long)operation->number,
      operation->what, comm->name, waited);
  add_here(&l, comm, operation);
  add_elsewhere(&l, comm, operation);
  add_missing(&l, comm, operation);
  return TRI_ERROR(TRI_ERR_TIMEOUT, "%s", l.text);
}

// The others waited for this rank and gave up: it says that it is there, and has to end as well.
static tri_status come_late(const tri_comm *comm, const tri_operation *operation)
{
  tri_log_rank(TRI_LOG_ERROR, "comes to operation %lld \"%s\" of \"%s\" when others have given up",
               (long long)operation->number, operation->what, comm->name);
  tri_side_tell_wait(comm, operation, true);
  return TRI_ERROR(TRI_ERR_PEER,
                   "other ranks gave up waiting before this one came to operation "
                   "%lld \"%s\" of \"%s\"",
                   (long long)operation->number, operation->what, comm->name);
}

tri_status tri_comm_watch(const tri_comm *comm, const tri_operation *operation, double waited,
                          bool first)
{
  tri_side *side = comm->side;
  tri_side_listen(side);
  if (side->culprit >= 0 && tri_clock_seconds() - side->culprit_seconds > IN_FLIGHT_SECONDS)
    return peer_error(comm, operation);
  if (first && side->n_waits > 0) return come_late(comm, operation);
  if (waited < comm->limit_seconds && side->n_waits == 0) return TRI_OK;
  return report(comm, operation, waited);
}
