// Memory, streams, events and copies of a CUDA device.
#include "device/cuda/cuda.h"
#include "trireme/base/memory.h"
#include "trireme/device/cuda.h"

static const size_t ALIGNMENT = 256;

static tri_cuda_stream *stream_of(tri_stream *stream)
{
  return (tri_cuda_stream *)stream;
}

static cudaStream_t native(const tri_stream *stream)
{
  return tri_cuda_launch(stream)->stream;
}

void *tri_cuda_native_stream(const tri_stream *stream)
{
  return native(stream);
}

// For what cannot report an error, and must leave alone the text of the one that led here: a device
// that has failed says so at the next call that can.
static void select_quietly(const tri_device *device)
{
  if (cudaSetDevice(tri_cuda_ordinal(device)) != cudaSuccess) (void)cudaGetLastError();
}

static void cuda_close(tri_device *device)
{
  tri_cuda_products_destroy(&tri_cuda_device_of(device)->products);
  tri_free(device);
}

static void cuda_get_facts(const tri_device *device, tri_device_facts *out)
{
  const tri_cuda_device *cuda = (const tri_cuda_device *)device;
  *out = (tri_device_facts){.name = "cuda",
                            .description = cuda->description,
                            .isa = cuda->isa,
                            .n_threads = 1,
                            .bf16_native = cuda->compute_capability >= 80};
  select_quietly(device);
  if (cudaMemGetInfo(&out->memory_free_bytes, &out->memory_bytes) != cudaSuccess)
    (void)cudaGetLastError();
}

// --- memory

static size_t padded(size_t size_bytes)
{
  return size_bytes == 0 ? ALIGNMENT : (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static tri_status cuda_alloc(tri_device *device, size_t size_bytes, void **out)
{
  size_t free_bytes = 0, total_bytes = 0;
  void *memory = NULL;
  TRI_CALL(tri_cuda_select(device));
  TRI_CALL_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  const cudaError_t error = cudaMalloc(&memory, padded(size_bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return TRI_ERROR(TRI_ERR_MEMORY,
                     "%zu bytes wanted, %zu of %zu bytes free on %s: make the model or the "
                     "micro-batch smaller, use more ranks, or see what else runs on the device",
                     size_bytes, free_bytes, total_bytes, tri_cuda_device_of(device)->description);
  }
  TRI_CALL_CUDA(error);
#ifdef TRI_DEBUG
  TRI_CALL_CUDA(cudaMemset(memory, 0xff, padded(size_bytes)));
#endif
  *out = memory;
  return TRI_OK;
}

static void cuda_free(tri_device *device, void *memory)
{
  select_quietly(device);
  if (cudaFree(memory) != cudaSuccess) (void)cudaGetLastError();
}

static tri_status cuda_alloc_host(tri_device *device, size_t size_bytes, void **out)
{
  void *memory = NULL;
  TRI_CALL(tri_cuda_select(device));
  const cudaError_t error = cudaMallocHost(&memory, padded(size_bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return TRI_ERROR(TRI_ERR_MEMORY,
                     "%zu bytes of pinned host memory wanted, the system gives none: raise the "
                     "limit on locked memory (ulimit -l) or put fewer ranks on this node",
                     size_bytes);
  }
  TRI_CALL_CUDA(error);
  *out = memory;
  return TRI_OK;
}

static void cuda_free_host(tri_device *device, void *memory)
{
  select_quietly(device);
  if (cudaFreeHost(memory) != cudaSuccess) (void)cudaGetLastError();
}

// --- streams

static tri_status cuda_stream_create(tri_device *device, tri_stream **out)
{
  tri_status status = TRI_OK;
  tri_cuda_stream *stream = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &stream));
  stream->base.device = device;
  stream->launch.compute_capability = tri_cuda_device_of(device)->compute_capability;
  TRI_CALL_GOTO(undo_stream,
                cuda_alloc(device, TRI_CUDA_WORKSPACE_BYTES, &stream->launch.workspace));
  TRI_CALL_CUDA_GOTO(undo_workspace,
                     cudaStreamCreateWithFlags(&stream->launch.stream, cudaStreamNonBlocking));
  *out = &stream->base;
  return TRI_OK;

undo_workspace:
  cuda_free(device, stream->launch.workspace);
undo_stream:
  TRI_FREE(&stream);
  return status;
}

static void cuda_stream_destroy(tri_stream *stream)
{
  select_quietly(stream->device);
  // Queued work still uses the workspace; cudaFree waits for it.
  cuda_free(stream->device, stream_of(stream)->launch.workspace);
  if (cudaStreamDestroy(native(stream)) != cudaSuccess) (void)cudaGetLastError();
  tri_free(stream);
}

static tri_status cuda_stream_synchronize(tri_stream *stream)
{
  TRI_CALL(tri_cuda_select(stream->device));
  TRI_CALL_CUDA(cudaStreamSynchronize(native(stream)));
  return TRI_OK;
}

static tri_status copy(tri_stream *stream, void *to, const void *from, size_t size_bytes,
                       enum cudaMemcpyKind kind)
{
  if (size_bytes == 0) return TRI_OK;
  TRI_CALL(tri_cuda_select(stream->device));
  TRI_CALL_CUDA(cudaMemcpyAsync(to, from, size_bytes, kind, native(stream)));
  return TRI_OK;
}

static tri_status cuda_copy_to_device(tri_stream *stream, void *to, const void *from,
                                      size_t size_bytes)
{
  TRI_CALL(copy(stream, to, from, size_bytes, cudaMemcpyHostToDevice));
  return TRI_OK;
}

static tri_status cuda_copy_to_host(tri_stream *stream, void *to, const void *from,
                                    size_t size_bytes)
{
  TRI_CALL(copy(stream, to, from, size_bytes, cudaMemcpyDeviceToHost));
  return TRI_OK;
}

static tri_status cuda_copy_on_device(tri_stream *stream, void *to, const void *from,
                                      size_t size_bytes)
{
  TRI_CALL(copy(stream, to, from, size_bytes, cudaMemcpyDeviceToDevice));
  return TRI_OK;
}

// --- events

static cudaEvent_t event_of(tri_event *event)
{
  return ((tri_cuda_event *)event)->event;
}

static tri_status cuda_event_create(tri_device *device, tri_event **out)
{
  tri_status status = TRI_OK;
  tri_cuda_event *event = NULL;
  TRI_CALL(tri_cuda_select(device));
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &event));
  event->base.device = device;
  TRI_CALL_CUDA_GOTO(undo_event, cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming));
  *out = &event->base;
  return TRI_OK;

undo_event:
  TRI_FREE(&event);
  return status;
}

static void cuda_event_destroy(tri_event *event)
{
  select_quietly(event->device);
  if (cudaEventDestroy(event_of(event)) != cudaSuccess) (void)cudaGetLastError();
  tri_free(event);
}

static tri_status cuda_event_record(tri_event *event, tri_stream *stream)
{
  TRI_CALL(tri_cuda_select(event->device));
  // Recorded in a graph, an event is for those outside of it too.
  const unsigned flags =
      stream_of(stream)->recording ? cudaEventRecordExternal : cudaEventRecordDefault;
  TRI_CALL_CUDA(cudaEventRecordWithFlags(event_of(event), native(stream), flags));
  return TRI_OK;
}

static tri_status cuda_event_wait(tri_event *event, tri_stream *stream)
{
  TRI_CALL(tri_cuda_select(event->device));
  TRI_CALL_CUDA(cudaStreamWaitEvent(native(stream), event_of(event), 0));
  return TRI_OK;
}

static tri_status cuda_event_synchronize(tri_event *event)
{
  TRI_CALL(tri_cuda_select(event->device));
  TRI_CALL_CUDA(cudaEventSynchronize(event_of(event)));
  return TRI_OK;
}

static tri_status cuda_event_query(tri_event *event, bool *done)
{
  TRI_CALL(tri_cuda_select(event->device));
  const cudaError_t error = cudaEventQuery(event_of(event));
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError(); // an answer, and no error
  } else {
    TRI_CALL_CUDA(error);
  }
  *done = error == cudaSuccess;
  return TRI_OK;
}

const tri_device_operations tri_cuda_operations = {.close = cuda_close,
                                                   .get_facts = cuda_get_facts,
                                                   .alloc = cuda_alloc,
                                                   .free = cuda_free,
                                                   .alloc_host = cuda_alloc_host,
                                                   .free_host = cuda_free_host,
                                                   .stream_create = cuda_stream_create,
                                                   .stream_destroy = cuda_stream_destroy,
                                                   .stream_synchronize = cuda_stream_synchronize,
                                                   .copy_to_device = cuda_copy_to_device,
                                                   .copy_to_host = cuda_copy_to_host,
                                                   .copy_on_device = cuda_copy_on_device,
                                                   .event_create = cuda_event_create,
                                                   .event_destroy = cuda_event_destroy,
                                                   .event_record = cuda_event_record,
                                                   .event_wait = cuda_event_wait,
                                                   .event_synchronize = cuda_event_synchronize,
                                                   .event_query = cuda_event_query,
                                                   .fft_create = tri_cuda_fft_create,
                                                   .fft_destroy = tri_cuda_fft_destroy,
                                                   .fft_execute = tri_cuda_fft_execute,
                                                   .graph_begin = tri_cuda_graph_begin,
                                                   .graph_end = tri_cuda_graph_end,
                                                   .graph_launch = tri_cuda_graph_launch,
                                                   .graph_destroy = tri_cuda_graph_destroy};
