#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "comm/comm_private.h"
#include "trireme/base/memory.h"

static tri_status wait_one(tri_comm *comm, const tri_operation *operation, MPI_Request *request)
{
  TRI_CALL(tri_comm_wait_all(comm, operation, 1, request, MPI_STATUSES_IGNORE));
  return TRI_OK;
}

// What the rank would send if every receiver got its bytes straight from it.
static void count_bytes(tri_comm *comm, size_t size_bytes, int receivers)
{
  comm->bytes_sent += (int64_t)size_bytes * receivers;
}

tri_status tri_comm_barrier(tri_comm *comm, const char *what)
{
  tri_operation operation;
  MPI_Request request = MPI_REQUEST_NULL;
  TRI_CALL(tri_comm_begin(comm, what, &operation));
  TRI_CALL_MPI(MPI_Ibarrier(comm->mpi, &request));
  return wait_one(comm, &operation, &request);
}

static tri_status broadcast(tri_comm *comm, const tri_operation *operation, void *data,
                            size_t size_bytes, int root)
{
  for (size_t done = 0; done < size_bytes;) {
    const size_t rest = size_bytes - done;
    const size_t chunk = rest < comm->chunk_bytes ? rest : comm->chunk_bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    TRI_CALL_MPI(MPI_Ibcast((char *)data + done, (int)chunk, MPI_BYTE, root, comm->mpi, &request));
    TRI_CALL(wait_one(comm, operation, &request));
    done += chunk;
  }
  if (comm->rank == root) count_bytes(comm, size_bytes, comm->size - 1);
  return TRI_OK;
}

static tri_status check_root(const tri_comm *comm, const char *what, int root)
{
  TRI_CHECK(root >= 0 && root < comm->size, TRI_ERR_ARGUMENT,
            "\"%s\" of \"%s\": root %d is not in [0, %d)", what, comm->name, root, comm->size);
  return TRI_OK;
}

tri_status tri_comm_broadcast(tri_comm *comm, const char *what, void *data, size_t size_bytes,
                              int root)
{
  tri_operation operation;
  TRI_CALL(check_root(comm, what, root));
  TRI_CALL(tri_comm_begin(comm, what, &operation));
  TRI_CALL(broadcast(comm, &operation, data, size_bytes, root));
  return TRI_OK;
}

tri_status tri_comm_all_gather(tri_comm *comm, const char *what, const void *block,
                               size_t size_bytes, void *out)
{
  tri_operation operation;
  TRI_CALL(tri_comm_begin(comm, what, &operation));
  if (size_bytes == 0) return TRI_OK;
  if (size_bytes <= comm->chunk_bytes) {
    const int count = (int)size_bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    TRI_CALL_MPI(MPI_Iallgather(block, count, MPI_BYTE, out, count, MPI_BYTE, comm->mpi, &request));
    TRI_CALL(wait_one(comm, &operation, &request));
    count_bytes(comm, size_bytes, comm->size - 1);
    return TRI_OK;
  }
  memcpy((char *)out + (size_t)comm->rank * size_bytes, block, size_bytes);
  for (int root = 0; root < comm->size; root++)
    TRI_CALL(
        broadcast(comm, &operation, (char *)out + (size_t)root * size_bytes, size_bytes, root));
  return TRI_OK;
}

// Root's side of a gather: the blocks of the others straight to their places.
static tri_status receive_blocks(tri_comm *comm, const tri_operation *operation,
                                 const int64_t *sizes, char *out, MPI_Request *requests)
{
  size_t offset = 0;
  int n = 0;
  for (int rank = 0; rank < comm->size; rank++) {
    const size_t size_bytes = (size_t)sizes[rank];
    if (rank != comm->rank && size_bytes > 0) {
      int count;
      MPI_Datatype type;
      bool owned;
      TRI_CALL(tri_comm_type(comm, size_bytes, &count, &type, &owned));
      TRI_CALL_MPI(
          MPI_Irecv(out + offset, count, type, rank, TRI_TAG_GATHER, comm->mpi, &requests[n++]));
      if (owned) TRI_CALL_MPI(MPI_Type_free(&type));
    }
    offset += size_bytes;
  }
  TRI_CALL(tri_comm_wait_all(comm, operation, n, requests, MPI_STATUSES_IGNORE));
  return TRI_OK;
}

static tri_status send_block(tri_comm *comm, const tri_operation *operation, const void *block,
                             size_t size_bytes, int root)
{
  if (size_bytes == 0) return TRI_OK;
  MPI_Request request = MPI_REQUEST_NULL;
  int count;
  MPI_Datatype type;
  bool owned;
  TRI_CALL(tri_comm_type(comm, size_bytes, &count, &type, &owned));
  TRI_CALL_MPI(MPI_Isend(block, count, type, root, TRI_TAG_GATHER, comm->mpi, &request));
  if (owned) TRI_CALL_MPI(MPI_Type_free(&type));
  TRI_CALL(wait_one(comm, operation, &request));
  count_bytes(comm, size_bytes, 1);
  return TRI_OK;
}

static tri_status gather_at_root(tri_comm *comm, const tri_operation *operation, const void *block,
                                 size_t size_bytes, int64_t *sizes, char **out)
{
  tri_status status;
  char *all = NULL;
  MPI_Request *requests = NULL;
  size_t total = 0, before = 0;
  for (int rank = 0; rank < comm->size; rank++) {
    if (rank < comm->rank) before += (size_t)sizes[rank];
    total += (size_t)sizes[rank];
  }
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_COMM, total, &all));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_COMM, comm->size, &requests));
  if (size_bytes > 0) memcpy(all + before, block, size_bytes);
  TRI_CALL_GOTO(done, receive_blocks(comm, operation, sizes, all, requests));
  *out = all;
  all = NULL;

done:
  // Blocks that MPI may still write to are left to it when the operation failed.
  if (!comm->side->broken) {
    TRI_FREE(&all);
    TRI_FREE(&requests);
  }
  return status;
}

tri_status tri_comm_gather(tri_comm *comm, const char *what, const void *block, size_t size_bytes,
                           int root, int64_t **sizes, void **out)
{
  tri_status status;
  tri_operation operation;
  MPI_Request request = MPI_REQUEST_NULL;
  int64_t *all_sizes = NULL;
  char *all = NULL;
  const bool is_root = comm->rank == root;
  TRI_CALL(check_root(comm, what, root));
  TRI_CALL(tri_comm_begin(comm, what, &operation));
  if (is_root) TRI_CALL(TRI_NEW(TRI_MODULE_COMM, comm->size, &all_sizes));
  comm->scratch.value = (int64_t)size_bytes;
  TRI_CALL_MPI_GOTO(err_free, MPI_Igather(&comm->scratch.value, 1, MPI_INT64_T, all_sizes, 1,
                                          MPI_INT64_T, root, comm->mpi, &request));
  TRI_CALL_GOTO(err_free, wait_one(comm, &operation, &request));
  if (is_root)
    TRI_CALL_GOTO(err_free, gather_at_root(comm, &operation, block, size_bytes, all_sizes, &all));
  else
    TRI_CALL_GOTO(err_free, send_block(comm, &operation, block, size_bytes, root));
  *sizes = all_sizes;
  *out = all;
  return TRI_OK;

err_free:
  if (!comm->side->broken) TRI_FREE(&all_sizes);
  return status;
}

static tri_status max_of(tri_comm *comm, const tri_operation *operation, int64_t value,
                         int64_t *out)
{
  MPI_Request request = MPI_REQUEST_NULL;
  tri_scratch *scratch = &comm->scratch;
  scratch->value = value;
  TRI_CALL_MPI(MPI_Iallreduce(&scratch->value, &scratch->most, 1, MPI_INT64_T, MPI_MAX, comm->mpi,
                              &request));
  TRI_CALL(wait_one(comm, operation, &request));
  count_bytes(comm, sizeof value, comm->size - 1);
  *out = scratch->most;
  return TRI_OK;
}

tri_status tri_comm_max(tri_comm *comm, const char *what, int64_t value, int64_t *out)
{
  tri_operation operation;
  TRI_CALL(tri_comm_begin(comm, what, &operation));
  TRI_CALL(max_of(comm, &operation, value, out));
  return TRI_OK;
}

// Rank of the culprit in this communicator, -1 when all is well. The lowest rank with an error of
// its own is it; if there is none, the lowest that speaks for a peer.
static tri_status find_culprit(tri_comm *comm, const tri_operation *operation, tri_status status,
                               int *out)
{
  const int64_t weight = status == TRI_OK ? 0 : status == TRI_ERR_PEER ? 1 : 2;
  const int64_t own = weight == 0 ? 0 : weight * comm->size + comm->size - 1 - comm->rank;
  int64_t worst = 0;
  TRI_CALL(max_of(comm, operation, own, &worst));
  *out = worst == 0 ? -1 : comm->size - 1 - (int)(worst % comm->size);
  return TRI_OK;
}

tri_status tri_comm_agree(tri_comm *comm, const char *what, tri_status status)
{
  // A communicator that is broken cannot agree; the error that is there travels on.
  if (status != TRI_OK && comm->side->broken) return status;
  tri_operation operation;
  int culprit = -1;
  TRI_CALL(tri_comm_begin(comm, what, &operation));
  tri_said *said = &comm->scratch.said;
  said->status = (int32_t)status;
  snprintf(said->text, sizeof said->text, "%s", tri_error_message());
  const tri_status met = find_culprit(comm, &operation, status, &culprit);
  // When the others do not come, perhaps because they wait for what failed here, the error here
  // says more than that.
  if (met != TRI_OK && status != TRI_OK) return TRI_ERROR(status, "%s", said->text);
  TRI_CALL(met);
  if (culprit < 0) return TRI_OK;

  TRI_CALL(broadcast(comm, &operation, said, sizeof *said, culprit));
  if (status != TRI_OK && status != TRI_ERR_PEER) return status;
  if (said->status == TRI_ERR_PEER) return TRI_ERROR(TRI_ERR_PEER, "%s", said->text);
  return TRI_ERROR(TRI_ERR_PEER, "rank %d: %s: %s", comm->job_ranks[culprit],
                   tri_status_name((tri_status)said->status), said->text);
}
