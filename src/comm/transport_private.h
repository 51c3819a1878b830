// What the transports share: private to src/comm.
#pragma once

#include "comm/comm_private.h"
#include "trireme/comm/transport.h"

enum { TRI_TRANSPORT_TEXT_BYTES = 256 };

// What a transport of a kind provides. Arguments are checked before; see transport.h.
typedef struct tri_transport_operations {
  const char *name;
  bool opens_library;                     // not worth it for one rank
  size_t transport_bytes, transfer_bytes; // of the structures that begin with those below
  // Whether it can work here, and in words why or why not. Collective where it asks other ranks;
  // then all get the same answer.
  tri_status (*examine)(tri_comm *comm, tri_device *device, bool *usable, char *reason);
  // Fills in the rest of a zeroed transport; destroy undoes that, also halfway. NULL: no rest, and
  // nothing to finish.
  tri_status (*create)(tri_transport *transport, tri_transport *parent);
  tri_status (*finish)(tri_transport *transport);
  void (*destroy)(tri_transport *transport);
  // The same for the pool of zeroed transfers.
  tri_status (*reserve)(tri_transport *transport);
  void (*unreserve)(tri_transport *transport);
  tri_status (*start)(tri_transfer *transfer, const char *what, tri_stream *stream,
                      const tri_message *sends, int n_sends, const tri_message *receives,
                      int n_receives);
  tri_status (*test)(tri_transfer *transfer, bool *done);
  tri_status (*wait)(tri_transfer *transfer);
  // NULL: not there.
  tri_status (*all_reduce_sum_f32)(tri_transport *transport, const char *what, tri_stream *stream,
                                   float *data, int64_t n);
  // NULL: no stream waits for another rank, so that there is nothing to watch.
  tri_status (*poll)(tri_transport *transport);
  tri_status (*synchronize)(tri_transport *transport, tri_event *event);
} tri_transport_operations;

struct tri_transport {
  const tri_transport_operations *operations;
  tri_comm *comm;     // borrowed
  tri_device *device; // borrowed
  tri_transport_facts facts;
  char name[TRI_COMM_NAME_BYTES], reason[TRI_TRANSPORT_TEXT_BYTES];
  tri_transfer **transfers; // the pool
  int n_transfers, n_messages;
  size_t send_bytes, receive_bytes; // of one group
};

struct tri_transfer {
  tri_transport *transport;
  bool open;
};

extern const tri_transport_operations tri_host_transport, tri_staged_transport;
