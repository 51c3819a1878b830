// What a backend provides: private to src/device. A device, stream, event or plan of a backend
// begins with these structures.
#pragma once

#include "trireme/device/device.h"
#include "trireme/device/fft.h"
#include "trireme/device/graph.h"

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
  // The shape is right; the backend sets work_bytes and its own fields.
  tri_status (*fft_create)(tri_device *device, const tri_fft_shape *shape, tri_fft **out);
  void (*fft_destroy)(tri_fft *fft);
  // batch > 0; the arrays are what tri_fft_execute asks for.
  tri_status (*fft_execute)(const tri_fft *fft, tri_stream *stream, void *out, void *in,
                            void *work);
  // NULL, all four, where the device does not record.
  tri_status (*graph_begin)(tri_stream *stream);
  tri_status (*graph_end)(tri_stream *stream, tri_graph **out);
  tri_status (*graph_launch)(tri_graph *graph, tri_stream *stream);
  void (*graph_destroy)(tri_graph *graph);
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

struct tri_graph {
  tri_device *device;
};

struct tri_fft {
  tri_device *device;
  tri_fft_shape shape;
  int64_t in_bytes, out_bytes; // from the first element of a side to behind its last
  size_t work_bytes;
};
