// Messages of the NCCL double: an operation posts what it sends, takes what arrives, and combines.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "double_mpi.h"
#include "double_nccl.h"

// An operation runs on the host's stack: its locals there are no races.
#define NO_RACES __attribute__((no_sanitize("thread")))

// What a sender believes the call to be, in front of its data.
typedef struct header {
  uint64_t comm, sequence, count;
  int32_t kind, root, type, op;
} header;

typedef struct message {
  int task, rank, peer, tag; // rank: in the communicator of the task; peer: in the world
  char *bytes;               // header and data; NULL until it arrives
  MPI_Request request;       // of a send
} message;

typedef struct exchange {
  int n_tasks, n_sends, n_receives;
  message *sends, *receives;
  bool posted;
  time_t start;
  double_nccl_task tasks[];
} exchange;

static header header_of(const double_nccl_task *t)
{
  return (header){t->comm->id, t->sequence, t->count, t->kind == NCCL_RECV ? NCCL_SEND : t->kind,
                  t->root,     t->type,     t->op};
}

// The part of a task's send buffer that goes to `rank`.
static size_t outgoing(const double_nccl_task *t, int rank, const char **from)
{
  const size_t bytes = t->count * double_nccl_type_size(t->type);
  *from = t->from;
  switch (t->kind) {
  case NCCL_BROADCAST: return t->comm->rank == t->root ? bytes : 0;
  case NCCL_REDUCE: return rank == t->root ? bytes : 0;
  case NCCL_REDUCE_SCATTER: *from += (size_t)rank * bytes; return bytes;
  default: return bytes;
  }
}

static void post_send(exchange *e, int task, int rank)
{
  const double_nccl_task *t = &e->tasks[task];
  const char *from = NULL;
  const size_t bytes = outgoing(t, rank, &from);
  const header h = header_of(t);
  message *m = &e->sends[e->n_sends++];
  *m = (message){task,
                 rank,
                 t->comm->world_ranks[rank],
                 t->comm->tag + (t->kind == NCCL_SEND),
                 malloc(sizeof h + bytes),
                 MPI_REQUEST_NULL};
  if (m->bytes == NULL) double_die("out of host memory");
  memcpy(m->bytes, &h, sizeof h);
  if (bytes > 0) memcpy(m->bytes + sizeof h, from, bytes);
  if (sizeof h + bytes > INT32_MAX) double_die("NCCL: a message of %zu bytes", bytes);
  if (PMPI_Isend(m->bytes, (int)(sizeof h + bytes), MPI_BYTE, m->peer, m->tag, double_world(),
                 &m->request) != MPI_SUCCESS)
    double_die("MPI_Isend failed");
}

static void post_receive(exchange *e, int task, int rank)
{
  const double_nccl_task *t = &e->tasks[task];
  e->receives[e->n_receives++] = (message){task,
                                           rank,
                                           t->comm->world_ranks[rank],
                                           t->comm->tag + (t->kind == NCCL_RECV),
                                           NULL,
                                           MPI_REQUEST_NULL};
}

static void post(exchange *e)
{
  size_t room = 0;
  for (int i = 0; i < e->n_tasks; i++)
    room += (size_t)e->tasks[i].comm->n;
  e->sends = calloc(room, sizeof *e->sends);
  e->receives = calloc(room, sizeof *e->receives);
  if (e->sends == NULL || e->receives == NULL) double_die("out of host memory");
  for (int i = 0; i < e->n_tasks; i++) {
    const double_nccl_task *t = &e->tasks[i];
    if (t->kind == NCCL_SEND) post_send(e, i, t->peer);
    if (t->kind == NCCL_RECV) post_receive(e, i, t->peer);
    for (int rank = 0; t->kind < NCCL_SEND && rank < t->comm->n; rank++) {
      post_send(e, i, rank); // to itself too: one rule for all
      post_receive(e, i, rank);
    }
  }
  e->posted = true;
  e->start = time(NULL);
}

static void compare(const double_nccl_task *t, const message *m, size_t size)
{
  header theirs;
  memcpy(&theirs, m->bytes, sizeof theirs);
  const header ours = header_of(t);
  if (memcmp(&ours, &theirs, sizeof ours) != 0)
    double_die("NCCL call %llu differs: rank %d calls %s(count %llu, type %d, op %d, root %d) and "
               "rank %d calls %s(count %llu, type %d, op %d, root %d)%s",
               (unsigned long long)ours.sequence, t->comm->rank, double_nccl_name(ours.kind),
               (unsigned long long)ours.count, ours.type, ours.op, ours.root, m->rank,
               double_nccl_name(theirs.kind), (unsigned long long)theirs.count, theirs.type,
               theirs.op, theirs.root, ours.comm == theirs.comm ? "" : ", on two communicators");
  if (size < sizeof theirs) double_die("NCCL: a message of %zu bytes", size);
}

// Messages of one sender and tag arrive in order: a later one is not looked for before its elder.
static bool elder_missing(const exchange *e, int at)
{
  for (int i = 0; i < at; i++)
    if (e->receives[i].bytes == NULL && e->receives[i].peer == e->receives[at].peer &&
        e->receives[i].tag == e->receives[at].tag)
      return true;
  return false;
}

NO_RACES static bool take(exchange *e, int at)
{
  message *m = &e->receives[at];
  if (m->bytes != NULL) return true;
  if (elder_missing(e, at)) return false;
  int found = 0, size = 0;
  MPI_Message handle;
  MPI_Status status;
  if (PMPI_Improbe(m->peer, m->tag, double_world(), &found, &handle, &status) != MPI_SUCCESS)
    double_die("MPI_Improbe failed");
  if (!found) return false;
  (void)PMPI_Get_count(&status, MPI_BYTE, &size);
  m->bytes = malloc((size_t)size);
  if (m->bytes == NULL) double_die("out of host memory");
  if (PMPI_Mrecv(m->bytes, size, MPI_BYTE, &handle, MPI_STATUS_IGNORE) != MPI_SUCCESS)
    double_die("MPI_Mrecv failed");
  compare(&e->tasks[m->task], m, (size_t)size);
  return true;
}

// --- reductions

static float widen(uint16_t x)
{
  const uint32_t bits = (uint32_t)x << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

static uint16_t narrow(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#define SAME(x) (x)
#define FOLD(T, W, load, store) \
  for (size_t i = 0; i < count; i++) { \
    W sum = load(((const T *)parts[0])[i]); \
    for (int r = 1; r < n; r++) { \
      const W x = load(((const T *)parts[r])[i]); \
      if (op == ncclSum || op == ncclAvg) \
        sum = (W)(sum + x); \
      else if (op == ncclProd) \
        sum = (W)(sum * x); \
      else if (op == ncclMax) \
        sum = x > sum ? x : sum; \
      else \
        sum = x < sum ? x : sum; \
    } \
    if (op == ncclAvg) sum = (W)(sum / (W)n); \
    ((T *)to)[i] = store(sum); \
  }

static void fold(void *to, char *const *parts, int n, size_t count, int type, int op)
{
  if (op < ncclSum || op > ncclAvg) double_die("NCCL: reduction %d is not modelled", op);
  switch (type) {
  case ncclFloat32: FOLD(float, float, SAME, SAME) break;
  case ncclFloat64: FOLD(double, double, SAME, SAME) break;
  case ncclBfloat16: FOLD(uint16_t, float, widen, narrow) break;
  case ncclInt32: FOLD(int32_t, int32_t, SAME, SAME) break;
  case ncclInt64: FOLD(int64_t, int64_t, SAME, SAME) break;
  case ncclUint64: FOLD(uint64_t, uint64_t, SAME, SAME) break;
  case ncclUint8: FOLD(uint8_t, uint8_t, SAME, SAME) break;
  default: double_die("NCCL: reduction of type %d is not modelled", type);
  }
}

// All messages of the task, by rank, are there; messages begin at receives[first].
static void combine(const exchange *e, int task, int first)
{
  const double_nccl_task *t = &e->tasks[task];
  const int n = t->comm->n, me = t->comm->rank;
  const size_t bytes = t->count * double_nccl_type_size(t->type);
  if (bytes == 0 || (t->kind == NCCL_REDUCE && me != t->root)) return;
  char **parts = calloc((size_t)n, sizeof *parts);
  if (parts == NULL) double_die("out of host memory");
  const int n_parts = t->kind == NCCL_RECV ? 1 : n;
  for (int i = 0; i < n_parts; i++)
    parts[i] = e->receives[first + i].bytes + sizeof(header);
  switch (t->kind) {
  case NCCL_RECV: memcpy(t->to, parts[0], bytes); break;
  case NCCL_BROADCAST: memcpy(t->to, parts[t->root], bytes); break;
  case NCCL_ALL_GATHER:
    for (int i = 0; i < n; i++)
      memcpy((char *)t->to + (size_t)i * bytes, parts[i], bytes);
    break;
  default: fold(t->to, parts, n, t->count, t->type, t->op);
  }
  free(parts);
}

// How long an operation may wait for another rank: TRI_DOUBLE_PATIENCE, 60 s.
static int patience_seconds(void)
{
  const char *text = getenv("TRI_DOUBLE_PATIENCE");
  return text == NULL ? 60 : atoi(text);
}

static void complain(const exchange *e)
{
  for (int i = 0; i < e->n_receives; i++) {
    const message *m = &e->receives[i];
    if (m->bytes == NULL)
      double_die("%s waits since %d s for rank %d of its communicator",
                 double_nccl_name(e->tasks[m->task].kind), patience_seconds(), m->rank);
  }
  double_die("NCCL: a message cannot be sent since %d s", patience_seconds());
}

static bool aborted(const exchange *e)
{
  for (int i = 0; i < e->n_tasks; i++)
    if (e->tasks[i].comm->aborted) return true;
  return false;
}

NO_RACES static bool step(void *body)
{
  exchange *e = body;
  int main_thread = 0;
  if (aborted(e)) return true;
  if (PMPI_Is_thread_main(&main_thread) != MPI_SUCCESS || !main_thread) return false;
  if (!e->posted) post(e);
  bool done = true;
  for (int i = 0; i < e->n_receives; i++)
    if (!take(e, i)) done = false;
  for (int i = 0; i < e->n_sends; i++) {
    int sent = 0;
    if (PMPI_Test(&e->sends[i].request, &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      double_die("MPI_Test failed");
    if (!sent) done = false;
  }
  if (!done) {
    if (time(NULL) - e->start > patience_seconds()) complain(e);
    return false;
  }
  int first = 0;
  for (int i = 0; i < e->n_tasks; i++) {
    const double_nccl_task *t = &e->tasks[i];
    if (t->kind == NCCL_SEND) continue;
    combine(e, i, first);
    first += t->kind == NCCL_RECV ? 1 : t->comm->n;
  }
  return true;
}

// After an abort a send may be under way for ever: its bytes stay.
static void release(void *body)
{
  exchange *e = body;
  for (int i = 0; i < e->n_sends; i++) {
    if (e->sends[i].request == MPI_REQUEST_NULL)
      free(e->sends[i].bytes);
    else
      (void)PMPI_Request_free(&e->sends[i].request);
  }
  for (int i = 0; i < e->n_receives; i++)
    free(e->receives[i].bytes);
  free(e->sends);
  free(e->receives);
  free(e);
}

double_work double_nccl_work(const double_nccl_task *tasks, int n)
{
  exchange *e = calloc(1, sizeof *e + (size_t)n * sizeof *tasks);
  if (e == NULL) double_die("out of host memory");
  e->n_tasks = n;
  memcpy(e->tasks, tasks, (size_t)n * sizeof *tasks);
  return (double_work){double_nccl_name(tasks[0].kind), step, release, e, true};
}
