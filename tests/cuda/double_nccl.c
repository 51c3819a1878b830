// Double of NCCL on MPI: one rank per process, operations ordered by streams.
//
// A collective is one message from each rank to each other, headed by what the sender believes the
// call to be: ranks that disagree, a hang on GPUs, end with both calls named. Contributions are
// folded in rank order with one rounding, so all ranks get the same bits. An operation never
// blocks: its step posts, then looks what arrived.
//
// A call on a non-blocking communicator is done only at the second ncclCommGetAsyncError after it:
// whoever goes on before queues too early, or ends here.
#include "doubles.h"

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "double_mpi.h"
#include "double_nccl.h"

enum { TAG_INIT = 1 << 24, TAG_SPLIT = 1 << 25 };

static const char *const names[] = {"ncclAllReduce", "ncclBroadcast",     "ncclReduce",
                                    "ncclAllGather", "ncclReduceScatter", "ncclSend/ncclRecv",
                                    "ncclRecv"};

static double_nccl_task *group; // calls since ncclGroupStart
static int n_group, group_capacity, group_depth;

const char *double_nccl_name(int kind)
{
  return names[kind];
}

size_t double_nccl_type_size(int type)
{
  switch (type) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32: return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64: return 8;
  default: double_die("NCCL: type %d is not modelled", type);
  }
}

static ncclComm_t alive(ncclComm_t comm)
{
  if (comm == NULL || !comm->live) double_die("NCCL: use of a destroyed communicator");
  return comm;
}

// Where the last call has to be done.
static ncclComm_t settled(const char *call, ncclComm_t comm)
{
  if (alive(comm)->in_progress > 0)
    double_die("%s while the last call on the communicator is in progress (ncclCommGetAsyncError)",
               call);
  return comm;
}

static ncclResult_t result_of(ncclComm_t comm)
{
  if (comm->blocking) return ncclSuccess;
  comm->in_progress = 2;
  return ncclInProgress;
}

// --- communicators

static void send_bytes(const void *from, size_t size, int to, int tag)
{
  MPI_Request request;
  if (PMPI_Isend(from, (int)size, MPI_BYTE, to, tag, double_world(), &request) != MPI_SUCCESS)
    double_die("MPI_Isend failed");
  double_wait(&request);
}

static void receive_bytes(void *to, size_t size, int from, int tag)
{
  MPI_Request request;
  if (PMPI_Irecv(to, (int)size, MPI_BYTE, from, tag, double_world(), &request) != MPI_SUCCESS)
    double_die("MPI_Irecv failed");
  double_wait(&request);
}

static ncclComm_t new_comm(int n, int rank, uint64_t id, bool blocking)
{
  ncclComm_t comm = calloc(1, sizeof *comm);
  if (comm == NULL) double_die("out of host memory");
  comm->world_ranks = calloc((size_t)n, sizeof(int));
  if (comm->world_ranks == NULL) double_die("out of host memory");
  comm->n = n;
  comm->rank = rank;
  comm->id = id;
  comm->tag = (int)(id * 0x9e3779b97f4a7c15u >> 44) << 1;
  comm->live = true;
  comm->blocking = blocking;
  comm->device = double_current_device();
  double_own(DOUBLE_NCCL_COMM, 1);
  return comm;
}

typedef struct unique {
  int creator, count;
} unique;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  DOUBLE_ENTER(ncclSystemError);
  static int count;
  unique u = {0, ++count};
  (void)PMPI_Comm_rank(double_world(), &u.creator);
  memset(id, 0, sizeof *id);
  memcpy(id->internal, &u, sizeof u);
  return ncclSuccess;
}

// The creator of the id collects who has which rank, and tells everybody.
static void meet(ncclComm_t comm, const unique *u)
{
  int me = 0;
  (void)PMPI_Comm_rank(double_world(), &me);
  const int tag = TAG_INIT + u->count;
  const size_t size = (size_t)comm->n * sizeof(int);
  int mine[2] = {comm->rank, me};
  if (me != u->creator) {
    send_bytes(mine, sizeof mine, u->creator, tag);
    receive_bytes(comm->world_ranks, size, u->creator, tag);
    return;
  }
  comm->world_ranks[comm->rank] = me;
  for (int i = 1; i < comm->n; i++) {
    int other[2] = {0};
    receive_bytes(other, sizeof other, MPI_ANY_SOURCE, tag);
    if (other[0] < 0 || other[0] >= comm->n) double_die("ncclCommInitRank: rank %d", other[0]);
    comm->world_ranks[other[0]] = other[1];
  }
  for (int i = 0; i < comm->n; i++)
    if (i != comm->rank) send_bytes(comm->world_ranks, size, comm->world_ranks[i], tag);
}

static bool is_blocking(const ncclConfig_t *config)
{
  return config == NULL || config->blocking != 0;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
  DOUBLE_ENTER(ncclSystemError);
  if (n < 1 || rank < 0 || rank >= n) return ncclInvalidArgument;
  unique u;
  memcpy(&u, id.internal, sizeof u);
  *out =
      new_comm(n, rank, (uint64_t)(u.creator + 1) << 32 | (uint32_t)u.count, is_blocking(config));
  meet(*out, &u);
  return result_of(*out);
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank)
{
  return ncclCommInitRankConfig(out, n, id, rank, NULL);
}

typedef struct choice {
  int color, key;
} choice;

// Everybody hears everybody's color and key.
static void hear(ncclComm_t comm, choice *all)
{
  const int tag = TAG_SPLIT + comm->tag;
  for (int i = 0; i < comm->n; i++)
    if (i != comm->rank) {
      MPI_Request request;
      if (PMPI_Isend(&all[comm->rank], sizeof *all, MPI_BYTE, comm->world_ranks[i], tag,
                     double_world(), &request) != MPI_SUCCESS)
        double_die("MPI_Isend failed");
      receive_bytes(&all[i], sizeof *all, comm->world_ranks[i], tag);
      double_wait(&request);
    }
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
  DOUBLE_ENTER(ncclSystemError);
  settled(__func__, parent);
  const bool blocking = config == NULL ? parent->blocking : is_blocking(config);
  choice *all = calloc((size_t)parent->n, sizeof *all);
  if (all == NULL) double_die("out of host memory");
  all[parent->rank] = (choice){color, key};
  hear(parent, all);
  parent->n_splits++;
  *out = NULL;
  if (color != NCCL_SPLIT_NOCOLOR) {
    int n = 0, rank = 0;
    for (int i = 0; i < parent->n; i++) {
      if (all[i].color != color) continue;
      n++;
      rank += all[i].key < key || (all[i].key == key && i < parent->rank);
    }
    *out = new_comm(n, rank, (parent->id * 31 + parent->n_splits) * 1000003 + (uint64_t)color + 1,
                    blocking);
    (void)result_of(*out);
    for (int i = 0; i < parent->n; i++) {
      if (all[i].color != color) continue;
      int at = 0;
      for (int j = 0; j < parent->n; j++)
        at += all[j].color == color &&
              (all[j].key < all[i].key || (all[j].key == all[i].key && j < i));
      (*out)->world_ranks[at] = parent->world_ranks[i];
    }
  }
  free(all);
  return result_of(parent);
}

// The structure stays, so that a late use is named.
static void bury(ncclComm_t comm)
{
  comm->live = false;
  double_own(DOUBLE_NCCL_COMM, -1);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
  DOUBLE_ENTER(ncclSystemError);
  double_drain_device(settled(__func__, comm)->device);
  return result_of(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
  DOUBLE_ENTER(ncclSystemError);
  double_drain_device(settled(__func__, comm)->device);
  bury(comm);
  return ncclSuccess;
}

// Queued operations of the communicator end without a result.
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
  DOUBLE_ENTER(ncclSystemError);
  alive(comm)->aborted = true;
  if (comm->in_progress > 0) n_group = 0;
  bury(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *n)
{
  *n = alive(comm)->n;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
  *rank = alive(comm)->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
  *device = alive(comm)->device;
  return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version)
{
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
  switch (result) {
  case ncclSuccess: return "no error";
  case ncclSystemError: return "unhandled system error";
  case ncclInvalidArgument: return "invalid argument";
  case ncclInvalidUsage: return "invalid usage";
  case ncclRemoteError: return "remote process exited or there was a network error";
  case ncclInProgress: return "NCCL operation in progress";
  default: return "unknown result code";
  }
}

const char *ncclGetLastError(ncclComm_t comm)
{
  (void)comm;
  return "";
}

// --- operations

static ncclResult_t queue_group(void)
{
  if (n_group == 0) return ncclSuccess;
  cudaStream_t *streams = calloc((size_t)n_group, sizeof *streams);
  double_operation ***orders = calloc((size_t)n_group, sizeof *orders);
  if (streams == NULL || orders == NULL) double_die("out of host memory");
  int n_orders = 0;
  for (int i = 0; i < n_group; i++) {
    streams[i] = group[i].stream;
    bool known = false;
    for (int j = 0; j < n_orders; j++)
      known = known || orders[j] == &group[i].comm->last;
    if (!known) orders[n_orders++] = &group[i].comm->last;
  }
  double_count.nccl_operations += (uint64_t)n_group;
  double_enqueue_joint(streams, n_group, double_nccl_work(group, n_group), orders, n_orders);
  free(streams);
  free(orders);
  n_group = 0;
  return ncclSuccess;
}

// The group is complete: it is queued now, or when the caller has asked after it.
static ncclResult_t end_group(void)
{
  ncclComm_t comm = n_group == 0 ? NULL : group[0].comm;
  if (comm == NULL || comm->blocking) return queue_group();
  for (int i = 1; i < n_group; i++)
    if (group[i].comm != comm) double_die("NCCL: a group of two non-blocking communicators");
  return result_of(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
  __attribute__((cleanup(double_leave))) const char *entered = double_enter(__func__);
  if (double_must_fail(entered)) alive(comm)->failed = true;
  if (alive(comm)->in_progress > 0 && --comm->in_progress == 0 && group_depth == 0)
    (void)queue_group();
  *out = comm->failed ? ncclRemoteError : comm->in_progress > 0 ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

static void check_buffers(const double_nccl_task *t, int device)
{
  const ncclComm_t c = t->comm;
  const char *what = names[t->kind];
  const size_t bytes = t->count * double_nccl_type_size(t->type), all = bytes * (size_t)c->n;
  if (bytes == 0) return;
  const bool sends = t->kind != NCCL_RECV && (t->kind != NCCL_BROADCAST || c->rank == t->root);
  const bool receives = t->kind != NCCL_SEND && (t->kind != NCCL_REDUCE || c->rank == t->root);
  if (sends)
    double_check_device(t->from, t->kind == NCCL_REDUCE_SCATTER ? all : bytes, device, what);
  if (receives) double_check_device(t->to, t->kind == NCCL_ALL_GATHER ? all : bytes, device, what);
  const char *from = t->from, *to = t->to;
  if (t->kind == NCCL_ALL_GATHER && from + bytes > to && from < to + all &&
      from != to + (size_t)c->rank * bytes)
    double_die("ncclAllGather in place: the send buffer must be block %d of the receive buffer",
               c->rank);
}

static ncclResult_t add(const char *call, double_nccl_task task)
{
  __attribute__((cleanup(double_leave))) const char *entered = double_enter(call);
  if (double_must_fail(entered)) return ncclSystemError;
  ncclComm_t comm = settled(call, task.comm);
  if (comm->failed) return ncclRemoteError;
  if (task.root < 0 || task.root >= comm->n || task.peer < 0 || task.peer >= comm->n)
    return ncclInvalidArgument;
  const int device = double_stream_device(task.stream);
  if (device != comm->device) double_die("%s: stream and communicator on two devices", call);
  check_buffers(&task, device);
  if (task.kind < NCCL_SEND) task.sequence = ++comm->sequence;
  if (n_group == group_capacity) {
    group_capacity = group_capacity == 0 ? 16 : 2 * group_capacity;
    group = realloc(group, (size_t)group_capacity * sizeof *group);
    if (group == NULL) double_die("out of host memory");
  }
  group[n_group++] = task;
  return group_depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclGroupStart(void)
{
  DOUBLE_ENTER(ncclSystemError);
  group_depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
  DOUBLE_ENTER(ncclSystemError);
  if (group_depth == 0) return ncclInvalidUsage;
  return --group_depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  return add(__func__,
             (double_nccl_task){NCCL_ALL_REDUCE, 0, 0, type, op, count, from, to, comm, stream, 0});
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
  return add(__func__,
             (double_nccl_task){NCCL_REDUCE, root, 0, type, op, count, from, to, comm, stream, 0});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
  return add(__func__, (double_nccl_task){NCCL_BROADCAST, root, 0, type, 0, count, from, to, comm,
                                          stream, 0});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
  return add(__func__,
             (double_nccl_task){NCCL_ALL_GATHER, 0, 0, type, 0, count, from, to, comm, stream, 0});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  return add(__func__, (double_nccl_task){NCCL_REDUCE_SCATTER, 0, 0, type, op, count, from, to,
                                          comm, stream, 0});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
  return add(__func__,
             (double_nccl_task){NCCL_SEND, 0, peer, type, 0, count, from, NULL, comm, stream, 0});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
  return add(__func__,
             (double_nccl_task){NCCL_RECV, 0, peer, type, 0, count, NULL, to, comm, stream, 0});
}
