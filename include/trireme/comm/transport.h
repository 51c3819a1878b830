// Transport: moves buffers of one device between the ranks of one communicator, ordered on streams.
//
//   host     device memory is host memory, so MPI takes it as it is (CPU)
//   nccl     NVIDIA's library, from GPU to GPU; MPI only carries its id
//   staged   copies to pinned host memory, MPI, copies to the device: any device, also several
//            ranks on one GPU, which NCCL refuses
//
// No device pointer is ever given to MPI but by `host`. Ranks meet in groups of messages (comm.h),
// which are numbered and watched as those of the communicator are: a wait is bounded by its limit,
// missing ranks are named, and after an error of a transport the communicator is broken too. Calls
// of one transport come from one thread.
#pragma once

#include "trireme/comm/comm.h"
#include "trireme/device/device.h"

typedef struct tri_transport tri_transport;
typedef struct tri_transfer tri_transfer;

// What was chosen and why, for the header of a run. Texts are borrowed from the transport.
typedef struct tri_transport_facts {
  const char *name;      // "host", "nccl 2.28.3", "staged"
  const char *reason;    // "device memory is host memory"
  bool sums;             // tri_transport_all_reduce_sum_f32 is there
  double create_seconds; // that the library's communicator took; 0 without one
  size_t staging_bytes;  // of pinned host memory, after tri_transport_reserve
} tri_transport_facts;

// Opens the transport `choice`: "host", "nccl", "staged", or "auto": host where device memory is
// host memory, else nccl, else staged where ranks share a GPU. TRI_ERR_UNSUPPORTED when a named one
// cannot work here: there is no fallback. Collective on comm, errors agree.
//   comm     borrowed, as `device`: both must outlive the transport
//   parent   NULL, or a transport of the communicator from which comm was split. Then all ranks of
//            that one call together, and an nccl child is made by ncclCommSplit
//   out      owned: tri_transport_destroy
TRI_MUST_CHECK tri_status tri_transport_create(tri_comm *comm, tri_device *device,
                                               const char *choice, tri_transport *parent,
                                               tri_transport **out);
// The orderly end: nothing that was started is unfinished, and nothing is started after it.
// Collective on comm, errors are local.
TRI_MUST_CHECK tri_status tri_transport_finish(tri_transport *transport);
// Local, NULL-safe. Without an orderly end, as after an error, what is under way is aborted; a rank
// that cannot abort within a few seconds ends the process with the exit code of TRI_ERR_COMM.
// Streams have passed the copies of groups that are done.
void tri_transport_destroy(tri_transport **transport);

tri_comm *tri_transport_comm(const tri_transport *transport);
tri_device *tri_transport_device(const tri_transport *transport);
void tri_transport_get_facts(const tri_transport *transport, tri_transport_facts *out);

// Makes room for n_transfers groups open at once, each of at most n_messages sends plus receives
// with send_bytes and receive_bytes in all: later calls allocate nothing. Takes the pool of comm
// (tri_comm_reserve). Local. May be called again only when no group is open.
TRI_MUST_CHECK tri_status tri_transport_reserve(tri_transport *transport, int n_transfers,
                                                int n_messages, size_t send_bytes,
                                                size_t receive_bytes);

// Begins one group of messages whose `data` are device pointers: what is sent is what `stream` has
// made when it has done its work queued so far. Does not wait. Errors are local.
//
// On nccl a group is done as soon as it is started, since the stream orders what follows; there
// messages of a pair meet in the order in which the two ranks start them, and tags do not count.
// So a rank that takes every next step as soon as tri_transport_test says done, and begins its
// chains of steps in the order of all others, is right on every transport.
TRI_MUST_CHECK tri_status tri_transport_start(tri_transport *transport, const char *what,
                                              tri_stream *stream, const tri_message *sends,
                                              int n_sends, const tri_message *receives,
                                              int n_receives, tri_transfer **out);

// Moves the group forward, never waits. Done means: what is queued on the group's stream from now
// on sees the received data, and may overwrite what was sent. Then *transfer is nulled.
TRI_MUST_CHECK tri_status tri_transport_test(tri_transfer **transfer, bool *done);
// Waits until the group is done, within the limit.
TRI_MUST_CHECK tri_status tri_transport_wait(tri_transfer **transfer);

// data[i] becomes the sum over the ranks, in place, in stream order. The order of the sum is the
// library's: bits may differ with the number of ranks, but not between them. TRI_ERR_UNSUPPORTED
// unless facts.sums. Errors are local.
TRI_MUST_CHECK tri_status tri_transport_all_reduce_sum_f32(tri_transport *transport,
                                                           const char *what, tri_stream *stream,
                                                           float *data, int64_t n);

// What the library noticed since the last call, without waiting: TRI_ERR_COMM with the operation
// it broke in, or TRI_ERR_PEER with the rank that ended and its message. The transport is aborted
// then. Local.
TRI_MUST_CHECK tri_status tri_transport_poll(tri_transport *transport);

// The host waits for `event`, which marks work that may wait for other ranks: within the limit, and
// polling. A stream's own synchronization would wait for ever for a rank that is gone. Local.
TRI_MUST_CHECK tri_status tri_transport_synchronize(tri_transport *transport, tri_event *event);
