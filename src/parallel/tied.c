#include "trireme/parallel/tied.h"

#include "parallel/pipeline_channel.h"
#include "trireme/base/memory.h"
#include "trireme/device/arena.h"

// Gradients go up, from the last stage to the first, weights down.
struct tri_tied {
  tri_stream *stream; // borrowed
  bool first;         // this rank's stage
  tri_channel up, down;
  tri_arena arena;
  float *piece;  // first stage: a piece of the gradient that came
  int64_t owner; // first stage: element of the flat space at which the array begins
  int64_t count;
  int64_t piece_elements;
  size_t weight_size;
};

// Sends may be two at a time, receives one.
enum { SENDS = 2 };

static tri_status open_channels(tri_tied *t, tri_comm *comm, const char *transport)
{
  tri_device *device = tri_stream_device(t->stream);
  const int rank = tri_comm_rank(comm);
  const bool last = rank == tri_comm_size(comm) - 1;
  tri_channel_place place = {
      .color = t->first || last ? 0 : rank, .member = t->first || last, .sends = last};
  TRI_CALL(tri_channel_open(comm, device, transport, "tied gradient", &place, &t->up));
  place.sends = t->first;
  return tri_channel_open(comm, device, transport, "tied weights", &place, &t->down);
}

static tri_status reserve(tri_tied *t, const tri_parameters *parameters, size_t piece_bytes)
{
  const bool last = t->up.sends;
  if (!t->first && !last) return TRI_OK;
  TRI_CHECK(t->first ? parameters->tied >= 0 : parameters->tied_count > 0, TRI_ERR_ARGUMENT,
            "the %s stage of the pipeline does not hold its use of the tied array",
            t->first ? "first" : "last");
  t->owner = t->first ? parameters->list[parameters->tied].offset : 0;
  t->count = t->first ? parameters->list[parameters->tied].count : parameters->tied_count;
  t->piece_elements = (int64_t)(piece_bytes / sizeof(float));
  if (t->piece_elements < 1) t->piece_elements = 1;
  if (t->piece_elements > t->count) t->piece_elements = t->count;
  const size_t bytes = (size_t)t->piece_elements * sizeof(float);
  TRI_CALL(tri_channel_reserve(&t->up, t->up.sends ? SENDS : 1, bytes));
  TRI_CALL(tri_channel_reserve(&t->down, t->down.sends ? SENDS : 1, bytes));
  if (!t->first) return TRI_OK;
  const size_t offset = tri_arena_reserve(&t->arena, bytes);
  TRI_CALL(tri_arena_commit(&t->arena));
  t->piece = tri_arena_at(&t->arena, offset);
  return TRI_OK;
}

tri_status tri_tied_create(tri_comm *comm, tri_stream *stream, const tri_parameters *parameters,
                           tri_dtype dtype, const tri_tied_options *options, tri_tied **out)
{
  tri_tied *t = NULL;
  tri_status status = TRI_NEW(TRI_MODULE_PARALLEL, 1, &t);
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "tied array", status));
  t->stream = stream;
  t->first = tri_comm_rank(comm) == 0;
  t->weight_size = tri_dtype_size(dtype);
  tri_arena_begin(&t->arena, tri_stream_device(stream), "tied array");
  TRI_CALL_GOTO(err_destroy, open_channels(t, comm, options->transport));
  status = reserve(t, parameters, options->piece_bytes);
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "memory of the tied array", status));
  if (t->up.transport == NULL) tri_tied_destroy(&t);
  *out = t;
  return TRI_OK;

err_destroy:
  tri_tied_destroy(&t);
  return status;
}

tri_status tri_tied_finish(tri_tied *t)
{
  if (t == NULL) return TRI_OK;
  TRI_CALL(tri_channel_finish(&t->up));
  return tri_channel_finish(&t->down);
}

void tri_tied_destroy(tri_tied **tied)
{
  tri_tied *t = *tied;
  if (t == NULL) return;
  tri_channel_close(&t->up);
  tri_channel_close(&t->down);
  tri_arena_end(&t->arena);
  tri_channel_release(&t->up);
  tri_channel_release(&t->down);
  TRI_FREE(tied);
}

static tri_status take_oldest(tri_tied *t, tri_channel *channel)
{
  void *buffer = NULL;
  TRI_CALL(tri_channel_wait_oldest(channel));
  return tri_channel_take(channel, t->stream, &buffer);
}

// `data` has t->count elements of `size` bytes.
static tri_status send_all(tri_tied *t, tri_channel *channel, char *data, size_t size)
{
  for (int64_t first = 0; first < t->count; first += t->piece_elements) {
    const int64_t left = t->count - first;
    const int64_t n = left < t->piece_elements ? left : t->piece_elements;
    if (channel->n == channel->depth) TRI_CALL(take_oldest(t, channel));
    TRI_CALL(tri_channel_start(channel, t->stream, data + (size_t)first * size, (size_t)n * size));
  }
  while (channel->n > 0)
    TRI_CALL(take_oldest(t, channel));
  return TRI_OK;
}

// Adds the n elements of t->piece from `first` of the array on to what is owned of them.
static tri_status add_piece(tri_tied *t, const tri_owned_range *owned, int n_owned, float *gradient,
                            int64_t first, int64_t n)
{
  const tri_kernels *k = tri_device_kernels(tri_stream_device(t->stream));
  const int64_t begin = t->owner + first;
  for (int r = 0; r < n_owned; r++) {
    const tri_owned_range *range = &owned[r];
    const int64_t from = range->first > begin ? range->first : begin;
    const int64_t to = range->end < begin + n ? range->end : begin + n;
    if (from >= to) continue;
    float *sum = gradient + range->gradient_at + (from - range->first);
    TRI_CALL(k->add(t->stream, sum, sum, t->piece + (from - begin), to - from));
  }
  return TRI_OK;
}

tri_status tri_tied_sum_gradient(tri_tied *t, const tri_owned_range *owned, int n_owned,
                                 float *gradient, float *second_use)
{
  if (t == NULL) return TRI_OK;
  if (!t->first) return send_all(t, &t->up, (char *)second_use, sizeof(float));
  for (int64_t first = 0; first < t->count; first += t->piece_elements) {
    const int64_t left = t->count - first;
    const int64_t n = left < t->piece_elements ? left : t->piece_elements;
    TRI_CALL(tri_channel_start(&t->up, t->stream, t->piece, (size_t)n * sizeof(float)));
    TRI_CALL(take_oldest(t, &t->up));
    TRI_CALL(add_piece(t, owned, n_owned, gradient, first, n));
  }
  return TRI_OK;
}

tri_status tri_tied_copy_weights(tri_tied *t, void *array)
{
  if (t == NULL) return TRI_OK;
  if (t->first) return send_all(t, &t->down, array, t->weight_size);
  for (int64_t first = 0; first < t->count; first += t->piece_elements) {
    const int64_t left = t->count - first;
    const int64_t n = left < t->piece_elements ? left : t->piece_elements;
    TRI_CALL(tri_channel_start(&t->down, t->stream, (char *)array + (size_t)first * t->weight_size,
                               (size_t)n * t->weight_size));
    TRI_CALL(take_oldest(t, &t->down));
  }
  return TRI_OK;
}

int64_t tri_tied_bytes_sent(const tri_tied *t)
{
  if (t == NULL) return 0;
  return tri_comm_bytes_sent(t->up.comm) + tri_comm_bytes_sent(t->down.comm);
}

size_t tri_tied_memory_bytes(const tri_tied *t)
{
  return t == NULL ? 0 : t->arena.size_bytes;
}

double tri_tied_wait_seconds(const tri_tied *t)
{
  if (t == NULL) return 0.0;
  return tri_comm_wait_seconds(t->up.comm) + tri_comm_wait_seconds(t->down.comm);
}
