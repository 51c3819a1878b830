// Which transport, and what all of them have in common: checks and the pool.
#include <stdio.h>
#include <string.h>

#include "comm/transport_private.h"
#include "config.h"
#include "trireme/base/memory.h"
#ifdef TRI_HAVE_CUDA
#include "comm/nccl.h"
#endif

// In the order in which "auto" tries them.
static const tri_transport_operations *const kinds[] = {
    &tri_host_transport,
#ifdef TRI_HAVE_CUDA
    &tri_nccl_transport_operations,
#endif
    &tri_staged_transport,
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static tri_status find_named(tri_comm *comm, tri_device *device, const char *choice,
                             const tri_transport_operations **out, char *reason)
{
  for (int k = 0; k < N_KINDS; k++) {
    bool usable = false;
    if (strcmp(choice, kinds[k]->name) != 0) continue;
    TRI_CALL(kinds[k]->examine(comm, device, &usable, reason));
    TRI_CHECK(usable, TRI_ERR_UNSUPPORTED, "transport %s cannot work here, since %s: take auto",
              choice, reason);
    snprintf(reason, TRI_TRANSPORT_TEXT_BYTES, "as asked for");
    *out = kinds[k];
    return TRI_OK;
  }
  TRI_CHECK(strcmp(choice, "nccl") != 0, TRI_ERR_UNSUPPORTED,
            "transport nccl is not compiled in: ./configure --with-cuda and build again, or take "
            "auto");
  return TRI_ERROR(TRI_ERR_ARGUMENT,
                   "no transport is called '%s': there are auto, host, nccl and staged", choice);
}

static tri_status find_first_usable(tri_comm *comm, tri_device *device,
                                    const tri_transport_operations **out, char *reason)
{
  bool usable = false;
  for (int k = 0; k < N_KINDS && !usable; k++) {
    char text[TRI_TRANSPORT_TEXT_BYTES];
    if (kinds[k]->opens_library && comm->size == 1) continue;
    TRI_CALL(kinds[k]->examine(comm, device, &usable, text));
    *out = kinds[k];
    // The last resort works everywhere: it is taken because of what the one before it lacks.
    if (k + 1 < N_KINDS || !usable) snprintf(reason, TRI_TRANSPORT_TEXT_BYTES, "%s", text);
  }
  if (comm->size == 1) snprintf(reason, TRI_TRANSPORT_TEXT_BYTES, "one rank, nothing is sent");
  return TRI_OK;
}

static tri_status open_transport(tri_comm *comm, tri_device *device, const char *choice,
                                 tri_transport *parent, tri_transport **out)
{
  const tri_transport_operations *operations = NULL;
  char reason[TRI_TRANSPORT_TEXT_BYTES] = "";
  if (strcmp(choice, "auto") == 0)
    TRI_CALL(find_first_usable(comm, device, &operations, reason));
  else
    TRI_CALL(find_named(comm, device, choice, &operations, reason));
  tri_transport *transport = tri_calloc(TRI_MODULE_COMM, 1, operations->transport_bytes);
  if (transport == NULL) return TRI_ERR_MEMORY;
  transport->operations = operations;
  transport->comm = comm;
  transport->device = device;
  snprintf(transport->name, sizeof transport->name, "%s", operations->name);
  snprintf(transport->reason, sizeof transport->reason, "%s", reason);
  transport->facts.name = transport->name;
  transport->facts.reason = transport->reason;
  transport->facts.sums = operations->all_reduce_sum_f32 != NULL;
  *out = transport;
  if (operations->create != NULL) TRI_CALL(operations->create(transport, parent));
  return TRI_OK;
}

tri_status tri_transport_create(tri_comm *comm, tri_device *device, const char *choice,
                                tri_transport *parent, tri_transport **out)
{
  tri_transport *transport = NULL;
  tri_status status = open_transport(comm, device, choice, parent, &transport);
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "transport", status));
  *out = transport;
  return TRI_OK;

err_destroy:
  tri_transport_destroy(&transport);
  return status;
}

static void destroy_pool(tri_transport *transport)
{
  if (transport->operations->unreserve != NULL) transport->operations->unreserve(transport);
  for (int i = 0; i < transport->n_transfers; i++)
    TRI_FREE(&transport->transfers[i]);
  TRI_FREE(&transport->transfers);
  transport->n_transfers = 0;
  transport->facts.staging_bytes = 0;
}

tri_status tri_transport_finish(tri_transport *transport)
{
  if (transport->operations->finish != NULL) TRI_CALL(transport->operations->finish(transport));
  return TRI_OK;
}

void tri_transport_destroy(tri_transport **transport)
{
  tri_transport *t = *transport;
  if (t == NULL) return;
  if (t->operations->destroy != NULL) t->operations->destroy(t);
  destroy_pool(t);
  TRI_FREE(transport);
}

tri_comm *tri_transport_comm(const tri_transport *transport)
{
  return transport->comm;
}

tri_device *tri_transport_device(const tri_transport *transport)
{
  return transport->device;
}

void tri_transport_get_facts(const tri_transport *transport, tri_transport_facts *out)
{
  *out = transport->facts;
}

static tri_status create_pool(tri_transport *transport, int n_transfers)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n_transfers, &transport->transfers));
  for (int i = 0; i < n_transfers; i++) {
    tri_transfer *transfer = tri_calloc(TRI_MODULE_COMM, 1, transport->operations->transfer_bytes);
    if (transfer == NULL) return TRI_ERR_MEMORY;
    transfer->transport = transport;
    transport->transfers[i] = transfer;
    transport->n_transfers++;
  }
  if (transport->operations->reserve != NULL) TRI_CALL(transport->operations->reserve(transport));
  return TRI_OK;
}

tri_status tri_transport_reserve(tri_transport *transport, int n_transfers, int n_messages,
                                 size_t send_bytes, size_t receive_bytes)
{
  for (int i = 0; i < transport->n_transfers; i++)
    TRI_CHECK(!transport->transfers[i]->open, TRI_ERR_ARGUMENT,
              "transport %s of \"%s\" has open groups: wait for them before the pool is changed",
              transport->name, transport->comm->name);
  TRI_CALL(tri_comm_reserve(transport->comm, n_transfers, n_messages));
  destroy_pool(transport);
  transport->n_messages = n_messages;
  transport->send_bytes = send_bytes;
  transport->receive_bytes = receive_bytes;
  const tri_status status = create_pool(transport, n_transfers);
  if (status != TRI_OK) destroy_pool(transport);
  TRI_CALL(status);
  return TRI_OK;
}

// --- groups

static tri_status check_list(const tri_transport *transport, const char *what, const char *kind,
                             const tri_message *messages, int n, size_t most_bytes)
{
  size_t bytes = 0;
  TRI_CALL(tri_comm_check_messages(transport->comm, what, kind, messages, n));
  for (int i = 0; i < n; i++)
    bytes += messages[i].size_bytes;
  TRI_CHECK(bytes <= most_bytes, TRI_ERR_ARGUMENT,
            "\"%s\" of \"%s\": %s of %zu bytes are more than the %zu reserved", what,
            transport->comm->name, kind, bytes, most_bytes);
  return TRI_OK;
}

static tri_status take_transfer(tri_transport *transport, const char *what, tri_transfer **out)
{
  for (int i = 0; i < transport->n_transfers; i++) {
    if (transport->transfers[i]->open) continue;
    *out = transport->transfers[i];
    return TRI_OK;
  }
  return TRI_ERROR(TRI_ERR_ARGUMENT, "\"%s\" of \"%s\": all %d groups reserved are open", what,
                   transport->comm->name, transport->n_transfers);
}

tri_status tri_transport_start(tri_transport *transport, const char *what, tri_stream *stream,
                               const tri_message *sends, int n_sends, const tri_message *receives,
                               int n_receives, tri_transfer **out)
{
  tri_transfer *transfer = NULL;
  TRI_CHECK(n_sends >= 0 && n_receives >= 0 && n_sends <= transport->n_messages - n_receives,
            TRI_ERR_ARGUMENT,
            "\"%s\" of \"%s\": %d sends and %d receives are more than the %d messages reserved",
            what, transport->comm->name, n_sends, n_receives, transport->n_messages);
  TRI_CALL(check_list(transport, what, "send", sends, n_sends, transport->send_bytes));
  TRI_CALL(check_list(transport, what, "receive", receives, n_receives, transport->receive_bytes));
  TRI_CALL(take_transfer(transport, what, &transfer));
  transfer->open = true;
  TRI_CALL(
      transport->operations->start(transfer, what, stream, sends, n_sends, receives, n_receives));
  *out = transfer;
  return TRI_OK;
}

static void close_transfer(tri_transfer **transfer)
{
  (*transfer)->open = false;
  *transfer = NULL;
}

tri_status tri_transport_test(tri_transfer **transfer, bool *done)
{
  bool is_done = false;
  TRI_CALL((*transfer)->transport->operations->test(*transfer, &is_done));
  if (is_done) close_transfer(transfer);
  *done = is_done;
  return TRI_OK;
}

tri_status tri_transport_wait(tri_transfer **transfer)
{
  TRI_CALL((*transfer)->transport->operations->wait(*transfer));
  close_transfer(transfer);
  return TRI_OK;
}

// --- the rest

tri_status tri_transport_all_reduce_sum_f32(tri_transport *transport, const char *what,
                                            tri_stream *stream, float *data, int64_t n)
{
  TRI_CHECK(transport->facts.sums, TRI_ERR_UNSUPPORTED,
            "\"%s\" of \"%s\": transport %s moves data and adds nothing; nccl does", what,
            transport->comm->name, transport->name);
  TRI_CHECK(n >= 0, TRI_ERR_ARGUMENT, "\"%s\" of \"%s\": %lld elements", what,
            transport->comm->name, (long long)n);
  TRI_CALL(transport->operations->all_reduce_sum_f32(transport, what, stream, data, n));
  return TRI_OK;
}

tri_status tri_transport_poll(tri_transport *transport)
{
  if (transport->operations->poll != NULL) TRI_CALL(transport->operations->poll(transport));
  return TRI_OK;
}

tri_status tri_transport_synchronize(tri_transport *transport, tri_event *event)
{
  if (transport->operations->synchronize == NULL)
    TRI_CALL(tri_event_synchronize(event));
  else
    TRI_CALL(transport->operations->synchronize(transport, event));
  return TRI_OK;
}

// --- host: MPI takes device memory as it is

typedef struct host_transfer {
  tri_transfer base;
  tri_request *request;
} host_transfer;

static tri_status host_examine(tri_comm *comm, tri_device *device, bool *usable, char *reason)
{
  (void)comm; // each rank sees for itself
  tri_device_facts facts;
  tri_device_get_facts(device, &facts);
  *usable = facts.host_memory;
  snprintf(reason, TRI_TRANSPORT_TEXT_BYTES, "the memory of device %s is %shost memory", facts.name,
           facts.host_memory ? "" : "not ");
  return TRI_OK;
}

static tri_status host_start(tri_transfer *transfer, const char *what, tri_stream *stream,
                             const tri_message *sends, int n_sends, const tri_message *receives,
                             int n_receives)
{
  tri_request **request = &((host_transfer *)transfer)->request;
  TRI_CALL(tri_stream_synchronize(stream)); // nothing to wait for: a CPU's calls have run
  TRI_CALL(tri_comm_exchange_start(transfer->transport->comm, what, sends, n_sends, receives,
                                   n_receives, request));
  return TRI_OK;
}

static tri_status host_test(tri_transfer *transfer, bool *done)
{
  TRI_CALL(tri_comm_request_test(&((host_transfer *)transfer)->request, done));
  return TRI_OK;
}

static tri_status host_wait(tri_transfer *transfer)
{
  TRI_CALL(tri_comm_request_wait(&((host_transfer *)transfer)->request));
  return TRI_OK;
}

const tri_transport_operations tri_host_transport = {.name = "host",
                                                     .transport_bytes = sizeof(tri_transport),
                                                     .transfer_bytes = sizeof(host_transfer),
                                                     .examine = host_examine,
                                                     .start = host_start,
                                                     .test = host_test,
                                                     .wait = host_wait};
