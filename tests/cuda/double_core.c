// Doubles: the lock, failure injection, errors that stick, counters and leaks.
#include "doubles.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_MISUSE = 78, EXIT_LEAK = 79, MAX_FAILURES = 8 };

double_counters double_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;
static int owned[DOUBLE_N_RESOURCES];
static uint64_t random_state;
static cudaError_t sticky;
static _Thread_local cudaError_t last_error;
static _Thread_local const char *unchecked_kernel;

static struct failure {
  char call[64];
  long nth, seen;
} failures[MAX_FAILURES];
static int n_failures;

static const char *const resource_names[DOUBLE_N_RESOURCES] = {
    "streams", "events",     "device buffers", "pinned buffers", "registrations",
    "graphs",  "Lt handles", "Lt descriptors", "FFT plans",      "NCCL communicators",
};

void double_die(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  fputs("CUDA double: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  fflush(stderr);
  _exit(EXIT_MISUSE);
}

static void print_counters(void)
{
  const double_counters *c = &double_count;
  fprintf(stderr,
          "CUDA doubles: %llu operations, %llu kernels, %llu matmuls, %llu ffts, %llu nccl, "
          "%llu graph launches, %llu allocations, %llu device and %llu stream synchronizations\n",
          (unsigned long long)c->operations, (unsigned long long)c->kernels,
          (unsigned long long)c->matmuls, (unsigned long long)c->ffts,
          (unsigned long long)c->nccl_operations, (unsigned long long)c->graph_launches,
          (unsigned long long)c->allocations, (unsigned long long)c->device_synchronizations,
          (unsigned long long)c->stream_synchronizations);
}

// A process that failed already has said why; only one that ends well is asked for its leaks.
static void at_exit(int status, void *unused)
{
  (void)unused;
  const char *wanted = getenv("TRI_DOUBLE_COUNTERS");
  if (wanted != NULL && strcmp(wanted, "1") == 0) print_counters();
  if (status != 0) return;
  if (unchecked_kernel != NULL)
    double_die("nobody asked for the error of the launch of %s", unchecked_kernel);
  bool leaked = false;
  for (int i = 0; i < DOUBLE_N_RESOURCES; i++) {
    if (owned[i] == 0) continue;
    fprintf(stderr, "CUDA double: leak: %d %s were never released\n", owned[i], resource_names[i]);
    leaked = true;
  }
  if (!leaked) return;
  fflush(NULL);
  _exit(EXIT_LEAK);
}

static void read_failures(void)
{
  const char *text = getenv("TRI_DOUBLE_FAIL");
  while (text != NULL && *text != '\0') {
    struct failure *f = &failures[n_failures];
    if (n_failures == MAX_FAILURES || sscanf(text, "%63[^:]:%ld", f->call, &f->nth) != 2)
      double_die("TRI_DOUBLE_FAIL: cannot read '%s', wanted CALL:N[,CALL:N]", text);
    n_failures++;
    text = strchr(text, ',');
    if (text != NULL) text++;
  }
}

static void start(void)
{
  started = true;
  const char *seed = getenv("TRI_DOUBLE_SEED");
  random_state = (seed == NULL ? 1 : strtoull(seed, NULL, 10)) * 2654435761u + 1;
  read_failures();
  double_memory_start();
  double_queue_start();
  if (on_exit(at_exit, NULL) != 0) double_die("on_exit failed");
}

static bool may_follow_launch(const char *call)
{
  return strcmp(call, "cudaGetLastError") == 0 || strcmp(call, "cudaPeekAtLastError") == 0 ||
         strcmp(call, "emu_enqueue_kernel") == 0 || strncmp(call, "cudaFuncSet", 11) == 0 ||
         strncmp(call, "cudaOccupancy", 13) == 0;
}

const char *double_enter(const char *call)
{
  if (pthread_mutex_lock(&lock) != 0) double_die("cannot take the lock");
  if (!started) start();
  const char *hanging = getenv("TRI_DOUBLE_HANG");
  while (hanging != NULL && strcmp(hanging, call) == 0)
    (void)pause();
  if (unchecked_kernel != NULL && !may_follow_launch(call))
    double_die("%s before anybody asked for the error of the launch of %s (cudaGetLastError)", call,
               unchecked_kernel);
  return call;
}

void double_leave(const char **call)
{
  (void)call;
  if (pthread_mutex_unlock(&lock) != 0) double_die("cannot release the lock");
}

void double_pause(void)
{
  const char *none = NULL;
  double_leave(&none);
  (void)sched_yield();
  if (pthread_mutex_lock(&lock) != 0) double_die("cannot take the lock");
}

bool double_must_fail(const char *call)
{
  bool fails = false;
  for (int i = 0; i < n_failures; i++)
    if (strcmp(failures[i].call, call) == 0 && ++failures[i].seen == failures[i].nth) fails = true;
  return fails;
}

void double_own(double_resource resource, int change)
{
  owned[resource] += change;
}

uint64_t double_random(void)
{
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state >> 11;
}

uint64_t double_device_synchronizations(void)
{
  return double_count.device_synchronizations;
}

cudaError_t double_set_error(cudaError_t error)
{
  if (error != cudaSuccess) last_error = error;
  return error;
}

void double_launched(const char *kernel)
{
  unchecked_kernel = kernel;
}

cudaError_t double_sticky_error(void)
{
  return sticky;
}

void double_fail_device(cudaError_t error)
{
  sticky = error;
}

cudaError_t cudaGetLastError(void)
{
  DOUBLE_ENTER(cudaErrorLaunchFailure);
  unchecked_kernel = NULL;
  const cudaError_t error = sticky != cudaSuccess ? sticky : last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void)
{
  DOUBLE_ENTER(cudaErrorLaunchFailure);
  unchecked_kernel = NULL;
  return sticky != cudaSuccess ? sticky : last_error;
}
