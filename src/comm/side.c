// The side channel.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm_private.h"
#include "trireme/base/memory.h"

static tri_status share_hosts(tri_side *side)
{
  char own[TRI_HOST_BYTES] = "";
  TRI_CHECK(gethostname(own, sizeof own - 1) == 0, TRI_ERR_IO, "the host has no name");
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
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_COMM, side->size, &side->hosts));
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_COMM, side->size, &side->notes));
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_COMM, 2 * side->size, &side->sends));
  for (int i = 0; i < 2 * side->size; i++)
    side->sends[i] = MPI_REQUEST_NULL;
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
  TRI_FREE(&side->notes);
  TRI_FREE(&side->sends);
  TRI_FREE(side_pointer);
}

tri_status tri_side_watch(tri_comm *comm, const tri_operation *operation, double waited)
{
  TRI_CHECK(waited < comm->limit_seconds, TRI_ERR_TIMEOUT,
            "operation %lld \"%s\" of \"%s\": no answer for %.3g s", (long long)operation->number,
            operation->what, comm->name, waited);
  return TRI_OK;
}
