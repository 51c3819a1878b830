// The side channel: what ranks in trouble tell each other. Nothing here waits for a rank: sends are
// started and left, and only what has arrived is received.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm_private.h"
#include "trireme/base/memory.h"
#include "trireme/telemetry/clock.h"

static tri_status allocate(tri_side *side)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, side->size, &side->hosts));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, side->size, &side->waits));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, side->size, &side->ends));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, side->size, &side->all_ends));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, 2 * side->size, &side->sends));
  for (int i = 0; i < side->size; i++)
    side->ends[i] = TRI_NOT_ENDED;
  for (int i = 0; i < 2 * side->size; i++)
    side->sends[i] = MPI_REQUEST_NULL;
  return TRI_OK;
}

static tri_status share_hosts(tri_side *side)
{
  char own[TRI_HOST_BYTES] = "";
  if (gethostname(own, sizeof own - 1) != 0) snprintf(own, sizeof own, "unknown");
  TRI_CALL_MPI(MPI_Allgather(own, TRI_HOST_BYTES, MPI_CHAR, side->hosts, TRI_HOST_BYTES, MPI_CHAR,
                             side->mpi));
  return TRI_OK;
}

tri_status tri_side_create(tri_side **out)
{
  tri_status status;
  tri_side *side = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, 1, &side));
  side->culprit = -1;
  side->mpi = MPI_COMM_NULL;
  TRI_CALL_MPI_GOTO(err_destroy, MPI_Comm_dup(MPI_COMM_WORLD, &side->mpi));
  TRI_CALL_MPI_GOTO(err_destroy, MPI_Comm_set_errhandler(side->mpi, MPI_ERRORS_RETURN));
  TRI_CALL_MPI_GOTO(err_destroy, MPI_Comm_rank(side->mpi, &side->rank));
  TRI_CALL_MPI_GOTO(err_destroy, MPI_Comm_size(side->mpi, &side->size));
  TRI_CALL_GOTO(err_destroy, allocate(side));
  TRI_CALL_GOTO(err_destroy, share_hosts(side));
  *out = side;
  return TRI_OK;

err_destroy:
  tri_side_destroy(&side);
  return status;
}

void tri_side_destroy(tri_side **side_pointer)
{
  tri_side *side = *side_pointer;
  if (side == NULL) return;
  if (side->mpi != MPI_COMM_NULL && !side->broken) (void)MPI_Comm_free(&side->mpi);
  TRI_FREE(&side->hosts);
  TRI_FREE(&side->waits);
  TRI_FREE(&side->ends);
  TRI_FREE(&side->all_ends);
  TRI_FREE(&side->sends);
  TRI_FREE(side_pointer);
}

static void tell_all(tri_side *side, const tri_note *note, MPI_Request *sends)
{
  for (int rank = 0; rank < side->size; rank++) {
    if (rank == side->rank) continue;
    // A rank that cannot be told is in trouble itself; the others still can.
    if (MPI_Isend(note, sizeof *note, MPI_BYTE, rank, 0, side->mpi, &sends[rank]) != MPI_SUCCESS)
      sends[rank] = MPI_REQUEST_NULL;
  }
}

void tri_side_tell_wait(const tri_comm *comm, const tri_operation *operation, bool late)
{
  tri_side *side = comm->side;
  if (side->told_wait) return;
  side->told_wait = true;
  tri_wait_note *wait = &side->wait_note.wait;
  wait->comm_id = comm->id;
  wait->late = late;
  wait->number = operation->number;
  snprintf(wait->comm_name, sizeof wait->comm_name, "%s", comm->name);
  snprintf(wait->what, sizeof wait->what, "%s", operation->what);
  tell_all(side, &side->wait_note, side->sends);
}

// An error that began on the rank that has it.
static bool is_own_error(tri_status status)
{
  return status != TRI_OK && status != TRI_ERR_PEER && status != TRI_ERR_TIMEOUT &&
         status != TRI_ERR_INTERRUPTED;
}

void tri_side_tell_end(tri_side *side, tri_status status)
{
  if (side->told_end || !is_own_error(status)) return;
  side->told_end = true;
  side->end_note.status = (int32_t)status;
  snprintf(side->end_note.text, sizeof side->end_note.text, "%s", tri_error_message());
  tell_all(side, &side->end_note, side->sends + side->size);
}

static void take_in(tri_side *side, int rank, const tri_note *note)
{
  if (note->wait.comm_id != 0) {
    side->n_waits += side->waits[rank].comm_id == 0;
    side->waits[rank] = note->wait;
    return;
  }
  side->ends[rank] = note->status;
  if (side->culprit < 0) side->culprit_seconds = tri_clock_seconds();
  if (side->culprit >= 0 && side->culprit < rank) return;
  side->culprit = rank;
  snprintf(side->culprit_text, sizeof side->culprit_text, "%s", note->text);
}

void tri_side_listen(tri_side *side)
{
  for (;;) {
    int arrived = 0;
    tri_note note;
    MPI_Status from;
    if (MPI_Iprobe(MPI_ANY_SOURCE, 0, side->mpi, &arrived, &from) != MPI_SUCCESS || !arrived)
      return;
    // Short enough to be there as a whole once its start is.
    if (MPI_Recv(&note, sizeof note, MPI_BYTE, from.MPI_SOURCE, 0, side->mpi, &from) != MPI_SUCCESS)
      return;
    take_in(side, from.MPI_SOURCE, &note);
  }
}
