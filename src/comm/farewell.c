// The last meeting of the ranks of the job.
#include "comm/comm_private.h"
#include "trireme/telemetry/clock.h"

// A rank with an error does not know whether the others share it; so long they have to come. After
// a wait beyond the limit it is known who is there, and all leave it at about the same time.
static const double ERROR_SECONDS = 5, TIMEOUT_SECONDS = 1;

// Waits for the meeting, then for the notes under way, without hope.
static bool wait_briefly(tri_side *side, MPI_Request *meeting, double seconds)
{
  const double start = tri_clock_seconds();
  double waited = 0;
  int met = 0;
  while (waited < seconds) {
    if (MPI_Test(meeting, &met, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    tri_side_listen(side);
    if (met) break;
    tri_comm_rest(waited);
    waited = tri_clock_seconds() - start;
  }
  return met != 0;
}

static bool is_failure(int status)
{
  return status > TRI_OK && status != TRI_ERR_INTERRUPTED;
}

// What each rank ends with, from the meeting if there was one, and from the notes.
static void fill_statuses(const tri_side *side, tri_status own, bool met, int *statuses)
{
  for (int rank = 0; rank < side->size; rank++) {
    statuses[rank] = met ? side->all_ends[rank].status : -1;
    if (side->ends[rank] != TRI_NOT_ENDED)
      statuses[rank] = side->ends[rank];
    else if (side->waits[rank].comm_id != 0 && !is_failure(statuses[rank]))
      statuses[rank] = side->waits[rank].late ? TRI_ERR_PEER : TRI_ERR_TIMEOUT;
  }
  statuses[side->rank] = (int)own;
}

static bool nothing_unfinished(const tri_side *side)
{
  for (int rank = 0; rank < side->size; rank++)
    if (side->all_ends[rank].broken) return false;
  return !side->broken;
}

// A rank without an error waits within the limit, as for any operation.
static tri_status wait_for_all(tri_comm *world, MPI_Request *meeting)
{
  const tri_operation operation = {.what = "end of the program", .number = ++world->operations};
  return tri_comm_wait_all(world, &operation, 1, meeting, MPI_STATUSES_IGNORE);
}

tri_status tri_comm_farewell(tri_comm *world, tri_status status, int *statuses, bool *orderly)
{
  tri_side *side = world->side;
  const int n = sizeof(tri_end) / sizeof(int32_t);
  MPI_Request meeting = MPI_REQUEST_NULL;
  tri_status wait_status = TRI_ERR_PEER;
  bool met = false;
  // Ranks that wait for this one must hear before they can come.
  tri_side_tell_end(side, status);
  side->own_end = (tri_end){.status = (int32_t)status, .broken = side->broken};
  const int code = MPI_Iallgather(&side->own_end, n, MPI_INT32_T, side->all_ends, n, MPI_INT32_T,
                                  side->mpi, &meeting);
  if (code != MPI_SUCCESS) {
    wait_status = tri_comm_mpi_error(code, "MPI_Iallgather", __func__, __FILE__, __LINE__);
    side->broken = true;
  } else if (!is_failure((int)status)) {
    wait_status = wait_for_all(world, &meeting);
    met = wait_status == TRI_OK;
  }
  if (!met && !is_failure((int)status)) {
    status = wait_status;
    tri_side_tell_end(side, status);
  }
  if (!met && code == MPI_SUCCESS)
    met = wait_briefly(side, &meeting, status == TRI_ERR_TIMEOUT ? TIMEOUT_SECONDS : ERROR_SECONDS);
  fill_statuses(side, status, met, statuses);
  *orderly = met && nothing_unfinished(side);
  return status;
}
