// Double of the copies of cudart: the kind must be true, asynchronous host memory pinned.
#include "doubles.h"

#include <stdlib.h>
#include <string.h>

typedef struct copy {
  void *to;
  const void *from;
  size_t width, height, to_pitch, from_pitch;
  int value;
} copy;

static bool do_copy(void *body)
{
  const copy *c = body;
  for (size_t i = 0; i < c->height; i++)
    memcpy((char *)c->to + i * c->to_pitch, (const char *)c->from + i * c->from_pitch, c->width);
  return true;
}

static bool do_set(void *body)
{
  const copy *c = body;
  memset(c->to, c->value, c->width);
  return true;
}

static void queue_copy(cudaStream_t stream, const char *what, bool (*step)(void *), copy c)
{
  copy *body = malloc(sizeof *body);
  if (body == NULL) double_die("out of host memory");
  *body = c;
  double_enqueue(stream, (double_work){what, step, free, body, false});
}

static void check_side(const void *p, size_t size, bool device_side, bool async, int device,
                       const char *what)
{
  if (device_side) {
    double_check_device(p, size, device, what);
    return;
  }
  if (double_is_device(p)) double_die("%s: %p is device memory, the copy kind says host", what, p);
  if (async && !double_is_pinned(p, size))
    double_die("%s: %p is pageable host memory: on a GPU the copy would wait (pin it)", what, p);
}

static cudaError_t check_and_copy(copy c, enum cudaMemcpyKind kind, cudaStream_t stream, bool async)
{
  if (double_sticky_error() != cudaSuccess) return double_set_error(double_sticky_error());
  if (c.width == 0 || c.height == 0) return cudaSuccess;
  if (c.width > c.to_pitch || c.width > c.from_pitch)
    return double_set_error(cudaErrorInvalidPitchValue);
  if (kind == cudaMemcpyDefault) double_die("cudaMemcpy: say the kind of the copy");
  const int device = double_stream_device(stream);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  check_side(c.to, (c.height - 1) * c.to_pitch + c.width, to_device, async, device,
             "target of cudaMemcpy");
  check_side(c.from, (c.height - 1) * c.from_pitch + c.width, from_device, async, device,
             "source of cudaMemcpy");
  queue_copy(stream, "cudaMemcpy", do_copy, c);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  return check_and_copy((copy){to, from, size, 1, size, size, 0}, kind, stream, true);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  return check_and_copy((copy){to, from, width, height, to_pitch, from_pitch, 0}, kind, stream,
                        true);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  const cudaError_t error =
      check_and_copy((copy){to, from, size, 1, size, size, 0}, kind, NULL, false);
  if (error != cudaSuccess) return error;
  double_count.device_synchronizations++;
  double_drain_stream(NULL);
  return double_set_error(double_sticky_error());
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  if (double_sticky_error() != cudaSuccess) return double_set_error(double_sticky_error());
  if (size == 0) return cudaSuccess;
  double_check_device(to, size, double_stream_device(stream), "cudaMemset");
  queue_copy(stream, "cudaMemset", do_set, (copy){.to = to, .width = size, .value = value});
  return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t size)
{
  return cudaMemsetAsync(to, value, size, NULL);
}
