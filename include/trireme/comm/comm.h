// Communication between ranks: the only place that calls MPI.
//
// Every collective is numbered. A rank that waits longer than the limit says which operation it
// waits in; the ranks compare notes on a side channel, the missing ranks are named, and the call
// returns TRI_ERR_TIMEOUT on those that were there (the error text names operation, number, and
// missing ranks). After an error of this module the communicator is broken: the status travels to
// main, which aborts the job.
//
// Buffers are host pointers; a device's buffers go through a transport (transport.h). Data are
// bytes: this floor knows no shapes, and nothing here adds numbers, so that the order of sums is
// decided above. Calls of one communicator come from one thread. Ranks in messages are ranks of the
// job.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/base/status.h"

typedef struct tri_comm tri_comm;
typedef struct tri_request tri_request;

// Starts MPI if need be and wraps the whole job. Collective on all ranks of the job. Without
// mpirun: one rank. limit_seconds > 0 bounds every wait; change it later with tri_comm_set_limit.
// *out owned: tri_comm_destroy.
TRI_MUST_CHECK tri_status tri_comm_create_world(double limit_seconds, tri_comm **out);

// A communicator of the ranks that give the same colour, ordered by `key`, then by old rank.
// Collective on comm.
TRI_MUST_CHECK tri_status tri_comm_split(tri_comm *comm, const char *name, int color, int key,
                                         tri_comm **out);

// Collective. NULL-safe. The world goes last, the others build on it. MPI itself is ended by
// tri_comm_finish.
void tri_comm_destroy(tri_comm **comm);

// The last meeting of the ranks of the job, on a channel of its own that works after any failure:
// tells all what this rank ends with, and learns what the others end with. Collective on the job,
// once.
//   status    of this rank; an error's text goes to all, so that a rank that waits for this one
//             stops (TRI_ERR_PEER)
//   statuses  (size) of each rank, -1 where it did not come
//   orderly   whether all came and no operation is unfinished: then MPI can be ended, else only
//             aborted
// A rank without an error waits for the others within the limit, then returns TRI_ERR_TIMEOUT or
// TRI_ERR_PEER; one with an error waits a few seconds and returns it.
TRI_MUST_CHECK tri_status tri_comm_farewell(tri_comm *world, tri_status status, int *statuses,
                                            bool *orderly);

// Ends MPI. Collective on the job; no-op when MPI never started.
void tri_comm_finish(void);

// Ends the whole job at once with this exit code (MPI_Abort). Does not return.
_Noreturn void tri_comm_abort(int exit_code);

int tri_comm_rank(const tri_comm *comm);
int tri_comm_size(const tri_comm *comm);
// Ranks of this communicator on this host, and this rank's place among them.
int tri_comm_local_rank(const tri_comm *comm);
int tri_comm_local_size(const tri_comm *comm);
// "Open MPI v4.1.4, …", first line of the library's own version text.
const char *tri_comm_library(void);

void tri_comm_set_limit(tri_comm *comm, double limit_seconds);

// Number of collectives and groups begun so far on this communicator, and bytes this rank has sent
// in them, counted as if each receiver got its bytes straight from their owner.
int64_t tri_comm_operations(const tri_comm *comm);
int64_t tri_comm_bytes_sent(const tri_comm *comm);
// Seconds this rank has spent waiting inside calls of this communicator (exposed communication).
double tri_comm_wait_seconds(const tri_comm *comm);

// --- collectives: every rank of comm calls them in the same order; errors are local; `what` is a
// literal that names
// --- the operation in reports ("gradient norm")

TRI_MUST_CHECK tri_status tri_comm_barrier(tri_comm *comm, const char *what);

// size_bytes of root's `data` reach every rank.
TRI_MUST_CHECK tri_status tri_comm_broadcast(tri_comm *comm, const char *what, void *data,
                                             size_t size_bytes, int root);

// out (size, size_bytes): every rank's block in rank order, equal sizes; does not overlap block.
TRI_MUST_CHECK tri_status tri_comm_all_gather(tri_comm *comm, const char *what, const void *block,
                                              size_t size_bytes, void *out);

// Blocks of different sizes to root: sizes[size] and the concatenation in rank order, both owned by
// the caller (tri_free) and set on root only (NULL elsewhere).
TRI_MUST_CHECK tri_status tri_comm_gather(tri_comm *comm, const char *what, const void *block,
                                          size_t size_bytes, int root, int64_t **sizes, void **out);

// Maximum of a 64-bit integer over all ranks (flags, statuses).
TRI_MUST_CHECK tri_status tri_comm_max(tri_comm *comm, const char *what, int64_t value,
                                       int64_t *out);

// Agreement on a status: all ranks meet, and all leave with TRI_OK only if all brought it. A
// culprit keeps its own code and text, also when the others do not come; they get TRI_ERR_PEER with
// the culprit's rank and message.
TRI_MUST_CHECK tri_status tri_comm_agree(tri_comm *comm, const char *what, tri_status status);

// --- point to point in numbered groups (as NCCL's group calls)

typedef struct tri_message {
  void *data; // sent from or received into; borrowed until the request is done; not read after for
              // receives
  size_t size_bytes; // may be 0; equal on both sides; may exceed 2 GiB
  int peer;
  int tag; // 0 <= tag < 2^20; messages of one pair and tag arrive in the order of their groups
} tri_message;

// Requests are taken from a pool made here, so that a step allocates nothing: at most `n_requests`
// groups of at most `n_messages` sends plus receives may be open at once. Local. May be called
// again only when no group is open.
TRI_MUST_CHECK tri_status tri_comm_reserve(tri_comm *comm, int n_requests, int n_messages);

// Begins one group. Does not wait. TRI_ERR_ARGUMENT when the pool is used up.
TRI_MUST_CHECK tri_status tri_comm_exchange_start(tri_comm *comm, const char *what,
                                                  const tri_message *sends, int n_sends,
                                                  const tri_message *receives, int n_receives,
                                                  tri_request **out);

// Moves all open groups of the communicator forward, never waits; *done says whether this one is
// complete, and then *request is nulled and back in the pool.
TRI_MUST_CHECK tri_status tri_comm_request_test(tri_request **request, bool *done);

// Waits for one group, within the limit.
TRI_MUST_CHECK tri_status tri_comm_request_wait(tri_request **request);
