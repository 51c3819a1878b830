// What a backend provides: private to src/device. A device, stream or event of a backend begins
// with these structures.
#pragma once

#include "trireme/device/device.h"

typedef struct tri_device_operations {
  void (*close)(tri_device *device);
  void (*get_facts)(const tri_device *device, tri_device_facts *out);
  tri_status (*alloc)(tri_device *device, size_t size_bytes, void **out);
  void (*free)(tri_device *device, void *memory);
  tri_status (*alloc_host)(tri_device *device, size_t size_bytes, void **out);
  void (*free_host)(tri_device *device, void *memory);
  tri_status (*stream_create)(tri_device *device, tri_stream **out);
  void (*stream_destroy)(tri_stream *stream);
  tri_status (*stream_synchronize)(tri_stream *stream);
  tri_status (*copy_to_device)(tri_stream *stream, void *to, const void *from, size_t size_bytes);
  tri_status (*copy_to_host)(tri_stream *stream, void *to, const void *from, size_t size_bytes);
  tri_status (*copy_on_device)(tri_stream *stream, void *to, const void *from, size_t size_bytes);
  tri_status (*event_create)(tri_device *device, tri_event **out);
  void (*event_destroy)(tri_event *event);
  tri_status (*event_record)(tri_event *event, tri_stream *stream);
  tri_status (*event_wait)(tri_event *event, tri_stream *stream);
  tri_status (*event_synchronize)(tri_event *event);
  tri_status (*event_query)(tri_event *event, bool *done);
} tri_device_operations;

struct tri_device {
  const tri_device_operations *operations;
  tri_kernels kernels;
};

struct tri_stream {
  tri_device *device;
};

struct tri_event {
  tri_device *device;
};
