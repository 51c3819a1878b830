// Groups of messages, taken from the communicator's pool.
#include "comm/comm_private.h"

tri_status tri_comm_check_messages(const tri_comm *comm, const char *what, const char *kind,
                                   const tri_message *messages, int n)
{
  for (int i = 0; i < n; i++) {
    TRI_CHECK(messages[i].peer >= 0 && messages[i].peer < comm->size, TRI_ERR_ARGUMENT,
              "\"%s\" of \"%s\": peer %d of %s %d is not in [0, %d)", what, comm->name,
              messages[i].peer, kind, i, comm->size);
    TRI_CHECK(messages[i].tag >= 0 && messages[i].tag < TRI_TAG_END, TRI_ERR_ARGUMENT,
              "\"%s\" of \"%s\": tag %d of %s %d is not in [0, %d)", what, comm->name,
              messages[i].tag, kind, i, TRI_TAG_END);
  }
  return TRI_OK;
}

static tri_status start_message(tri_request *group, const tri_message *message, bool is_receive)
{
  const tri_comm *comm = group->comm;
  MPI_Request *request = &group->requests[group->n];
  int count;
  MPI_Datatype type;
  bool owned;
  TRI_CALL(tri_comm_type(comm, message->size_bytes, &count, &type, &owned));
  if (is_receive)
    TRI_CALL_MPI(
        MPI_Irecv(message->data, count, type, message->peer, message->tag, comm->mpi, request));
  else
    TRI_CALL_MPI(
        MPI_Isend(message->data, count, type, message->peer, message->tag, comm->mpi, request));
  if (owned) TRI_CALL_MPI(MPI_Type_free(&type));
  group->sizes[group->n] = message->size_bytes;
  group->peers[group->n] = message->peer;
  group->n++;
  return TRI_OK;
}

static tri_request *take_group(tri_comm *comm)
{
  for (int i = 0; i < comm->n_requests; i++)
    if (!comm->requests[i].open) return &comm->requests[i];
  return NULL;
}

tri_status tri_comm_exchange_start(tri_comm *comm, const char *what, const tri_message *sends,
                                   int n_sends, const tri_message *receives, int n_receives,
                                   tri_request **out)
{
  TRI_CHECK(n_sends >= 0 && n_receives >= 0 && n_sends <= comm->n_messages - n_receives,
            TRI_ERR_ARGUMENT,
            "\"%s\" of \"%s\": %d sends and %d receives are more than the %d messages reserved",
            what, comm->name, n_sends, n_receives, comm->n_messages);
  TRI_CALL(tri_comm_check_messages(comm, what, "send", sends, n_sends));
  TRI_CALL(tri_comm_check_messages(comm, what, "receive", receives, n_receives));
  tri_request *group = take_group(comm);
  TRI_CHECK(group != NULL, TRI_ERR_ARGUMENT, "\"%s\" of \"%s\": all %d groups reserved are open",
            what, comm->name, comm->n_requests);
  tri_operation operation;
  TRI_CALL(tri_comm_begin(comm, what, &operation));

  group->open = true;
  group->what = what;
  group->number = operation.number;
  group->n = 0;
  group->n_receives = n_receives;
  comm->n_open++;
  // Receives first: what comes early then goes straight to its place.
  tri_status status = TRI_OK;
  for (int i = 0; i < n_receives && status == TRI_OK; i++)
    status = start_message(group, &receives[i], true);
  for (int i = 0; i < n_sends && status == TRI_OK; i++) {
    status = start_message(group, &sends[i], false);
    if (sends[i].peer != comm->rank) comm->bytes_sent += (int64_t)sends[i].size_bytes;
  }
  if (status != TRI_OK) comm->side->broken = true;
  TRI_CALL(status);
  *out = group;
  return TRI_OK;
}

// A message shorter than awaited is not an error to MPI, but it is one here.
static tri_status check_received(const tri_request *group)
{
  for (int i = 0; i < group->n_receives; i++) {
    MPI_Count n = 0;
    TRI_CALL_MPI(MPI_Get_elements_x(&group->statuses[i], MPI_BYTE, &n));
    TRI_CHECK(n == (MPI_Count)group->sizes[i], TRI_ERR_COMM,
              "operation %lld \"%s\" of \"%s\": rank %d sent %lld bytes where %zu are awaited",
              (long long)group->number, group->what, group->comm->name,
              group->comm->job_ranks[group->peers[i]], (long long)n, group->sizes[i]);
  }
  return TRI_OK;
}

// Ends a group whose messages are all done: back to the pool.
static tri_status close_group(tri_request **request)
{
  tri_request *group = *request;
  const tri_status status = check_received(group);
  if (status != TRI_OK) group->comm->side->broken = true;
  TRI_CALL(status);
  group->open = false;
  group->comm->n_open--;
  *request = NULL;
  return TRI_OK;
}

tri_status tri_comm_request_test(tri_request **request, bool *done)
{
  tri_request *group = *request;
  const tri_operation operation = {.what = group->what, .number = group->number, .group = group};
  int all_done = 0;
  // One call moves everything forward that MPI has under way.
  const tri_status status =
      tri_comm_test_all(&operation, group->n, group->requests, group->statuses, &all_done);
  if (status != TRI_OK) group->comm->side->broken = true;
  TRI_CALL(status);
  if (all_done) TRI_CALL(close_group(request));
  *done = all_done != 0;
  return TRI_OK;
}

tri_status tri_comm_request_wait(tri_request **request)
{
  tri_request *group = *request;
  const tri_operation operation = {.what = group->what, .number = group->number, .group = group};
  TRI_CALL(tri_comm_wait_all(group->comm, &operation, group->n, group->requests, group->statuses));
  TRI_CALL(close_group(request));
  return TRI_OK;
}

void tri_comm_cancel_groups(tri_comm *comm)
{
  for (int g = 0; g < comm->n_requests; g++) {
    tri_request *group = &comm->requests[g];
    for (int i = 0; group->open && i < group->n_receives; i++)
      if (group->requests[i] != MPI_REQUEST_NULL) (void)MPI_Cancel(&group->requests[i]);
  }
}
