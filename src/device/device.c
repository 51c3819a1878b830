#include "trireme/device/device.h"

#include <string.h>

#include "device/backends.h"
#include "device/device_operations.h"

// The backend of a device name, and what follows the colon (NULL without one).
static tri_status find_backend(const char *name, const tri_backend **out, const char **number)
{
  const char *colon = strchr(name, ':');
  const size_t n = colon == NULL ? strlen(name) : (size_t)(colon - name);
  for (const tri_backend *backend = tri_backends; backend->kind != NULL; backend++) {
    if (strlen(backend->kind) != n || strncmp(backend->kind, name, n) != 0) continue;
    TRI_CHECK(colon == NULL || backend->list != NULL, TRI_ERR_ARGUMENT,
              "device '%s': a %s has no number", name, backend->kind);
    *out = backend;
    *number = colon == NULL ? NULL : colon + 1;
    return TRI_OK;
  }
  TRI_CHECK(n != strlen("cuda") || strncmp(name, "cuda", n) != 0, TRI_ERR_UNSUPPORTED,
            "device '%s' is not compiled in: ./configure --with-cuda and build again, or take "
            "device cpu",
            name);
  return TRI_ERROR(TRI_ERR_ARGUMENT, "no device is called '%s': there are cpu, cuda and cuda:N",
                   name);
}

bool tri_device_built(const char *kind)
{
  const tri_backend *backend = tri_backends;
  while (backend->kind != NULL && strcmp(backend->kind, kind) != 0)
    backend++;
  return backend->kind != NULL;
}

tri_status tri_device_list(const char *kind, tri_device_place *places, int *n)
{
  const tri_backend *backend = NULL;
  const char *number = NULL;
  TRI_CALL(find_backend(kind, &backend, &number));
  *n = 0;
  if (backend->list != NULL) TRI_CALL(backend->list(places, n));
  return TRI_OK;
}

tri_status tri_device_open(const char *name, const tri_device_options *options, tri_device **out)
{
  const tri_device_options defaults = {0};
  const tri_backend *backend = NULL;
  const char *number = NULL;
  TRI_CALL(find_backend(name, &backend, &number));
  TRI_CALL(backend->open(number, options == NULL ? &defaults : options, out));
  return TRI_OK;
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
