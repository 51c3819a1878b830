// The NCCL transport: grouped sends and receives, and the all-reduce, from GPU to GPU.
//
// Communicators are made non-blocking: a call that waits for other ranks (making a communicator,
// the first message to a peer) returns at once and is polled here, so that it is bounded by the
// limit and watched as a wait for MPI is. Only when the library has queued what it was asked for
// does a call of this file return: then the stream orders the rest.
//
// Any error breaks the communicator, and NCCL's is aborted at once: kernels that wait for a lost
// rank would otherwise hold the device, and with it every release of memory, for ever.
#include <nccl.h>
#include <stdio.h>
#include <string.h>

#include "comm/exit_timer.h"
#include "comm/nccl.h"
#include "trireme/base/memory.h"
#include "trireme/device/cuda.h"
#include "trireme/telemetry/clock.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 1)
#error NCCL 2.18 or newer is wanted: ncclCommSplit
#endif

static const double ABORT_SECONDS = 10;
static const double WATCH_SECONDS = 10e-3; // the side channel is read this often
// Before NCCL's own word is taken for an error: so long another rank has to say what happened.
static const double HEARSAY_SECONDS = 5;

// An error of the library, with its own words.
static tri_status nccl_error(ncclResult_t code, ncclComm_t nccl, const char *call,
                             const tri_operation *operation, const char *name)
{
  const char *more = nccl == NULL ? "" : ncclGetLastError(nccl);
  return TRI_ERROR(TRI_ERR_COMM, "NCCL: operation %lld \"%s\" of \"%s\": %s: %s%s%s",
                   (long long)operation->number, operation->what, name, call,
                   ncclGetErrorString(code), more[0] == '\0' ? "" : "; ", more);
}

static tri_nccl_transport *nccl_of(tri_transport *transport)
{
  return (tri_nccl_transport *)transport;
}

// --- errors and waits

static void abort_communicator(tri_nccl_transport *t)
{
  tri_exit_timer timer;
  ncclComm_t nccl = t->nccl;
  char what[TRI_TEXT_BYTES + 64];
  if (nccl == NULL) return;
  t->nccl = NULL;
  // Should it hang, what led to it has been said by nobody yet.
  snprintf(what, sizeof what, "rank %d: %s%sncclCommAbort", t->base.comm->side->rank,
           tri_error_message(), tri_error_message()[0] == '\0' ? "" : "; ");
  tri_exit_timer_start(&timer, what, ABORT_SECONDS, TRI_ERR_COMM);
  (void)ncclCommAbort(nccl); // whatever it says, the communicator is gone
  tri_exit_timer_stop(&timer);
}

// Ends the transport with an error that is there: nothing of the job's communication goes on.
static tri_status give_up(tri_nccl_transport *t, tri_status status)
{
  t->base.comm->side->broken = true;
  abort_communicator(t);
  return status;
}

// NCCL's error often comes of another rank's, which that rank tells: its word says more.
static tri_status blame(tri_nccl_transport *t, ncclResult_t code, const char *call)
{
  const double start = tri_clock_seconds();
  const tri_comm *comm = t->base.comm;
  char text[TRI_TEXT_BYTES];
  (void)nccl_error(code, t->nccl, call, &t->last, comm->name);
  snprintf(text, sizeof text, "%s", tri_error_message());
  for (double waited = 0; waited < HEARSAY_SECONDS; waited = tri_clock_seconds() - start) {
    TRI_CALL(tri_comm_watch(comm, &t->last, 0, false));
    tri_comm_rest(waited + WATCH_SECONDS);
  }
  return TRI_ERROR(TRI_ERR_COMM, "%s", text);
}

// Whether the library is through with what it was asked to do, and the event has passed.
static tri_status look(tri_nccl_transport *t, ncclComm_t nccl, tri_event *event, bool *done)
{
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code = ncclCommGetAsyncError(nccl, &state);
  if (code != ncclSuccess) return blame(t, code, "ncclCommGetAsyncError");
  *done = state != ncclInProgress;
  if (!*done) return TRI_OK;
  if (state != ncclSuccess) return blame(t, state, "in a queued operation");
  if (event != NULL) TRI_CALL(tri_event_query(event, done));
  return TRI_OK;
}

// Waits until look() is content, as tri_comm_wait_all does for MPI.
static tri_status wait_until_done(tri_nccl_transport *t, ncclComm_t nccl, tri_event *event)
{
  tri_comm *comm = t->base.comm;
  const double start = tri_clock_seconds();
  double waited = 0, next_watch = WATCH_SECONDS;
  tri_status status;
  bool done = false;
  for (;;) {
    status = look(t, nccl, event, &done);
    waited = tri_clock_seconds() - start;
    if (status != TRI_OK || done) break;
    tri_comm_rest(waited);
    if (waited < next_watch) continue;
    status = tri_comm_watch(comm, &t->last, waited, next_watch == WATCH_SECONDS);
    next_watch = waited + WATCH_SECONDS;
    if (status != TRI_OK) break;
  }
  // Time in which the library queues is the host's, in which the device may well compute.
  if (event != NULL) comm->wait_seconds += waited;
  TRI_CALL(status);
  return TRI_OK;
}

// A call on a communicator that does not block went well so far.
static bool is_well(ncclResult_t code)
{
  return code == ncclSuccess || code == ncclInProgress;
}

// After a call: it is done, under way, or failed.
static tri_status settle(tri_nccl_transport *t, ncclResult_t code, const char *call)
{
  if (!is_well(code)) return blame(t, code, call);
  TRI_CALL(wait_until_done(t, t->nccl, NULL));
  return TRI_OK;
}

// --- making a communicator

static void read_place(const tri_device *device, const tri_device_place *places, int n, char *out)
{
  const int ordinal = tri_cuda_ordinal(device);
  memset(out, 0, TRI_DEVICE_BUS_ID_BYTES);
  if (ordinal < n) memcpy(out, places[ordinal].bus_id, TRI_DEVICE_BUS_ID_BYTES);
}

// Two ranks with the same GPU of the same host; false when there are none.
static bool find_sharing(const tri_comm *comm, char (*bus_ids)[TRI_DEVICE_BUS_ID_BYTES], int *a,
                         int *b)
{
  char(*hosts)[TRI_HOST_BYTES] = comm->side->hosts;
  for (*b = 1; *b < comm->size; ++*b)
    for (*a = 0; *a < *b; ++*a)
      if (strcmp(bus_ids[*a], bus_ids[*b]) == 0 &&
          strcmp(hosts[comm->job_ranks[*a]], hosts[comm->job_ranks[*b]]) == 0)
        return true;
  return false;
}

static tri_status nccl_examine(tri_comm *comm, tri_device *device, bool *usable, char *reason)
{
  tri_status status;
  tri_device_facts facts;
  tri_device_place places[TRI_DEVICE_MAX_PLACES];
  char own[TRI_DEVICE_BUS_ID_BYTES], (*all)[TRI_DEVICE_BUS_ID_BYTES] = NULL;
  int n_places = 0, a = 0, b = 0;
  tri_device_get_facts(device, &facts);
  *usable = strcmp(facts.name, "cuda") == 0;
  snprintf(reason, TRI_TRANSPORT_TEXT_BYTES, "device %s is not a CUDA device", facts.name);
  if (!*usable) return TRI_OK;

  TRI_CALL(tri_device_list("cuda", places, &n_places));
  read_place(device, places, n_places, own);
  TRI_CALL(TRI_NEW(TRI_MODULE_COMM, comm->size, &all));
  TRI_CALL_GOTO(done, tri_comm_all_gather(comm, "GPUs of the ranks", own, sizeof own, all));
  *usable = !find_sharing(comm, all, &a, &b);
  if (*usable)
    snprintf(reason, TRI_TRANSPORT_TEXT_BYTES, "each rank has a GPU of its own");
  else
    snprintf(reason, TRI_TRANSPORT_TEXT_BYTES, "ranks %d and %d share GPU %s of host %s",
             comm->job_ranks[a], comm->job_ranks[b], all[a], comm->side->hosts[comm->job_ranks[a]]);

done:
  TRI_FREE(&all);
  return status;
}

// MPI carries the id.
static tri_status share_id(tri_nccl_transport *t, ncclUniqueId *id)
{
  tri_comm *comm = t->base.comm;
  tri_status status = TRI_OK;
  if (comm->rank == 0) {
    const ncclResult_t code = ncclGetUniqueId(id);
    if (code != ncclSuccess)
      status = nccl_error(code, NULL, "ncclGetUniqueId", &t->last, comm->name);
  }
  TRI_CALL(tri_comm_agree(comm, "NCCL id", status));
  TRI_CALL(tri_comm_broadcast(comm, "NCCL id", id, sizeof *id, 0));
  return TRI_OK;
}

static tri_status create_from_id(tri_nccl_transport *t, ncclConfig_t *config)
{
  tri_comm *comm = t->base.comm;
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  TRI_CALL(share_id(t, &id));
  const double start = tri_clock_seconds();
  TRI_CALL(settle(t, ncclCommInitRankConfig(&t->nccl, comm->size, id, comm->rank, config),
                  "ncclCommInitRankConfig"));
  t->base.facts.create_seconds = tri_clock_seconds() - start;
  return TRI_OK;
}

// The children of one split are told apart by the lowest rank that each has.
static tri_status create_from_parent(tri_nccl_transport *t, tri_nccl_transport *parent,
                                     ncclConfig_t *config)
{
  const tri_comm *comm = t->base.comm;
  int color = comm->job_ranks[0];
  for (int r = 1; r < comm->size; r++)
    if (comm->job_ranks[r] < color) color = comm->job_ranks[r];
  const double start = tri_clock_seconds();
  const ncclResult_t code = ncclCommSplit(parent->nccl, color, comm->rank, &t->nccl, config);
  if (!is_well(code)) return blame(t, code, "ncclCommSplit");
  TRI_CALL(wait_until_done(t, parent->nccl, NULL));
  TRI_CHECK(t->nccl != NULL, TRI_ERR_COMM, "NCCL: ncclCommSplit made no communicator for \"%s\"",
            comm->name);
  TRI_CALL(wait_until_done(t, t->nccl, NULL));
  t->base.facts.create_seconds = tri_clock_seconds() - start;
  return TRI_OK;
}

static tri_status nccl_create(tri_transport *transport, tri_transport *parent)
{
  tri_nccl_transport *t = nccl_of(transport);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int version = 0;
  config.blocking = 0;
  const ncclResult_t code = ncclGetVersion(&version);
  TRI_CHECK(code == ncclSuccess, TRI_ERR_COMM, "NCCL: ncclGetVersion: %s",
            ncclGetErrorString(code));
  snprintf(transport->name, sizeof transport->name, "nccl %d.%d.%d", version / 10000,
           version / 100 % 100, version % 100);
  TRI_CALL(tri_cuda_select(transport->device));
  TRI_CALL(tri_comm_begin(transport->comm, "NCCL communicator", &t->last));
  const bool is_child = parent != NULL && parent->operations == transport->operations;
  const tri_status status =
      is_child ? create_from_parent(t, nccl_of(parent), &config) : create_from_id(t, &config);
  if (status != TRI_OK) return give_up(t, status);
  return TRI_OK;
}

static tri_status finalize(tri_nccl_transport *t)
{
  TRI_CALL(settle(t, ncclCommFinalize(t->nccl), "ncclCommFinalize"));
  const ncclResult_t code = ncclCommDestroy(t->nccl);
  if (code != ncclSuccess) return blame(t, code, "ncclCommDestroy");
  t->nccl = NULL;
  return TRI_OK;
}

static void nccl_destroy(tri_transport *transport)
{
  abort_communicator(nccl_of(transport));
}

// --- operations

static tri_status begin(tri_nccl_transport *t, const char *what)
{
  TRI_CALL(tri_comm_begin(t->base.comm, what, &t->last));
  TRI_CHECK(t->nccl != NULL, TRI_ERR_ARGUMENT, "\"%s\" of \"%s\" after the end of its transport",
            what, t->base.comm->name);
  TRI_CALL(tri_cuda_select(t->base.device));
  return TRI_OK;
}

// Queues the messages that have bytes: sizes are equal on both sides, so both leave the others out.
static ncclResult_t queue_messages(const tri_nccl_transport *t, cudaStream_t stream,
                                   const tri_message *sends, int n_sends,
                                   const tri_message *receives, int n_receives)
{
  ncclResult_t code = ncclGroupStart();
  if (code != ncclSuccess) return code;
  for (int i = 0; i < n_receives && is_well(code); i++)
    if (receives[i].size_bytes > 0)
      code = ncclRecv(receives[i].data, receives[i].size_bytes, ncclInt8, receives[i].peer, t->nccl,
                      stream);
  for (int i = 0; i < n_sends && is_well(code); i++)
    if (sends[i].size_bytes > 0)
      code = ncclSend(sends[i].data, sends[i].size_bytes, ncclInt8, sends[i].peer, t->nccl, stream);
  // A group that was begun is ended, also after an error in it.
  const ncclResult_t end = ncclGroupEnd();
  return is_well(code) ? end : code;
}

static tri_status start_messages(tri_nccl_transport *t, tri_stream *stream,
                                 const tri_message *sends, int n_sends, const tri_message *receives,
                                 int n_receives)
{
  cudaStream_t native = tri_cuda_native_stream(stream);
  TRI_CALL(settle(t, queue_messages(t, native, sends, n_sends, receives, n_receives),
                  "ncclSend and ncclRecv"));
  for (int i = 0; i < n_sends; i++)
    if (sends[i].peer != t->base.comm->rank)
      t->base.comm->bytes_sent += (int64_t)sends[i].size_bytes;
  return TRI_OK;
}

static tri_status nccl_start(tri_transfer *transfer, const char *what, tri_stream *stream,
                             const tri_message *sends, int n_sends, const tri_message *receives,
                             int n_receives)
{
  tri_nccl_transport *t = nccl_of(transfer->transport);
  TRI_CALL(begin(t, what));
  const tri_status status = start_messages(t, stream, sends, n_sends, receives, n_receives);
  if (status != TRI_OK) return give_up(t, status);
  return TRI_OK;
}

// The stream orders what follows.
static tri_status nccl_test(tri_transfer *transfer, bool *done)
{
  (void)transfer;
  *done = true;
  return TRI_OK;
}

static tri_status nccl_wait(tri_transfer *transfer)
{
  (void)transfer;
  return TRI_OK;
}

static tri_status nccl_all_reduce_sum_f32(tri_transport *transport, const char *what,
                                          tri_stream *stream, float *data, int64_t n)
{
  tri_nccl_transport *t = nccl_of(transport);
  const int64_t size = transport->comm->size;
  TRI_CALL(begin(t, what));
  const tri_status status = settle(t,
                                   ncclAllReduce(data, data, (size_t)n, ncclFloat32, ncclSum,
                                                 t->nccl, tri_cuda_native_stream(stream)),
                                   "ncclAllReduce");
  if (status != TRI_OK) return give_up(t, status);
  // As a reduce-scatter and an all-gather: the least there can be.
  transport->comm->bytes_sent += 2 * (size - 1) * n * (int64_t)sizeof(float) / size;
  return TRI_OK;
}

static tri_status nccl_poll(tri_transport *transport)
{
  tri_nccl_transport *t = nccl_of(transport);
  bool done = false;
  if (t->nccl == NULL) return TRI_OK; // it has ended, and an error was told
  const tri_status status = look(t, t->nccl, NULL, &done);
  if (status != TRI_OK) return give_up(t, status);
  return TRI_OK;
}

static tri_status nccl_synchronize(tri_transport *transport, tri_event *event)
{
  tri_nccl_transport *t = nccl_of(transport);
  TRI_CHECK(t->nccl != NULL, TRI_ERR_COMM, "transport %s of \"%s\" has ended", transport->name,
            transport->comm->name);
  const tri_status status = wait_until_done(t, t->nccl, event);
  if (status != TRI_OK) return give_up(t, status);
  return TRI_OK;
}

static tri_status nccl_finish(tri_transport *transport)
{
  tri_nccl_transport *t = nccl_of(transport);
  TRI_CALL(begin(t, "end of NCCL"));
  const tri_status status = finalize(t);
  if (status != TRI_OK) return give_up(t, status);
  return TRI_OK;
}

const tri_transport_operations tri_nccl_transport_operations = {
    .name = "nccl",
    .opens_library = true,
    .transport_bytes = sizeof(tri_nccl_transport),
    .transfer_bytes = sizeof(tri_transfer),
    .examine = nccl_examine,
    .create = nccl_create,
    .finish = nccl_finish,
    .destroy = nccl_destroy,
    .start = nccl_start,
    .test = nccl_test,
    .wait = nccl_wait,
    .all_reduce_sum_f32 = nccl_all_reduce_sum_f32,
    .poll = nccl_poll,
    .synchronize = nccl_synchronize};
