#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "comm/comm_private.h"
#include "trireme/base/memory.h"

static const size_t CHUNK_BYTES = (size_t)1 << 30;

// Starts MPI and makes sure that it gives what this module builds on.
static tri_status start_mpi(void)
{
  int started = 0, level = MPI_THREAD_SINGLE, found = 0;
  int *tag_limit = NULL;
  TRI_CALL_MPI(MPI_Initialized(&started));
  if (!started)
    TRI_CALL_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
  else
    TRI_CALL_MPI(MPI_Query_thread(&level));
  TRI_CHECK(level >= MPI_THREAD_FUNNELED, TRI_ERR_UNSUPPORTED,
            "this MPI library (%s) does not let a program have threads: build it with "
            "MPI_THREAD_FUNNELED or higher",
            tri_comm_library());
  TRI_CALL_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  TRI_CALL_MPI(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_limit, &found));
  TRI_CHECK(found && *tag_limit >= TRI_TAG_GATHER, TRI_ERR_UNSUPPORTED,
            "this MPI library (%s) has tags up to %d, %d are needed", tri_comm_library(),
            found ? *tag_limit : 0, TRI_TAG_GATHER);
  return TRI_OK;
}

// Fills in what follows from comm->mpi and comm->side.
static tri_status describe(tri_comm *comm)
{
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Group own = MPI_GROUP_NULL, job = MPI_GROUP_NULL;
  int *places = NULL;
  tri_status status;
  TRI_CALL_MPI(MPI_Comm_set_errhandler(comm->mpi, MPI_ERRORS_RETURN));
  TRI_CALL_MPI(MPI_Comm_rank(comm->mpi, &comm->rank));
  TRI_CALL_MPI(MPI_Comm_size(comm->mpi, &comm->size));
  TRI_CALL_MPI(
      MPI_Comm_split_type(comm->mpi, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &host));
  TRI_CALL_MPI(MPI_Comm_rank(host, &comm->local_rank));
  TRI_CALL_MPI(MPI_Comm_size(host, &comm->local_size));
  TRI_CALL_MPI(MPI_Comm_free(&host));

  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, comm->size, &comm->job_ranks));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, comm->size, &places));
  for (int i = 0; i < comm->size; i++)
    places[i] = i;
  TRI_CALL_MPI_GOTO(done, MPI_Comm_group(comm->mpi, &own));
  TRI_CALL_MPI_GOTO(done, MPI_Comm_group(comm->side->mpi, &job));
  TRI_CALL_MPI_GOTO(done, MPI_Group_translate_ranks(own, comm->size, places, job, comm->job_ranks));
  status = TRI_OK;

done:
  if (own != MPI_GROUP_NULL) (void)MPI_Group_free(&own);
  if (job != MPI_GROUP_NULL) (void)MPI_Group_free(&job);
  TRI_FREE(&places);
  return status;
}

tri_status tri_comm_create_world(double limit_seconds, tri_comm **out)
{
  TRI_CHECK(limit_seconds > 0, TRI_ERR_ARGUMENT, "a wait limit of %g s is not above 0",
            limit_seconds);
  tri_status status;
  tri_comm *comm = NULL;
  TRI_CALL(start_mpi());
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, 1, &comm));
  comm->mpi = MPI_COMM_NULL;
  comm->is_world = true;
  comm->id = 1;
  comm->limit_seconds = limit_seconds;
  comm->chunk_bytes = CHUNK_BYTES;
  snprintf(comm->name, sizeof comm->name, "world");
  TRI_CALL_GOTO(err_destroy, tri_side_create(&comm->side));
  TRI_CALL_MPI_GOTO(err_destroy, MPI_Comm_dup(MPI_COMM_WORLD, &comm->mpi));
  TRI_CALL_GOTO(err_destroy, describe(comm));
  *out = comm;
  return TRI_OK;

err_destroy:
  tri_comm_destroy(&comm);
  return status;
}

// The finalizer of SplitMix64: equal on the ranks that bring the same numbers, else different.
static uint64_t mix(uint64_t x)
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

tri_status tri_comm_split(tri_comm *parent, const char *name, int color, int key, tri_comm **out)
{
  TRI_CHECK(color >= 0, TRI_ERR_ARGUMENT, "colour %d of communicator \"%s\" is below 0", color,
            name);
  tri_status status;
  tri_comm *comm = NULL;
  tri_operation operation;
  MPI_Request request = MPI_REQUEST_NULL;
  // MPI_Comm_split cannot be bounded, so all meet first.
  TRI_CALL(tri_comm_begin(parent, name, &operation));
  TRI_CALL_MPI(MPI_Ibarrier(parent->mpi, &request));
  TRI_CALL(tri_comm_wait_all(parent, &operation, 1, &request, MPI_STATUSES_IGNORE));

  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, 1, &comm));
  comm->mpi = MPI_COMM_NULL;
  comm->side = parent->side;
  comm->id = mix(mix(parent->id ^ (uint64_t)operation.number) ^ (uint64_t)color);
  comm->limit_seconds = parent->limit_seconds;
  comm->chunk_bytes = parent->chunk_bytes;
  snprintf(comm->name, sizeof comm->name, "%s", name);
  TRI_CALL_MPI_GOTO(err_destroy, MPI_Comm_split(parent->mpi, color, key, &comm->mpi));
  TRI_CALL_GOTO(err_destroy, describe(comm));
  *out = comm;
  return TRI_OK;

err_destroy:
  tri_comm_destroy(&comm);
  return status;
}

static void destroy_pool(tri_comm *comm)
{
  for (int i = 0; i < comm->n_requests; i++) {
    TRI_FREE(&comm->requests[i].requests);
    TRI_FREE(&comm->requests[i].statuses);
    TRI_FREE(&comm->requests[i].sizes);
    TRI_FREE(&comm->requests[i].peers);
  }
  TRI_FREE(&comm->requests);
  comm->n_requests = 0;
  comm->n_messages = 0;
}

void tri_comm_destroy(tri_comm **comm_pointer)
{
  tri_comm *comm = *comm_pointer;
  if (comm == NULL) return;
  // With operations under way MPI_Comm_free may wait for ever; the job ends anyway.
  const bool broken = comm->side == NULL || comm->side->broken;
  if (comm->mpi != MPI_COMM_NULL && !broken) (void)MPI_Comm_free(&comm->mpi);
  destroy_pool(comm);
  if (comm->is_world) tri_side_destroy(&comm->side);
  TRI_FREE(&comm->job_ranks);
  TRI_FREE(comm_pointer);
}

static tri_status create_group(int n_messages, tri_request *request)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n_messages, &request->requests));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n_messages, &request->statuses));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n_messages, &request->sizes));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n_messages, &request->peers));
  return TRI_OK;
}

tri_status tri_comm_reserve(tri_comm *comm, int n_requests, int n_messages)
{
  TRI_CHECK(n_requests >= 0 && n_messages >= 0, TRI_ERR_ARGUMENT,
            "a pool of %d groups of %d messages is below 0", n_requests, n_messages);
  TRI_CHECK(comm->n_open == 0, TRI_ERR_ARGUMENT,
            "communicator \"%s\" has %d open groups: wait for them before the pool is changed",
            comm->name, comm->n_open);
  destroy_pool(comm);
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n_requests, &comm->requests));
  comm->n_requests = n_requests;
  comm->n_messages = n_messages;
  for (int i = 0; i < n_requests; i++) {
    const tri_status status = create_group(n_messages, &comm->requests[i]);
    if (status != TRI_OK) {
      destroy_pool(comm);
      return status;
    }
    comm->requests[i].comm = comm;
  }
  return TRI_OK;
}

tri_status tri_comm_begin(tri_comm *comm, const char *what, tri_operation *out)
{
  TRI_CHECK(!comm->side->broken, TRI_ERR_COMM,
            "\"%s\" of \"%s\" is not begun: an earlier operation failed and the job must end", what,
            comm->name);
  *out = (tri_operation){.what = what, .number = ++comm->operations};
  return TRI_OK;
}

tri_status tri_comm_type(const tri_comm *comm, size_t size_bytes, int *count, MPI_Datatype *type,
                         bool *owned)
{
  *owned = false;
  if (size_bytes <= comm->chunk_bytes) {
    *count = (int)size_bytes;
    *type = MPI_BYTE;
    return TRI_OK;
  }
  // One request a message whatever its size, so that the order of messages is kept: a type of whole
  // chunks, then the rest.
  const size_t n_chunks = size_bytes / comm->chunk_bytes, rest = size_bytes % comm->chunk_bytes;
  TRI_CHECK(n_chunks <= INT_MAX, TRI_ERR_ARGUMENT, "a message of %zu bytes is too large",
            size_bytes);
  MPI_Datatype chunk;
  TRI_CALL_MPI(MPI_Type_contiguous((int)comm->chunk_bytes, MPI_BYTE, &chunk));
  const int lengths[2] = {(int)n_chunks, (int)rest};
  const MPI_Aint offsets[2] = {0, (MPI_Aint)(n_chunks * comm->chunk_bytes)};
  const MPI_Datatype types[2] = {chunk, MPI_BYTE};
  TRI_CALL_MPI(MPI_Type_create_struct(rest == 0 ? 1 : 2, lengths, offsets, types, type));
  TRI_CALL_MPI(MPI_Type_commit(type));
  TRI_CALL_MPI(MPI_Type_free(&chunk));
  *count = 1;
  *owned = true;
  return TRI_OK;
}

int tri_comm_rank(const tri_comm *comm)
{
  return comm->rank;
}

int tri_comm_size(const tri_comm *comm)
{
  return comm->size;
}

int tri_comm_local_rank(const tri_comm *comm)
{
  return comm->local_rank;
}

int tri_comm_local_size(const tri_comm *comm)
{
  return comm->local_size;
}

void tri_comm_set_limit(tri_comm *comm, double limit_seconds)
{
  if (limit_seconds > 0) comm->limit_seconds = limit_seconds;
}

int64_t tri_comm_operations(const tri_comm *comm)
{
  return comm->operations;
}

int64_t tri_comm_bytes_sent(const tri_comm *comm)
{
  return comm->bytes_sent;
}

double tri_comm_wait_seconds(const tri_comm *comm)
{
  return comm->wait_seconds;
}
