// Doubles of NVIDIA's libraries for tests without a GPU: what their files share.
//
// Device memory is host memory in a reserved range; streams are queues whose operations run when
// the schedule says so; libraries queue closures that compute with host libraries. The doubles are
// strict: a misuse that a GPU would punish late, or silently survive, ends the process at the call
// with a message and exit code 78. Leaks end it with 79.
//
// Environment:
//   TRI_DOUBLE_SCHEDULE   eager (as soon as possible), lazy (as late as possible), random
//   TRI_DOUBLE_SEED       of the random schedule
//   TRI_DOUBLE_MEMORY_MIB memory of a device (8192)
//   TRI_DOUBLE_DEVICES    devices (1); 0: cudaErrorNoDevice; none: no driver
//   TRI_DOUBLE_CAPABILITY compute capability times ten (90)
//   TRI_DOUBLE_PROTECT    0: device memory stays readable to the host
//   TRI_DOUBLE_FAIL       CALL:N[,CALL:N]: the N-th call of that name fails; "async:N": the N-th
//                         operation a device runs fails, and the device with it
//   TRI_DOUBLE_HANG       CALL: never returns
//   TRI_DOUBLE_PATIENCE   seconds an NCCL operation waits for another rank (60)
//   TRI_DOUBLE_COUNTERS   1: prints the counters at exit
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DOUBLE_MAX_DEVICES = 8 };

// --- the whole (double_core.c)

typedef enum double_resource {
  DOUBLE_STREAM,
  DOUBLE_EVENT,
  DOUBLE_DEVICE_MEMORY,
  DOUBLE_PINNED_MEMORY,
  DOUBLE_REGISTRATION,
  DOUBLE_GRAPH,
  DOUBLE_LT_HANDLE,
  DOUBLE_LT_DESCRIPTOR,
  DOUBLE_FFT_PLAN,
  DOUBLE_NCCL_COMM,
  DOUBLE_N_RESOURCES
} double_resource;

typedef struct double_counters {
  uint64_t operations;      // that ran on a device
  uint64_t kernels;         // launches
  uint64_t matmuls, ffts;   // queued
  uint64_t nccl_operations; // queued
  uint64_t graph_launches;
  uint64_t allocations;             // cudaMalloc
  uint64_t device_synchronizations; // the host waited for a whole device, cudaFree's wait included
  uint64_t stream_synchronizations; // the host waited for one stream or event
} double_counters;

extern double_counters double_count;
// What a test asks for: waits for a whole device so far.
uint64_t double_device_synchronizations(void);

// Ends the process: misuse.
void double_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

// Every call of a double holds the one lock from its first line to its return.
const char *double_enter(const char *call);
void double_leave(const char **call);
bool double_must_fail(const char *call); // TRI_DOUBLE_FAIL names this call
#define DOUBLE_ENTER(failure) \
  __attribute__((cleanup(double_leave))) const char *entered_ = double_enter(__func__); \
  if (double_must_fail(entered_)) return (failure)

// Something was made (+1) or released (-1); what is left at exit is a leak.
void double_own(double_resource resource, int change);

uint64_t double_random(void);

// The error of the calling thread, as cudaGetLastError knows it; returns it.
cudaError_t double_set_error(cudaError_t error);
// A kernel was launched: somebody has to ask for the last error before the next call.
void double_launched(const char *kernel);
// The device has failed for good: every later call says so.
cudaError_t double_sticky_error(void);
void double_fail_device(cudaError_t error);

int double_current_device(void);
int double_compute_capability(void);
size_t double_memory_bytes(void);
// Whether some kernel may be launched with this much dynamic shared memory.
bool double_shared_allowed(size_t shared_bytes);

// --- memory (double_memory.c)

// Dies unless [start, start + size) lies in one living allocation of `device`.
void double_check_device(const void *start, size_t size, int device, const char *what);
// Whether a copy may read or write [start, start + size) while the host goes on.
bool double_is_pinned(const void *start, size_t size);
bool double_is_device(const void *start);
// Device code runs between these, in operation `what`.
void double_enter_device(const char *what);
void double_leave_device(void);

// --- queues (double_queue.c)

// Work for a stream. step returns whether the work is done: one that waits for another process says
// no and is called again. release frees the body once it is not needed any more.
typedef struct double_work {
  const char *what;
  bool (*step)(void *body);
  void (*release)(void *body);
  void *body;
  bool collective; // waits for other processes
} double_work;

typedef struct double_operation double_operation;
typedef struct double_graph double_graph;

void double_enqueue(cudaStream_t stream, double_work work);
// One operation that is next in all n streams at once, after every **orders, which it becomes.
void double_enqueue_joint(const cudaStream_t *streams, int n, double_work work,
                          double_operation ***orders, int n_orders);
// Device on which the stream's work runs. NULL is the legacy default stream of the current device.
int double_stream_device(cudaStream_t stream);
// Runs what other processes may wait for; never waits itself.
void double_progress(void);
void double_drain_stream(cudaStream_t stream);
void double_drain_device(int device);
// Marks the stream's work so far by an event.
void double_mark(cudaEvent_t event, cudaStream_t stream);
// Where a stream's capture is kept: NULL when there is none.
double_graph **double_stream_capture(cudaStream_t stream);
// A call that a capture of this stream does not survive: true, with the error set, while there is
// one.
bool double_capture_forbids(cudaStream_t stream);
// Lets another thread or process run between two tries.
void double_pause(void);
void double_queue_start(void);
void double_memory_start(void);

// --- graphs (double_graph.c)

// What a capture records: work, or the record of an event (then work has no step).
void double_graph_add(double_graph *graph, double_work work, cudaEvent_t event);
// The capture will fail at its end.
void double_graph_spoil(double_graph *graph);

#ifdef __cplusplus
}
#endif
