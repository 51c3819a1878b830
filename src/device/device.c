#include "trireme/device/device.h"

#include <string.h>

#include "device/cpu/cpu.h"
#include "device/device_operations.h"

tri_status tri_device_open(const char *name, const tri_device_options *options, tri_device **out)
{
  const tri_device_options defaults = {0};
  if (options == NULL) options = &defaults;
  if (strcmp(name, "cpu") == 0) {
    TRI_CALL(tri_cpu_open(options, out));
    return TRI_OK;
  }
  TRI_CHECK(strcmp(name, "cuda") != 0 && strncmp(name, "cuda:", 5) != 0, TRI_ERR_UNSUPPORTED,
            "device '%s' is not compiled in: ./configure --with-cuda and build again, or take "
            "device cpu",
            name);
  return TRI_ERROR(TRI_ERR_ARGUMENT, "no device is called '%s': there are cpu, cuda and cuda:N",
                   name);
}

void tri_device_close(tri_device **device)
{
  if (*device != NULL) (*device)->operations->close(*device);
  *device = NULL;
}

void tri_device_get_facts(const tri_device *device, tri_device_facts *out)
{
  device->operations->get_facts(device, out);
}

const tri_kernels *tri_device_kernels(const tri_device *device)
{
  return &device->kernels;
}

tri_status tri_device_alloc(tri_device *device, size_t size_bytes, void **out)
{
  TRI_CALL(device->operations->alloc(device, size_bytes, out));
  return TRI_OK;
}

void tri_device_free(tri_device *device, void **memory)
{
  if (*memory != NULL) device->operations->free(device, *memory);
  *memory = NULL;
}

tri_status tri_device_alloc_host(tri_device *device, size_t size_bytes, void **out)
{
  TRI_CALL(device->operations->alloc_host(device, size_bytes, out));
  return TRI_OK;
}

void tri_device_free_host(tri_device *device, void **memory)
{
  if (*memory != NULL) device->operations->free_host(device, *memory);
  *memory = NULL;
}

tri_status tri_stream_create(tri_device *device, tri_stream **out)
{
  TRI_CALL(device->operations->stream_create(device, out));
  return TRI_OK;
}

void tri_stream_destroy(tri_stream **stream)
{
  if (*stream != NULL) (*stream)->device->operations->stream_destroy(*stream);
  *stream = NULL;
}

tri_device *tri_stream_device(const tri_stream *stream)
{
  return stream->device;
}

tri_status tri_stream_synchronize(tri_stream *stream)
{
  TRI_CALL(stream->device->operations->stream_synchronize(stream));
  return TRI_OK;
}

tri_status tri_stream_copy_to_device(tri_stream *stream, void *device_to, const void *host_from,
                                     size_t size_bytes)
{
  TRI_CALL(stream->device->operations->copy_to_device(stream, device_to, host_from, size_bytes));
  return TRI_OK;
}

tri_status tri_stream_copy_to_host(tri_stream *stream, void *host_to, const void *device_from,
                                   size_t size_bytes)
{
  TRI_CALL(stream->device->operations->copy_to_host(stream, host_to, device_from, size_bytes));
  return TRI_OK;
}

tri_status tri_stream_copy_on_device(tri_stream *stream, void *device_to, const void *device_from,
                                     size_t size_bytes)
{
  TRI_CALL(stream->device->operations->copy_on_device(stream, device_to, device_from, size_bytes));
  return TRI_OK;
}

tri_status tri_event_create(tri_device *device, tri_event **out)
{
  TRI_CALL(device->operations->event_create(device, out));
  return TRI_OK;
}

void tri_event_destroy(tri_event **event)
{
  if (*event != NULL) (*event)->device->operations->event_destroy(*event);
  *event = NULL;
}

tri_status tri_event_record(tri_event *event, tri_stream *stream)
{
  TRI_CALL(event->device->operations->event_record(event, stream));
  return TRI_OK;
}

tri_status tri_event_wait(tri_event *event, tri_stream *stream)
{
  TRI_CALL(event->device->operations->event_wait(event, stream));
  return TRI_OK;
}

tri_status tri_event_synchronize(tri_event *event)
{
  TRI_CALL(event->device->operations->event_synchronize(event));
  return TRI_OK;
}

tri_status tri_event_query(tri_event *event, bool *done)
{
  TRI_CALL(event->device->operations->event_query(event, done));
  return TRI_OK;
}
