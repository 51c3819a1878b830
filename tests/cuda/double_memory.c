// Double of device memory: a registry of allocations whose pages the host cannot touch.
//
// Every allocation ends at the end of its pages (but for rounding to 256 bytes) and is followed by
// an inaccessible page, so that the first element behind it faults. Freed ranges are never used
// again. While no device code runs, all pages are inaccessible; device code opens an allocation by
// its first fault, and it closes when the operation ends: a cost for what is touched, not for all.
#define _GNU_SOURCE
#include "doubles.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DOUBLE_TSAN 1
#elif __has_feature(address_sanitizer)
#define DOUBLE_ASAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define DOUBLE_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define DOUBLE_ASAN 1
#endif

#ifdef DOUBLE_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#endif
#ifdef DOUBLE_TSAN
enum { ARENA_BITS = 34 };
#else
enum { ARENA_BITS = 40 };
#endif

enum { PAGE = 4096, ALIGNMENT = 256, MAX_OPEN = 4096 };

typedef struct allocation {
  char *pages, *start; // start >= pages; pages of the host side are not ours to protect
  size_t page_bytes, size;
  double_resource kind;
  int device, id;
  bool live, open;
} allocation;

typedef struct list {
  allocation *items;
  int n, capacity;
} list;

static list device_list, host_list; // the first is sorted by address
static char *arena, *arena_top;
static size_t used_bytes[DOUBLE_MAX_DEVICES];
static bool protect = true;
static const char *running; // the operation that device code runs in
static int open_items[MAX_OPEN], n_open;
static struct sigaction earlier_action;

static size_t round_up(size_t n, size_t unit)
{
  return (n + unit - 1) / unit * unit;
}

// The last allocation that starts at or below `p`, or NULL.
static allocation *device_below(const void *p)
{
  int low = 0, high = device_list.n;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (device_list.items[middle].pages <= (const char *)p)
      low = middle + 1;
    else
      high = middle;
  }
  return low == 0 ? NULL : &device_list.items[low - 1];
}

static bool in_arena(const void *p)
{
  return arena != NULL && (const char *)p >= arena && (const char *)p < arena_top;
}

static allocation *host_find(const void *p)
{
  for (int i = host_list.n - 1; i >= 0; i--) {
    allocation *a = &host_list.items[i];
    if ((const char *)p >= a->start && (const char *)p < a->start + a->size) return a;
  }
  return NULL;
}

static void set_pages(const allocation *a, int rights)
{
  if (mprotect(a->pages, a->page_bytes, rights) != 0) double_die("mprotect failed");
}

// Explains a fault in device memory, or opens the allocation to the device code that runs.
static void explain_fault(char *p)
{
  allocation *a = device_below(p);
  const char *who = running == NULL ? "the host" : running;
  if (a == NULL) double_die("%s touches %p, below all device memory", who, (void *)p);
  const long long offset = (long long)(p - a->start);
  if (!a->live)
    double_die("%s touches device buffer #%d of %zu bytes at offset %lld after cudaFree", who,
               a->id, a->size, offset);
  if (p >= a->pages + a->page_bytes)
    double_die("%s overruns device buffer #%d of %zu bytes: it touches offset %lld", who, a->id,
               a->size, offset);
  if (running == NULL)
    double_die("the host dereferences a device pointer: buffer #%d of %zu bytes, offset %lld",
               a->id, a->size, offset);
  if (a->open || n_open == MAX_OPEN) double_die("%s: cannot open device buffer #%d", who, a->id);
  set_pages(a, PROT_READ | PROT_WRITE);
  a->open = true;
  open_items[n_open++] = (int)(a - device_list.items);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
  (void)context;
  if (in_arena(info->si_addr)) {
    explain_fault(info->si_addr);
    return;
  }
  if (sigaction(number, &earlier_action, NULL) != 0) _Exit(1); // faults again, into the former
}

void double_memory_start(void)
{
  const char *text = getenv("TRI_DOUBLE_PROTECT");
  protect = text == NULL || strcmp(text, "0") != 0;
#ifdef DOUBLE_TSAN
  protect = false; // it reports the race with the host anyway, and delays signals
#endif
  arena = mmap(NULL, (size_t)1 << ARENA_BITS, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) double_die("cannot reserve %zu bytes", (size_t)1 << ARENA_BITS);
  arena_top = arena;
  if (!protect) return;
  static char stack[1 << 16];
  stack_t old = {0};
  if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE) != 0) {
    const stack_t ours = {.ss_sp = stack, .ss_size = sizeof stack};
    if (sigaltstack(&ours, NULL) != 0) double_die("sigaltstack failed");
  }
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  if (sigaction(SIGSEGV, &action, &earlier_action) != 0) double_die("sigaction failed");
}

void double_enter_device(const char *what)
{
  running = what;
}

#ifdef DOUBLE_ASAN
static void check_edges(allocation *a)
{
  (void)a; // the sanitizer sees the first byte outside
}
#else
static void check_edges(allocation *a)
{
  const char *end = a->pages + a->page_bytes;
  const char *low = a->start - a->pages < ALIGNMENT ? a->pages : a->start - ALIGNMENT;
  if (low == a->start) low = a->start + a->size; // the array fills its first page from the start
  for (const char *p = low; p < end; p = p + 1 == a->start ? a->start + a->size : p + 1)
    if (*(const unsigned char *)p != 0xff)
      double_die("%s wrote outside device buffer #%d of %zu bytes, at offset %lld",
                 running == NULL ? "device code" : running, a->id, a->size,
                 (long long)(p - a->start));
}
#endif

void double_leave_device(void)
{
  for (int i = 0; i < n_open; i++) {
    allocation *a = &device_list.items[open_items[i]];
    check_edges(a);
    set_pages(a, PROT_NONE);
    a->open = false;
  }
  n_open = 0;
  running = NULL;
}

static allocation *append(list *to, allocation a)
{
  if (to->n == to->capacity) {
    to->capacity = to->capacity == 0 ? 64 : 2 * to->capacity;
    to->items = realloc(to->items, (size_t)to->capacity * sizeof *to->items);
    if (to->items == NULL) double_die("out of host memory");
  }
  a.id = to->n + 1;
  a.live = true;
  to->items[to->n] = a;
  double_own(a.kind, 1);
  return &to->items[to->n++];
}

void double_check_device(const void *start, size_t size, int device, const char *what)
{
  if (!in_arena(start))
    double_die("%s: %p is not a device pointer%s", what, start,
               host_find(start) != NULL ? " but pinned host memory" : "");
  const allocation *a = device_below(start);
  const char *p = start;
  if (!a->live) double_die("%s: %p lies in device buffer #%d, freed before", what, start, a->id);
  if (p < a->start || p > a->start + a->size || size > (size_t)(a->start + a->size - p))
    double_die("%s: %zu bytes at offset %lld overrun device buffer #%d of %zu bytes", what, size,
               (long long)(p - a->start), a->id, a->size);
  if (a->device != device)
    double_die("%s: device buffer #%d belongs to device %d, the work runs on device %d", what,
               a->id, a->device, device);
}

bool double_is_device(const void *start)
{
  return in_arena(start);
}

bool double_is_pinned(const void *start, size_t size)
{
  const allocation *a = host_find(start);
  return a != NULL && (const char *)start + size <= a->start + a->size;
}

cudaError_t cudaMalloc(void **out, size_t size)
{
  DOUBLE_ENTER(double_set_error(cudaErrorMemoryAllocation));
  if (double_sticky_error() != cudaSuccess) return double_sticky_error();
  if (out == NULL) return double_set_error(cudaErrorInvalidValue);
  *out = NULL;
  if (size == 0) return cudaSuccess;
  const int device = double_current_device();
  if (size > double_memory_bytes() - used_bytes[device])
    return double_set_error(cudaErrorMemoryAllocation);
  const size_t page_bytes = round_up(size, PAGE);
  if (arena_top + page_bytes + PAGE > arena + ((size_t)1 << ARENA_BITS))
    double_die("the range of addresses is used up");
  allocation a = {.pages = arena_top,
                  .start = arena_top + page_bytes - round_up(size, ALIGNMENT),
                  .page_bytes = page_bytes,
                  .size = size,
                  .kind = DOUBLE_DEVICE_MEMORY,
                  .device = device};
  arena_top += page_bytes + PAGE;
  set_pages(&a, PROT_READ | PROT_WRITE);
  memset(a.pages, 0xff, page_bytes);
  ASAN_POISON_MEMORY_REGION(a.pages, (size_t)(a.start - a.pages));
  ASAN_POISON_MEMORY_REGION(a.start + size, (size_t)(a.pages + page_bytes + PAGE - a.start) - size);
  if (protect) set_pages(&a, PROT_NONE);
  used_bytes[device] += size;
  double_count.allocations++;
  *out = append(&device_list, a)->start;
  return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  if (memory == NULL) return cudaSuccess;
  allocation *a = in_arena(memory) ? device_below(memory) : NULL;
  if (a == NULL || a->start != memory) double_die("cudaFree: %p is no device buffer", memory);
  if (!a->live) double_die("cudaFree: device buffer #%d is freed twice", a->id);
  double_count.device_synchronizations++;
  double_drain_device(a->device);
  set_pages(a, PROT_READ | PROT_WRITE);
  check_edges(a);
  ASAN_UNPOISON_MEMORY_REGION(a->pages, a->page_bytes);
  if (madvise(a->pages, a->page_bytes, MADV_DONTNEED) != 0) double_die("madvise failed");
  set_pages(a, PROT_NONE);
  a->live = false;
  used_bytes[a->device] -= a->size;
  double_own(DOUBLE_DEVICE_MEMORY, -1);
  return double_set_error(double_sticky_error());
}

cudaError_t cudaMallocHost(void **out, size_t size)
{
  DOUBLE_ENTER(double_set_error(cudaErrorMemoryAllocation));
  *out = NULL;
  if (size == 0) return cudaSuccess;
  char *start = aligned_alloc(PAGE, round_up(size, PAGE));
  if (start == NULL) return double_set_error(cudaErrorMemoryAllocation);
  memset(start, 0xff, size);
  append(&host_list, (allocation){.start = start, .size = size, .kind = DOUBLE_PINNED_MEMORY});
  *out = start;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags)
{
  if ((flags & ~(unsigned)(cudaHostAllocPortable | cudaHostAllocWriteCombined)) != 0)
    double_die("cudaHostAlloc: flags %#x are not modelled", flags);
  return cudaMallocHost(out, size);
}

static void forget_host(allocation *a)
{
  double_own(a->kind, -1);
  *a = host_list.items[--host_list.n];
}

cudaError_t cudaFreeHost(void *memory)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  if (memory == NULL) return cudaSuccess;
  allocation *a = host_find(memory);
  if (a == NULL || a->start != memory || a->kind != DOUBLE_PINNED_MEMORY)
    double_die("cudaFreeHost: %p is no pinned buffer", memory);
  double_count.device_synchronizations++;
  for (int device = 0; device < DOUBLE_MAX_DEVICES; device++)
    double_drain_device(device);
  forget_host(a);
  free(memory);
  return double_set_error(double_sticky_error());
}

cudaError_t cudaHostRegister(void *memory, size_t size, unsigned flags)
{
  (void)flags;
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  if (memory == NULL || size == 0 || double_is_device(memory))
    return double_set_error(cudaErrorInvalidValue);
  if (host_find(memory) != NULL) return double_set_error(cudaErrorHostMemoryAlreadyRegistered);
  append(&host_list, (allocation){.start = memory, .size = size, .kind = DOUBLE_REGISTRATION});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  allocation *a = host_find(memory);
  if (a == NULL || a->start != memory || a->kind != DOUBLE_REGISTRATION)
    return double_set_error(cudaErrorHostMemoryNotRegistered);
  for (int device = 0; device < DOUBLE_MAX_DEVICES; device++)
    double_drain_device(device);
  forget_host(a);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  *total_bytes = double_memory_bytes();
  *free_bytes = *total_bytes - used_bytes[double_current_device()];
  return double_set_error(double_sticky_error());
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *pointer)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  *out = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered};
  if (in_arena(pointer)) {
    out->type = cudaMemoryTypeDevice;
    out->device = device_below(pointer)->device;
    out->devicePointer = (void *)pointer;
  } else if (host_find(pointer) != NULL) {
    out->type = cudaMemoryTypeHost;
    out->hostPointer = (void *)pointer;
  }
  return cudaSuccess;
}
