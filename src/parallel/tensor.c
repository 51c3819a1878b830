#include "trireme/parallel/tensor.h"

#include "trireme/base/memory.h"
#include "trireme/device/arena.h"

struct tri_tensor {
  tri_transport *transport; // borrowed
  tri_stream *stream;       // borrowed
  const tri_kernels *kernels;
  int rank, size;
  int64_t largest;
  tri_arena arena;
  char *received;                // (size, largest) f32: what others sent
  float *sum, *addend;           // (largest) f32: of bf16
  tri_message *sends, *receives; // (size)
  tri_seams seams;
};

// One group of messages, which later work of the stream sees done.
static tri_status exchange(tri_tensor *t, tri_stream *stream, const char *what, int n_messages)
{
  tri_transfer *transfer = NULL;
  TRI_CALL(tri_transport_start(t->transport, what, stream, t->sends, n_messages, t->receives,
                               n_messages, &transfer));
  return tri_transport_wait(&transfer);
}

// n bytes of every rank, in their order.
static tri_status gather_bytes(tri_tensor *t, tri_stream *stream, const char *what, char *whole,
                               const void *part, size_t n)
{
  int n_messages = 0;
  for (int r = 0; r < t->size; r++) {
    if (r == t->rank) continue;
    t->sends[n_messages] = (tri_message){(void *)(uintptr_t)part, n, r, 0};
    t->receives[n_messages++] = (tri_message){whole + (size_t)r * n, n, r, 0};
  }
  TRI_CALL(tri_stream_copy_on_device(stream, whole + (size_t)t->rank * n, part, n));
  return exchange(t, stream, what, n_messages);
}

static tri_status gather(void *user, tri_stream *stream, void *whole, const void *part, int64_t n,
                         tri_dtype dtype)
{
  tri_tensor *t = user;
  TRI_ASSERT(n <= t->largest);
  return gather_bytes(t, stream, "rows of hidden states", whole, part,
                      (size_t)n * tri_dtype_size(dtype));
}

// out (n) f32 = the sum of pieces (size, n) f32, in the order of the ranks. out may be one of them
// but the first two.
static tri_status add_pieces(tri_tensor *t, tri_stream *stream, float *out, const float *pieces,
                             int64_t n)
{
  TRI_CALL(t->kernels->add(stream, out, pieces, pieces + n, n));
  for (int r = 2; r < t->size; r++)
    TRI_CALL(t->kernels->add(stream, out, out, pieces + r * n, n));
  return TRI_OK;
}

static tri_status add_rounded_pieces(tri_tensor *t, tri_stream *stream, void *out,
                                     const char *pieces, int64_t n, tri_dtype dtype)
{
  const size_t bytes = (size_t)n * tri_dtype_size(dtype);
  TRI_CALL(t->kernels->convert(stream, t->sum, TRI_DTYPE_F32, pieces, dtype, n));
  for (int r = 1; r < t->size; r++) {
    TRI_CALL(t->kernels->convert(stream, t->addend, TRI_DTYPE_F32, pieces + (size_t)r * bytes,
                                 dtype, n));
    TRI_CALL(t->kernels->add(stream, t->sum, t->sum, t->addend, n));
  }
  return t->kernels->convert(stream, out, dtype, t->sum, TRI_DTYPE_F32, n);
}

static tri_status scatter_sum(void *user, tri_stream *stream, void *part, void *whole, int64_t n,
                              tri_dtype dtype)
{
  tri_tensor *t = user;
  const size_t bytes = (size_t)n * tri_dtype_size(dtype);
  int n_messages = 0;
  TRI_ASSERT(n <= t->largest);
  for (int r = 0; r < t->size; r++) {
    char *mine = (char *)whole + (size_t)r * bytes, *theirs = t->received + (size_t)r * bytes;
    if (r == t->rank) {
      TRI_CALL(tri_stream_copy_on_device(stream, theirs, mine, bytes));
      continue;
    }
    t->sends[n_messages] = (tri_message){mine, bytes, r, 0};
    t->receives[n_messages++] = (tri_message){theirs, bytes, r, 0};
  }
  TRI_CALL(exchange(t, stream, "sums of hidden states", n_messages));
  if (dtype != TRI_DTYPE_F32) return add_rounded_pieces(t, stream, part, t->received, n, dtype);
  return add_pieces(t, stream, part, (const float *)t->received, n);
}

// --- set-up

static tri_status set_up(tri_tensor *t)
{
  const size_t room = (size_t)t->largest * sizeof(float);
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, t->size, &t->sends));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, t->size, &t->receives));
  const size_t received = tri_arena_reserve(&t->arena, (size_t)t->size * room);
  const size_t sum = tri_arena_reserve(&t->arena, room);
  const size_t addend = tri_arena_reserve(&t->arena, room);
  TRI_CALL(tri_arena_commit(&t->arena));
  t->received = tri_arena_at(&t->arena, received);
  t->sum = tri_arena_at(&t->arena, sum);
  t->addend = tri_arena_at(&t->arena, addend);
  const size_t others = (size_t)(t->size - 1) * room;
  return tri_transport_reserve(t->transport, 1, 2 * (t->size - 1), others, others);
}

tri_status tri_tensor_create(tri_transport *transport, tri_stream *stream, int64_t largest,
                             tri_tensor **out)
{
  tri_comm *comm = tri_transport_comm(transport);
  tri_tensor *t = NULL;
  tri_status status = TRI_NEW(TRI_MODULE_PARALLEL, 1, &t);
  if (status == TRI_OK) {
    *t = (tri_tensor){.transport = transport,
                      .stream = stream,
                      .kernels = tri_device_kernels(tri_stream_device(stream)),
                      .rank = tri_comm_rank(comm),
                      .size = tri_comm_size(comm),
                      .largest = largest,
                      .seams = {gather, scatter_sum, t}};
    tri_arena_begin(&t->arena, tri_stream_device(stream), "tensor parallelism");
    status = set_up(t);
  }
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "tensor parallelism", status));
  *out = t;
  return TRI_OK;

err_destroy:
  tri_tensor_destroy(&t);
  return status;
}

void tri_tensor_destroy(tri_tensor **tensor)
{
  tri_tensor *t = *tensor;
  if (t == NULL) return;
  tri_arena_end(&t->arena);
  TRI_FREE(&t->sends);
  TRI_FREE(&t->receives);
  TRI_FREE(tensor);
}

const tri_seams *tri_tensor_seams(const tri_tensor *t)
{
  return t == NULL ? NULL : &t->seams;
}

size_t tri_tensor_memory_bytes(const tri_tensor *t)
{
  return t == NULL ? 0 : t->arena.size_bytes;
}

// --- gradients

// Packed pieces of arrays, so that small ones go together.
enum { MOST_PIECES = 256 };

typedef struct packed_pieces {
  struct {
    float *data;
    int64_t n;
  } list[MOST_PIECES];
  int n;
  int64_t elements; // in t->addend
} packed_pieces;

// Sums what is packed and puts it back.
static tri_status flush(tri_tensor *t, packed_pieces *pieces)
{
  const int64_t n = pieces->elements;
  if (n == 0) return TRI_OK;
  TRI_CALL(gather_bytes(t, t->stream, "gradients of whole arrays", t->received, t->addend,
                        (size_t)n * sizeof(float)));
  TRI_CALL(add_pieces(t, t->stream, t->sum, (const float *)t->received, n));
  const float *from = t->sum;
  for (int i = 0; i < pieces->n; i++) {
    TRI_CALL(tri_stream_copy_on_device(t->stream, pieces->list[i].data, from,
                                       (size_t)pieces->list[i].n * sizeof(float)));
    from += pieces->list[i].n;
  }
  pieces->n = 0;
  pieces->elements = 0;
  return TRI_OK;
}

static tri_status pack(tri_tensor *t, packed_pieces *pieces, float *data, int64_t count)
{
  while (count > 0) {
    if (pieces->n == MOST_PIECES || pieces->elements == t->largest) TRI_CALL(flush(t, pieces));
    const int64_t room = t->largest - pieces->elements;
    const int64_t n = count < room ? count : room;
    TRI_CALL(tri_stream_copy_on_device(t->stream, t->addend + pieces->elements, data,
                                       (size_t)n * sizeof(float)));
    pieces->list[pieces->n].data = data;
    pieces->list[pieces->n++].n = n;
    pieces->elements += n;
    data += n;
    count -= n;
  }
  return TRI_OK;
}

tri_status tri_tensor_sum_gradients(tri_tensor *t, const tri_parameters *parameters,
                                    const tri_owned_range *owned, int n_owned, float *gradients)
{
  packed_pieces pieces = {.n = 0};
  if (t == NULL) return TRI_OK;
  for (int i = 0; i < parameters->n * n_owned; i++) {
    const tri_parameter *p = &parameters->list[i / n_owned];
    const tri_owned_range *range = &owned[i % n_owned];
    const int64_t from = range->first > p->offset ? range->first : p->offset;
    const int64_t end = p->offset + p->count;
    const int64_t to = range->end < end ? range->end : end;
    if (!p->partial_gradient || from >= to) continue;
    TRI_CALL(pack(t, &pieces, gradients + range->gradient_at + (from - range->first), to - from));
  }
  return flush(t, &pieces);
}
