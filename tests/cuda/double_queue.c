// Double of streams and events: queues of operations that run when the schedule says so.
//
// Nothing runs at its call unless the schedule is eager; a synchronization runs what it needs. In
// a ThreadSanitizer build each stream is a logical thread whose only order with others is that of
// events and synchronizations, so a missing one is a race whatever the schedule.
#include "doubles.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DOUBLE_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define DOUBLE_TSAN 1
#endif

#ifdef DOUBLE_TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
enum { NO_SYNC = 1, KEEP_DONE = 1 };
#else
enum { KEEP_DONE = 0 };
#define __tsan_acquire(address) ((void)(address))
#define __tsan_release(address) ((void)(address))
#endif

struct double_operation {
  double_work work;
  double_operation **needs; // operations of other streams that must be done before
  int n_needs, n_references;
  bool done;
  double_operation *next;
  cudaStream_t stream;
  char sync; // its address orders logical threads
};

struct CUstream_st {
  double_operation *head, *tail;
  double_operation *last; // the latest one queued, done or not
  unsigned flags;
  int device;
  bool live;
  void *fiber;
  char sync;
  double_graph *capture; // what is queued goes here instead
  cudaStream_t next;
};

struct CUevent_st {
  double_operation *marked;
  unsigned flags;
  bool live;
  bool captured; // recorded in a capture, not for those outside
  double milliseconds;
};

static enum { EAGER, LAZY, RANDOM } schedule;
static struct CUstream_st default_streams[DOUBLE_MAX_DEVICES];
static cudaStream_t streams; // every stream there ever was, the defaults included
static double clock_milliseconds;

static void add_stream(cudaStream_t stream)
{
  stream->live = true;
  stream->next = streams;
  streams = stream;
#ifdef DOUBLE_TSAN
  stream->fiber = __tsan_create_fiber(0);
#endif
}

void double_queue_start(void)
{
  const char *text = getenv("TRI_DOUBLE_SCHEDULE");
  if (text == NULL || strcmp(text, "eager") == 0)
    schedule = EAGER;
  else if (strcmp(text, "lazy") == 0)
    schedule = LAZY;
  else if (strcmp(text, "random") == 0)
    schedule = RANDOM;
  else
    double_die("TRI_DOUBLE_SCHEDULE=%s: wanted eager, lazy or random", text);
  for (int i = 0; i < DOUBLE_MAX_DEVICES; i++) {
    default_streams[i].device = i;
    add_stream(&default_streams[i]);
  }
}

static cudaStream_t stream_of(cudaStream_t stream)
{
  if (stream == NULL || stream == cudaStreamLegacy)
    return &default_streams[double_current_device()];
  if (stream == cudaStreamPerThread) double_die("the per-thread default stream is not modelled");
  if (!stream->live) double_die("use of a destroyed stream");
  return stream;
}

int double_stream_device(cudaStream_t stream)
{
  return stream_of(stream)->device;
}

static void release(double_operation *op)
{
  if (op == NULL || --op->n_references > 0) return;
  free(op->needs);
  free(op);
}

// The stream as a logical thread: what runs between these is its own. An operation without work (an
// event, a wait) passes on its order too.
static void *enter_stream(double_operation *op)
{
  void *host = NULL;
#ifdef DOUBLE_TSAN
  host = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(op->stream->fiber, NO_SYNC);
#endif
  __tsan_acquire(&op->sync);
  for (int i = 0; i < op->n_needs; i++)
    __tsan_acquire(&op->needs[i]->sync);
  return host;
}

static void leave_stream(double_operation *op, void *host)
{
  __tsan_release(&op->sync);
  __tsan_release(&op->stream->sync);
#ifdef DOUBLE_TSAN
  __tsan_switch_to_fiber(host, NO_SYNC);
#else
  (void)host;
#endif
}

// Runs the head of a queue; false when it waits for another process.
static bool run(double_operation *op)
{
  cudaStream_t stream = op->stream;
  const bool works = op->work.step != NULL && double_sticky_error() == cudaSuccess;
  bool finished = true;
  if (works && double_must_fail("async")) double_fail_device(cudaErrorLaunchFailure);
  void *host = enter_stream(op);
  if (works) {
    double_enter_device(op->work.what);
    finished = op->work.step(op->work.body);
    double_leave_device();
  }
  // In the stream's own logical thread: for the host this memory is still in use.
  if (finished && op->work.release != NULL) op->work.release(op->work.body);
  leave_stream(op, host);
  if (!finished) return false;
  if (works) double_count.operations++;
  op->done = true;
  for (int i = 0; i < op->n_needs; i++)
    release(op->needs[i]);
  op->n_needs = 0;
  stream->head = op->next;
  if (stream->head == NULL) stream->tail = NULL;
  release(op);
  return true;
}

// Runs what op needs, then op: lazy, nothing more. False when something waits for another process.
static bool advance(double_operation *op)
{
  while (!op->done) {
    double_operation *head = op->stream->head;
    for (int i = 0; i < head->n_needs; i++)
      if (!head->needs[i]->done && !advance(head->needs[i])) return false;
    if (!run(head)) return false;
  }
  return true;
}

static bool ready(const double_operation *op)
{
  if (op == NULL) return false;
  for (int i = 0; i < op->n_needs; i++)
    if (!op->needs[i]->done) return false;
  return true;
}

static bool run_random(void)
{
  uint64_t n = 0;
  for (cudaStream_t s = streams; s != NULL; s = s->next)
    n += ready(s->head);
  if (n == 0) return false;
  uint64_t chosen = double_random() % n;
  for (cudaStream_t s = streams; s != NULL; s = s->next)
    if (ready(s->head) && chosen-- == 0) return run(s->head);
  return false;
}

void double_progress(void)
{
  for (cudaStream_t s = streams; s != NULL; s = s->next) {
    double_operation *last = NULL;
    for (double_operation *op = s->head; op != NULL; op = op->next)
      if (op->work.collective) last = op;
    if (last == NULL) continue;
    last->n_references++;
    (void)advance(last);
    release(last);
  }
}

// The host waits for op.
static void complete(double_operation *op)
{
  op->n_references++;
  while (!op->done) {
    const bool moved = schedule == RANDOM ? run_random() : advance(op);
    if (op->done || moved) continue;
    double_progress(); // another process may wait for another collective of ours first
    double_pause();
  }
  __tsan_acquire(&op->sync);
  release(op);
}

static void drain(cudaStream_t stream)
{
  while (stream->tail != NULL)
    complete(stream->tail);
  __tsan_acquire(&stream->sync);
}

void double_drain_stream(cudaStream_t stream)
{
  drain(stream_of(stream));
}

void double_drain_device(int device)
{
  for (cudaStream_t s = streams; s != NULL; s = s->next)
    if (s->device == device) drain(s);
}

static void add_need(double_operation *op, double_operation *need)
{
  if (need == NULL || need == op || (need->done && !KEEP_DONE)) return;
  op->needs = realloc(op->needs, (size_t)(op->n_needs + 1) * sizeof(double_operation *));
  if (op->needs == NULL) double_die("out of host memory");
  op->needs[op->n_needs++] = need;
  need->n_references++;
}

// Queues work; the legacy default stream and the blocking streams of a device order each other.
static double_operation *push(cudaStream_t stream, double_work work)
{
  double_operation *op = calloc(1, sizeof *op);
  if (op == NULL) double_die("out of host memory");
  op->work = work;
  op->stream = stream;
  op->n_references = 2; // of the queue and of stream->last
  cudaStream_t legacy = &default_streams[stream->device];
  if (stream == legacy) {
    for (cudaStream_t s = streams; s != NULL; s = s->next)
      if (s->device == stream->device && (s->flags & cudaStreamNonBlocking) == 0)
        add_need(op, s->last);
  } else if ((stream->flags & cudaStreamNonBlocking) == 0) {
    add_need(op, legacy->last);
  }
  release(stream->last);
  stream->last = op;
  if (stream->tail == NULL)
    stream->head = op;
  else
    stream->tail->next = op;
  stream->tail = op;
  __tsan_release(&op->sync);
  return op;
}

// After each call: the schedule decides what runs now.
static void kick(void)
{
  if (schedule == EAGER)
    for (cudaStream_t s = streams; s != NULL; s = s->next)
      while (s->tail != NULL && advance(s->head))
        continue;
  while (schedule == RANDOM && double_random() % 3 == 0 && run_random())
    continue;
}

void double_enqueue(cudaStream_t stream, double_work work)
{
  cudaStream_t s = stream_of(stream);
  if (s->capture != NULL) {
    double_graph_add(s->capture, work, NULL);
    return;
  }
  (void)push(s, work);
  kick();
}

double_graph **double_stream_capture(cudaStream_t stream)
{
  return &stream_of(stream)->capture;
}

bool double_capture_forbids(cudaStream_t stream)
{
  cudaStream_t s = stream_of(stream);
  if (s->capture == NULL) return false;
  double_graph_spoil(s->capture);
  (void)double_set_error(cudaErrorStreamCaptureUnsupported);
  return true;
}

void double_enqueue_joint(const cudaStream_t *joined, int n, double_work work,
                          double_operation ***orders, int n_orders)
{
  cudaStream_t first = stream_of(joined[0]);
  for (int i = 0; i < n; i++)
    if (stream_of(joined[i])->capture != NULL) double_die("NCCL in a capture is not modelled");
  double_operation *op = push(first, work);
  for (int i = 0; i < n_orders; i++) {
    double_operation **slot = orders[i];
    add_need(op, *slot);
    release(*slot);
    *slot = op;
    op->n_references++;
  }
  for (int i = 1; i < n; i++) {
    cudaStream_t other = stream_of(joined[i]);
    if (other == first) continue;
    add_need(op, other->last);
    add_need(push(other, (double_work){.what = "join"}), op);
  }
  kick();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
  DOUBLE_ENTER(double_set_error(cudaErrorMemoryAllocation));
  if (double_sticky_error() != cudaSuccess) return double_sticky_error();
  if ((flags & ~(unsigned)cudaStreamNonBlocking) != 0 || priority > 0 || priority < -5)
    return double_set_error(cudaErrorInvalidValue);
  cudaStream_t stream = calloc(1, sizeof *stream);
  if (stream == NULL) return double_set_error(cudaErrorMemoryAllocation);
  stream->flags = flags;
  stream->device = double_current_device();
  add_stream(stream);
  double_own(DOUBLE_STREAM, 1);
  *out = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
  return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
  return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

// The work that is still queued runs on, as on a device; the handle is dead at once.
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidResourceHandle));
  if (stream == NULL) return double_set_error(cudaErrorInvalidResourceHandle);
  stream_of(stream)->live = false;
  double_own(DOUBLE_STREAM, -1);
  return double_set_error(double_sticky_error());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  DOUBLE_ENTER(double_set_error(cudaErrorLaunchFailure));
  if (double_capture_forbids(stream)) return cudaErrorStreamCaptureUnsupported;
  double_count.stream_synchronizations++;
  drain(stream_of(stream));
  return double_set_error(double_sticky_error());
}

// A device goes on by itself: whoever polls sees the end in the end.
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
  DOUBLE_ENTER(double_set_error(cudaErrorLaunchFailure));
  if (double_capture_forbids(stream)) return cudaErrorStreamCaptureUnsupported;
  cudaStream_t s = stream_of(stream);
  if (s->head != NULL) {
    (void)run_random();
    return double_set_error(cudaErrorNotReady);
  }
  __tsan_acquire(&s->sync);
  return double_set_error(double_sticky_error());
}

cudaError_t cudaDeviceSynchronize(void)
{
  DOUBLE_ENTER(double_set_error(cudaErrorLaunchFailure));
  double_count.device_synchronizations++;
  double_drain_device(double_current_device());
  return double_set_error(double_sticky_error());
}

static cudaEvent_t event_of(cudaEvent_t event)
{
  if (event == NULL || !event->live) double_die("use of a destroyed event");
  return event;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
  DOUBLE_ENTER(double_set_error(cudaErrorMemoryAllocation));
  if (double_sticky_error() != cudaSuccess) return double_sticky_error();
  cudaEvent_t event = calloc(1, sizeof *event);
  if (event == NULL) return double_set_error(cudaErrorMemoryAllocation);
  event->flags = flags;
  event->live = true;
  double_own(DOUBLE_EVENT, 1);
  *out = event;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidResourceHandle));
  event_of(event)->live = false;
  double_own(DOUBLE_EVENT, -1);
  return double_set_error(double_sticky_error());
}

static bool stamp(void *body)
{
  cudaEvent_t event = body;
#ifdef DOUBLE_TSAN
  clock_milliseconds += 1; // clock_gettime writes to the host's stack, which would be a race
#else
  struct timespec now = {0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  clock_milliseconds = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
#endif
  event->milliseconds = clock_milliseconds;
  return true;
}

void double_mark(cudaEvent_t event, cudaStream_t stream)
{
  const bool timed = (event->flags & cudaEventDisableTiming) == 0;
  release(event->marked);
  event->marked =
      push(stream_of(stream), (double_work){"event", timed ? stamp : NULL, NULL, event, false});
  event->marked->n_references++;
  kick();
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidResourceHandle));
  cudaEvent_t e = event_of(event);
  cudaStream_t s = stream_of(stream);
  if ((flags & ~(unsigned)cudaEventRecordExternal) != 0)
    return double_set_error(cudaErrorInvalidValue);
  if (s->capture != NULL) {
    e->captured = flags != cudaEventRecordExternal;
    if (!e->captured) double_graph_add(s->capture, (double_work){.what = "event"}, e);
    return double_set_error(double_sticky_error());
  }
  if (flags == cudaEventRecordExternal) return double_set_error(cudaErrorIllegalState);
  e->captured = false;
  double_mark(e, s);
  return double_set_error(double_sticky_error());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
  (void)flags;
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidResourceHandle));
  const cudaEvent_t e = event_of(event);
  cudaStream_t s = stream_of(stream);
  // A wait inside a capture for work outside, or the other way round.
  if (s->capture != NULL || e->captured) {
    if (s->capture != NULL) double_graph_spoil(s->capture);
    return double_set_error(cudaErrorStreamCaptureIsolation);
  }
  add_need(push(s, (double_work){.what = "wait"}), e->marked);
  kick();
  return double_set_error(double_sticky_error());
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  DOUBLE_ENTER(double_set_error(cudaErrorLaunchFailure));
  if (event_of(event)->captured) return double_set_error(cudaErrorCapturedEvent);
  double_count.stream_synchronizations++;
  if (event_of(event)->marked != NULL) complete(event->marked);
  return double_set_error(double_sticky_error());
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
  DOUBLE_ENTER(double_set_error(cudaErrorLaunchFailure));
  if (event_of(event)->captured) return double_set_error(cudaErrorCapturedEvent);
  double_operation *op = event_of(event)->marked;
  if (op != NULL && !op->done) {
    (void)run_random();
    return double_set_error(cudaErrorNotReady);
  }
  if (op != NULL) __tsan_acquire(&op->sync);
  return double_set_error(double_sticky_error());
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidResourceHandle));
  if (event_of(from)->marked == NULL || event_of(to)->marked == NULL ||
      ((from->flags | to->flags) & cudaEventDisableTiming) != 0)
    return double_set_error(cudaErrorInvalidResourceHandle);
  if (!from->marked->done || !to->marked->done) return double_set_error(cudaErrorNotReady);
  *milliseconds = (float)(to->milliseconds - from->milliseconds);
  return cudaSuccess;
}
