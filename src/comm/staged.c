// The staged transport: copies to pinned host memory, MPI, copies to the device.
//
// Works with every device, and with several ranks on one. A group goes through three stages: its
// copies to the host are queued; when the stream has passed them, MPI has the messages; when they
// are there, the copies to the device are queued, and the group is done. The stream never waits for
// another rank, so the host may wait for the stream. MPI has the groups in the order in which they
// were started, since messages of one pair and tag meet in that order.
#include <stdio.h>
#include <string.h>

#include "comm/transport_private.h"
#include "trireme/base/memory.h"

typedef struct staged_transport {
  tri_transport base;
  int64_t n_started, n_sent; // groups, and those that MPI has
} staged_transport;

typedef struct staged_transfer {
  tri_transfer base;
  int64_t turn; // among the groups started
  const char *what;
  tri_stream *stream;            // borrowed until done
  char *sent, *received;         // pinned
  tri_event *copied;             // the copies to the host are done
  tri_event *landed;             // those of the last group to the device
  tri_message *sends, *receives; // (n_messages each), in pinned memory
  void **targets;                // (n_messages): where a receive goes on the device
  int n_sends, n_receives;
  tri_request *request;
} staged_transfer;

static tri_status staged_examine(tri_comm *comm, tri_device *device, bool *usable, char *reason)
{
  (void)comm;   // any ranks
  (void)device; // any device
  *usable = true;
  snprintf(reason, TRI_TRANSPORT_TEXT_BYTES, "it works everywhere");
  return TRI_OK;
}

// --- the pool

static tri_status reserve_transfer(const tri_transport *transport, staged_transfer *transfer)
{
  tri_device *device = transport->device;
  const int n = transport->n_messages;
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n, &transfer->sends));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n, &transfer->receives));
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, n, &transfer->targets));
  TRI_CALL(tri_event_create(device, &transfer->copied));
  TRI_CALL(tri_event_create(device, &transfer->landed));
  TRI_CALL(tri_device_alloc_host(device, transport->send_bytes, (void **)&transfer->sent));
  TRI_CALL(tri_device_alloc_host(device, transport->receive_bytes, (void **)&transfer->received));
  return TRI_OK;
}

static tri_status staged_reserve(tri_transport *transport)
{
  for (int i = 0; i < transport->n_transfers; i++)
    TRI_CALL(reserve_transfer(transport, (staged_transfer *)transport->transfers[i]));
  transport->facts.staging_bytes =
      (size_t)transport->n_transfers * (transport->send_bytes + transport->receive_bytes);
  return TRI_OK;
}

static void staged_unreserve(tri_transport *transport)
{
  for (int i = 0; i < transport->n_transfers; i++) {
    staged_transfer *transfer = (staged_transfer *)transport->transfers[i];
    // MPI may still write to what a failed operation left to it.
    const bool abandoned = transfer->base.open && transport->comm->side->broken;
    if (!abandoned) {
      tri_device_free_host(transport->device, (void **)&transfer->sent);
      tri_device_free_host(transport->device, (void **)&transfer->received);
    }
    tri_event_destroy(&transfer->copied);
    tri_event_destroy(&transfer->landed);
    TRI_FREE(&transfer->sends);
    TRI_FREE(&transfer->receives);
    TRI_FREE(&transfer->targets);
  }
}

// --- a group

// Data that goes to several ranks is copied once: such messages follow each other.
static bool is_repeated(const tri_message *messages, int i)
{
  return i > 0 && messages[i].data == messages[i - 1].data &&
         messages[i].size_bytes == messages[i - 1].size_bytes;
}

static tri_status queue_copies_to_host(staged_transfer *transfer, const tri_message *sends,
                                       int n_sends)
{
  char *next = transfer->sent;
  for (int i = 0; i < n_sends; i++) {
    transfer->sends[i] = sends[i];
    if (is_repeated(sends, i)) {
      transfer->sends[i].data = transfer->sends[i - 1].data;
      continue;
    }
    transfer->sends[i].data = next;
    TRI_CALL(tri_stream_copy_to_host(transfer->stream, next, sends[i].data, sends[i].size_bytes));
    next += sends[i].size_bytes;
  }
  transfer->n_sends = n_sends;
  return TRI_OK;
}

static void place_receives(staged_transfer *transfer, const tri_message *receives, int n_receives)
{
  char *next = transfer->received;
  for (int i = 0; i < n_receives; i++) {
    transfer->receives[i] = receives[i];
    transfer->receives[i].data = next;
    transfer->targets[i] = receives[i].data;
    next += receives[i].size_bytes;
  }
  transfer->n_receives = n_receives;
}

static tri_status staged_start(tri_transfer *base, const char *what, tri_stream *stream,
                               const tri_message *sends, int n_sends, const tri_message *receives,
                               int n_receives)
{
  staged_transfer *transfer = (staged_transfer *)base;
  transfer->what = what;
  transfer->stream = stream;
  // The pinned memory is that of an earlier group, whose copies to the device may still be queued,
  // on another stream perhaps.
  TRI_CALL(tri_event_wait(transfer->landed, stream));
  TRI_CALL(queue_copies_to_host(transfer, sends, n_sends));
  TRI_CALL(tri_event_record(transfer->copied, stream));
  place_receives(transfer, receives, n_receives);
  transfer->turn = ((staged_transport *)base->transport)->n_started++;
  return TRI_OK;
}

static staged_transfer *transfer_of_turn(const tri_transport *transport, int64_t turn)
{
  for (int i = 0; i < transport->n_transfers; i++) {
    staged_transfer *transfer = (staged_transfer *)transport->transfers[i];
    if (transfer->base.open && transfer->turn == turn) return transfer;
  }
  return NULL;
}

// Gives MPI the groups up to `last` in their order; *up_to_last says whether that one is among
// them. Without `wait` it stops at the first whose data is not there yet.
static tri_status send_up_to(tri_transport *transport, int64_t last, bool wait, bool *up_to_last)
{
  staged_transport *staged = (staged_transport *)transport;
  while (staged->n_sent <= last) {
    bool passed = true;
    staged_transfer *transfer = transfer_of_turn(transport, staged->n_sent);
    TRI_CHECK(transfer != NULL, TRI_ERR_COMM,
              "an earlier group of transport staged of \"%s\" failed: the job must end",
              transport->comm->name);
    if (wait)
      TRI_CALL(tri_event_synchronize(transfer->copied));
    else
      TRI_CALL(tri_event_query(transfer->copied, &passed));
    if (!passed) break;
    TRI_CALL(tri_comm_exchange_start(transport->comm, transfer->what, transfer->sends,
                                     transfer->n_sends, transfer->receives, transfer->n_receives,
                                     &transfer->request));
    staged->n_sent++;
  }
  *up_to_last = staged->n_sent > last;
  return TRI_OK;
}

static tri_status queue_copies_to_device(staged_transfer *transfer)
{
  for (int i = 0; i < transfer->n_receives; i++)
    TRI_CALL(tri_stream_copy_to_device(transfer->stream, transfer->targets[i],
                                       transfer->receives[i].data,
                                       transfer->receives[i].size_bytes));
  TRI_CALL(tri_event_record(transfer->landed, transfer->stream));
  return TRI_OK;
}

static tri_status staged_test(tri_transfer *base, bool *done)
{
  staged_transfer *transfer = (staged_transfer *)base;
  bool sent = false;
  TRI_CALL(send_up_to(base->transport, transfer->turn, false, &sent));
  if (!sent) return TRI_OK;
  TRI_CALL(tri_comm_request_test(&transfer->request, done));
  if (*done) TRI_CALL(queue_copies_to_device(transfer));
  return TRI_OK;
}

static tri_status staged_wait(tri_transfer *base)
{
  staged_transfer *transfer = (staged_transfer *)base;
  bool sent = false;
  TRI_CALL(send_up_to(base->transport, transfer->turn, true, &sent));
  TRI_CALL(tri_comm_request_wait(&transfer->request));
  TRI_CALL(queue_copies_to_device(transfer));
  return TRI_OK;
}

const tri_transport_operations tri_staged_transport = {.name = "staged",
                                                       .transport_bytes = sizeof(staged_transport),
                                                       .transfer_bytes = sizeof(staged_transfer),
                                                       .examine = staged_examine,
                                                       .reserve = staged_reserve,
                                                       .unreserve = staged_unreserve,
                                                       .start = staged_start,
                                                       .test = staged_test,
                                                       .wait = staged_wait};
