// Devices by name ("cpu", "cuda:1"), their memory, streams and events.
//
// The rules are CUDA's, on every backend: work is queued on a stream and runs in its order; nothing
// synchronizes but the calls that say so; a pointer from tri_device_alloc is touched only by
// kernels and copies, never by host code; a host pointer never goes where a device pointer is due.
// The CPU backend runs each call before it returns, which is one legal schedule, and its device
// memory happens to be host memory, which nobody above this floor may use.
//
// All functions are local. Handles belong to one thread at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/base/status.h"
#include "trireme/device/kernels.h"

typedef struct tri_device tri_device;
typedef struct tri_stream tri_stream;
typedef struct tri_event tri_event;

// What the job file says about the device; zero is the default of every field.
typedef struct tri_device_options {
  const char *
      isa; // CPU: "auto" (NULL), "avx512_bf16", "avx512", "avx2", "baseline": the widest set to use
  // CPU: "tuned" (NULL), "onednn": the linear layers are oneDNN's products, whose bits may depend
  // on n_threads (one isa per process), or "reference": the plain double-accumulating entries
  const char *kernels;
  int n_threads; // CPU: threads of this rank; 0: one for each processing unit the rank is bound to
} tri_device_options;

// What a device is, for headers and reports. Strings are borrowed from the device.
typedef struct tri_device_facts {
  const char *name;         // "cpu"
  const char *description;  // "AMD EPYC, avx2 kernels, 2 threads"
  const char *isa;          // instruction set in use, "avx2"
  int n_threads;            // host threads that kernels use; 1 where the device computes alone
  bool bf16_native;         // bf16 products run on the machine's own bf16 units
  bool host_memory;         // device pointers may be given to comm as they are
  size_t memory_bytes;      // memory in all
  size_t memory_free_bytes; // what can still be had
} tri_device_facts;

// A device that "KIND:N" can name, and what tells it from the others of its host.
enum { TRI_DEVICE_MAX_PLACES = 64, TRI_DEVICE_BUS_ID_BYTES = 32, TRI_DEVICE_UUID_BYTES = 16 };
typedef struct tri_device_place {
  char bus_id[TRI_DEVICE_BUS_ID_BYTES];      // of PCI, "0000:18:00.0"
  unsigned char uuid[TRI_DEVICE_UUID_BYTES]; // tells slices of one card apart
  char description[320];                     // "NVIDIA H200, sm_90, 139.8 GiB"
} tri_device_place;

// The devices of a kind ("cuda") that this process may use, in the order of their numbers, at most
// TRI_DEVICE_MAX_PLACES; *n is 0 for a kind that is not numbered ("cpu"). Makes no device ready.
// TRI_ERR_UNSUPPORTED when there is none, or the kind is not compiled in.
TRI_MUST_CHECK tri_status tri_device_list(const char *kind, tri_device_place *places, int *n);

// Whether a kind is compiled in.
bool tri_device_built(const char *kind);

// Opens the device `name`; `options` NULL is all defaults. TRI_ERR_UNSUPPORTED names the configure
// option or key when it is not compiled in or this machine cannot do what the options ask for:
// there is no fallback. *out is owned, release with tri_device_close.
TRI_MUST_CHECK tri_status tri_device_open(const char *name, const tri_device_options *options,
                                          tri_device **out);
void tri_device_close(tri_device **device);

void tri_device_get_facts(const tri_device *device, tri_device_facts *out);

// The kernel table of this device; borrowed, lives as long as the device.
const tri_kernels *tri_device_kernels(const tri_device *device);

// Device memory, aligned to 256 bytes, not initialized (debug builds fill it with 0xff, a NaN in
// every type). TRI_ERR_MEMORY names the bytes wanted and free. size_bytes 0 gives a pointer that
// may be freed and not touched.
TRI_MUST_CHECK tri_status tri_device_alloc(tri_device *device, size_t size_bytes, void **out);
void tri_device_free(tri_device *device, void **memory);

// Host memory that copies can run from and to without blocking (pinned on CUDA), aligned to 256
// bytes.
TRI_MUST_CHECK tri_status tri_device_alloc_host(tri_device *device, size_t size_bytes, void **out);
void tri_device_free_host(tri_device *device, void **memory);

TRI_MUST_CHECK tri_status tri_stream_create(tri_device *device, tri_stream **out);
void tri_stream_destroy(tri_stream **stream);
tri_device *tri_stream_device(const tri_stream *stream);

// Waits until all work queued so far is done; reports errors of that work.
TRI_MUST_CHECK tri_status tri_stream_synchronize(tri_stream *stream);

// Queued copies. A host buffer must stay untouched until the stream has passed the copy.
TRI_MUST_CHECK tri_status tri_stream_copy_to_device(tri_stream *stream, void *device_to,
                                                    const void *host_from, size_t size_bytes);
TRI_MUST_CHECK tri_status tri_stream_copy_to_host(tri_stream *stream, void *host_to,
                                                  const void *device_from, size_t size_bytes);
TRI_MUST_CHECK tri_status tri_stream_copy_on_device(tri_stream *stream, void *device_to,
                                                    const void *device_from, size_t size_bytes);

TRI_MUST_CHECK tri_status tri_event_create(tri_device *device, tri_event **out);
void tri_event_destroy(tri_event **event);
// Marks the work queued on `stream` so far.
TRI_MUST_CHECK tri_status tri_event_record(tri_event *event, tri_stream *stream);
// Later work of `stream` starts only after the marked work is done.
TRI_MUST_CHECK tri_status tri_event_wait(tri_event *event, tri_stream *stream);
TRI_MUST_CHECK tri_status tri_event_synchronize(tri_event *event);
TRI_MUST_CHECK tri_status tri_event_query(tri_event *event, bool *done);
