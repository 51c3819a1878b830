#include "parallel/bucket_exchange.h"

#include "trireme/base/memory.h"
#include "trireme/device/arena.h"
#include "trireme/parallel/sum_tree.h"

// A bucket's way: idle until ready, then partial sums to the owners, then results to all.
typedef enum exchange_stage { STAGE_IDLE, STAGE_SCATTER, STAGE_GATHER, STAGE_DONE } exchange_stage;

typedef struct exchange_slot {
  exchange_stage stage;
  int bucket;
  tri_transfer *transfer;
  float *received; // partial sums of this rank's slice from all others, one after another
} exchange_slot;

struct tri_bucket_exchange {
  tri_transport *transport; // borrowed
  tri_stream *compute;      // borrowed
  tri_stream *stream;
  const tri_kernels *kernels;
  tri_bucket_exchange_plan plan;
  int rank, size;

  tri_sum_node *nodes; // of all ranks, in leaf order
  int *first_node;     // (size + 1): nodes of rank r are [first_node[r], first_node[r + 1])
  exchange_slot *slots;
  tri_arena arena;
  tri_message *sends, *receives;  // scratch for one group
  int n_ready, n_started, n_done; // buckets; each runs through the list in order

  tri_event **ready;    // of each bucket: the caller's stream is done with it
  tri_event *exchanged; // all of a step
};

static int nodes_of(const tri_bucket_exchange *x, int rank)
{
  return x->first_node[rank + 1] - x->first_node[rank];
}

// First element and elements of the part of a bucket that `rank` owns.
static int64_t slice_of(const tri_bucket_exchange *x, int bucket, int rank, int64_t *first)
{
  int64_t end;
  tri_bucket_slice(&x->plan.buckets->list[bucket], x->size, rank, first, &end);
  return end - *first;
}

// --- planning

static tri_status plan_nodes(tri_bucket_exchange *x)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, x->size * TRI_SUM_TREE_MAX_NODES, &x->nodes));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, x->size + 1, &x->first_node));
  for (int r = 0; r < x->size; r++) {
    const tri_sum_node share = tri_sum_tree_share(x->plan.n_leaves, x->size, r);
    const int first = x->first_node[r];
    x->first_node[r + 1] = first + tri_sum_tree_nodes(x->plan.n_leaves, share, x->nodes + first);
  }
  return TRI_OK;
}

static tri_status plan_events(tri_bucket_exchange *x)
{
  tri_device *device = tri_transport_device(x->transport);
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, x->plan.buckets->n, &x->ready));
  for (int b = 0; b < x->plan.buckets->n; b++)
    TRI_CALL(tri_event_create(device, &x->ready[b]));
  TRI_CALL(tri_event_create(device, &x->exchanged));
  return TRI_OK;
}

// The largest groups of this rank, over all buckets, in elements.
typedef struct group_sizes {
  int64_t sent, received, partial_sums;
} group_sizes;

static void raise(int64_t *most, int64_t value)
{
  if (value > *most) *most = value;
}

static group_sizes largest_groups(const tri_bucket_exchange *x)
{
  group_sizes most = {0};
  const int own_nodes = nodes_of(x, x->rank), other_nodes = x->first_node[x->size] - own_nodes;
  for (int b = 0; b < x->plan.buckets->n; b++) {
    const tri_bucket *bucket = &x->plan.buckets->list[b];
    int64_t first;
    const int64_t own = slice_of(x, b, x->rank, &first);
    const int64_t others = bucket->end - bucket->first - own;
    raise(&most.sent, own_nodes * others);
    raise(&most.sent, own * (x->size - 1));
    raise(&most.received, own * other_nodes);
    raise(&most.received, others);
    raise(&most.partial_sums, own * other_nodes);
  }
  return most;
}

// Slots, their memory, and the transport's pool.
static tri_status plan_groups(tri_bucket_exchange *x)
{
  const int own_nodes = nodes_of(x, x->rank), n_slots = x->plan.in_flight;
  const int n_messages = x->first_node[x->size] + (x->size - 1) * (own_nodes + 2);
  const group_sizes most = largest_groups(x);
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n_messages, &x->sends));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n_messages, &x->receives));
  TRI_CALL(tri_transport_reserve(x->transport, n_slots, n_messages,
                                 (size_t)most.sent * sizeof(float),
                                 (size_t)most.received * sizeof(float)));
  for (int i = 0; i < n_slots; i++)
    (void)tri_arena_reserve(&x->arena, (size_t)most.partial_sums * sizeof(float));
  TRI_CALL(tri_arena_commit(&x->arena));
  const size_t stride = x->arena.size_bytes / (size_t)n_slots;
  for (int i = 0; i < n_slots; i++)
    x->slots[i].received = tri_arena_at(&x->arena, (size_t)i * stride);
  return TRI_OK;
}

static tri_status fill_in(tri_bucket_exchange *x)
{
  tri_transport_facts facts;
  tri_transport_get_facts(x->transport, &facts);
  TRI_CHECK(!x->plan.fast || facts.sums, TRI_ERR_UNSUPPORTED,
            "parallel.reduce: fast is an all-reduce of NCCL, and gradients go over transport %s "
            "(%s): take parallel.reduce: exact",
            facts.name, facts.reason);
  TRI_CALL(tri_stream_create(tri_transport_device(x->transport), &x->stream));
  TRI_CALL(plan_nodes(x));
  TRI_CALL(plan_events(x));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, x->plan.in_flight, &x->slots));
  if (!x->plan.fast) TRI_CALL(plan_groups(x));
  return TRI_OK;
}

tri_status tri_bucket_exchange_create(tri_transport *transport, tri_stream *compute,
                                      const tri_bucket_exchange_plan *plan,
                                      tri_bucket_exchange **out)
{
  tri_bucket_exchange *x = NULL;
  tri_status status;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, 1, &x));
  x->transport = transport;
  x->compute = compute;
  x->kernels = tri_device_kernels(tri_transport_device(transport));
  x->plan = *plan;
  x->rank = tri_comm_rank(tri_transport_comm(transport));
  x->size = tri_comm_size(tri_transport_comm(transport));
  tri_arena_begin(&x->arena, tri_transport_device(transport), "exchange");
  TRI_CALL_GOTO(err_destroy, fill_in(x));
  *out = x;
  return TRI_OK;

err_destroy:
  tri_bucket_exchange_destroy(&x);
  return status;
}

void tri_bucket_exchange_destroy(tri_bucket_exchange **exchange)
{
  tri_bucket_exchange *x = *exchange;
  if (x == NULL) return;
  tri_arena_end(&x->arena);
  for (int b = 0; x->ready != NULL && b < x->plan.buckets->n; b++)
    tri_event_destroy(&x->ready[b]);
  tri_event_destroy(&x->exchanged);
  tri_stream_destroy(&x->stream);
  TRI_FREE(&x->ready);
  TRI_FREE(&x->nodes);
  TRI_FREE(&x->first_node);
  TRI_FREE(&x->slots);
  TRI_FREE(&x->sends);
  TRI_FREE(&x->receives);
  TRI_FREE(exchange);
}

size_t tri_bucket_exchange_bytes(const tri_bucket_exchange *exchange)
{
  return exchange->arena.size_bytes;
}

// --- one bucket, exact

// Sends the partial sums of every other rank's slice, receives those of the own slice.
static tri_status start_scatter(tri_bucket_exchange *x, exchange_slot *slot)
{
  int n_sends = 0, n_receives = 0;
  int64_t first;
  const size_t own_bytes = (size_t)slice_of(x, slot->bucket, x->rank, &first) * sizeof(float);
  char *received = (char *)slot->received;
  for (int r = 0; r < x->size; r++) {
    if (r == x->rank) continue;
    const size_t bytes = (size_t)slice_of(x, slot->bucket, r, &first) * sizeof(float);
    for (int k = 0; k < nodes_of(x, x->rank); k++)
      x->sends[n_sends++] = (tri_message){x->plan.buffers[k] + first, bytes, r, 2 * slot->bucket};
    for (int k = 0; k < nodes_of(x, r); k++) {
      x->receives[n_receives++] = (tri_message){received, own_bytes, r, 2 * slot->bucket};
      received += own_bytes;
    }
  }
  TRI_CALL(tri_transport_start(x->transport, "gradient scatter", x->stream, x->sends, n_sends,
                               x->receives, n_receives, &slot->transfer));
  slot->stage = STAGE_SCATTER;
  return TRI_OK;
}

// Merges the partial sums of the own slice in tree order; the last addition lands in the result.
static tri_status merge_slice(tri_bucket_exchange *x, const exchange_slot *slot)
{
  int64_t first;
  const int64_t n = slice_of(x, slot->bucket, x->rank, &first);
  float *result = x->plan.buffers[0] + first;
  struct {
    tri_sum_node node;
    float *data;
  } stack[2 * TRI_SUM_TREE_MAX_NODES];
  int depth = 0;
  float *received = slot->received;
  for (int r = 0; r < x->size; r++) {
    for (int k = 0; k < nodes_of(x, r); k++) {
      stack[depth].node = x->nodes[x->first_node[r] + k];
      stack[depth].data = r == x->rank ? x->plan.buffers[k] + first : received;
      if (r != x->rank) received += n;
      depth++;
      tri_sum_node parent;
      while (depth >= 2 && tri_sum_tree_siblings(x->plan.n_leaves, stack[depth - 2].node,
                                                 stack[depth - 1].node, &parent)) {
        float *left = stack[depth - 2].data;
        const bool is_root = parent.first == 0 && parent.end == x->plan.n_leaves;
        float *into = is_root ? result : left;
        TRI_CALL(x->kernels->add(x->stream, into, left, stack[depth - 1].data, n));
        stack[depth - 2].node = parent;
        stack[depth - 2].data = into;
        depth--;
      }
    }
  }
  TRI_ASSERT(depth == 1);
  if (stack[0].data == result) return TRI_OK;
  return tri_stream_copy_on_device(x->stream, result, stack[0].data, (size_t)n * sizeof(float));
}

// Sends the own slice of `array` to all and receives theirs.
static tri_status gather_slices(tri_bucket_exchange *x, const char *what, exchange_slot *slot,
                                char *array, size_t element_size)
{
  const tri_bucket *bucket = &x->plan.buckets->list[slot->bucket];
  const int n = tri_bucket_gather_messages(bucket, x->size, x->rank, 2 * slot->bucket + 1,
                                           array + (size_t)bucket->first * element_size,
                                           element_size, x->sends, x->receives);
  return tri_transport_start(x->transport, what, x->stream, x->sends, n, x->receives, n,
                             &slot->transfer);
}

static bool is_sharded(const tri_bucket_exchange *x, int bucket)
{
  return x->plan.buckets->list[bucket].end <= x->plan.sharded_end;
}

static tri_status start_gather(tri_bucket_exchange *x, exchange_slot *slot)
{
  TRI_CALL(merge_slice(x, slot));
  slot->stage = STAGE_DONE;
  if (is_sharded(x, slot->bucket)) return TRI_OK;
  slot->stage = STAGE_GATHER;
  return gather_slices(x, "gradient gather", slot, (char *)x->plan.buffers[0], sizeof(float));
}

// Moves a slot on whose transfer is complete.
static tri_status advance(tri_bucket_exchange *x, exchange_slot *slot)
{
  if (slot->stage == STAGE_SCATTER) return start_gather(x, slot);
  slot->stage = STAGE_DONE;
  return TRI_OK;
}

// As far as it can go without waiting. Where the stream orders everything that is to the end, so
// that all ranks queue the groups of the buckets in the same order.
static tri_status move(tri_bucket_exchange *x, exchange_slot *slot)
{
  while (slot->stage == STAGE_SCATTER || slot->stage == STAGE_GATHER) {
    bool done = false;
    TRI_CALL(tri_transport_test(&slot->transfer, &done));
    if (!done) return TRI_OK;
    TRI_CALL(advance(x, slot));
  }
  return TRI_OK;
}

// --- one bucket, fast

static tri_status sum_bucket(tri_bucket_exchange *x, exchange_slot *slot)
{
  const tri_bucket *bucket = &x->plan.buckets->list[slot->bucket];
  const int64_t n = bucket->end - bucket->first;
  const int n_nodes = nodes_of(x, x->rank);
  float *sum = x->plan.buffers[0] + bucket->first;
  if (n_nodes == 0) TRI_CALL(x->kernels->fill(x->stream, sum, 0.0f, n));
  for (int k = 1; k < n_nodes; k++)
    TRI_CALL(x->kernels->add(x->stream, sum, sum, x->plan.buffers[k] + bucket->first, n));
  TRI_CALL(tri_transport_all_reduce_sum_f32(x->transport, "gradient sum", x->stream, sum, n));
  slot->stage = STAGE_DONE;
  return TRI_OK;
}

// --- all buckets

static exchange_slot *slot_of(tri_bucket_exchange *x, int bucket)
{
  return &x->slots[bucket % x->plan.in_flight];
}

// Retires finished buckets from the front, in order.
static void retire(tri_bucket_exchange *x)
{
  while (x->n_done < x->n_started && slot_of(x, x->n_done)->stage == STAGE_DONE) {
    slot_of(x, x->n_done)->stage = STAGE_IDLE;
    x->n_done++;
  }
}

static tri_status start_ready(tri_bucket_exchange *x)
{
  while (x->n_started < x->n_ready && x->n_started < x->n_done + x->plan.in_flight) {
    exchange_slot *slot = slot_of(x, x->n_started);
    slot->bucket = x->n_started;
    TRI_CALL(tri_event_wait(x->ready[slot->bucket], x->stream));
    if (x->plan.fast)
      TRI_CALL(sum_bucket(x, slot));
    else
      TRI_CALL(start_scatter(x, slot));
    x->n_started++;
    TRI_CALL(move(x, slot));
    retire(x);
  }
  return TRI_OK;
}

void tri_bucket_exchange_begin(tri_bucket_exchange *x)
{
  x->n_ready = x->n_started = x->n_done = 0;
}

tri_status tri_bucket_exchange_ready(tri_bucket_exchange *x, int n)
{
  for (; x->n_ready < n; x->n_ready++)
    TRI_CALL(tri_event_record(x->ready[x->n_ready], x->compute));
  return TRI_OK;
}

void tri_bucket_exchange_launched(tri_bucket_exchange *x, int n)
{
  x->n_ready = n;
}

tri_status tri_bucket_exchange_progress(tri_bucket_exchange *x)
{
  TRI_CALL(tri_transport_poll(x->transport));
  for (int b = x->n_done; b < x->n_started; b++)
    TRI_CALL(move(x, slot_of(x, b)));
  retire(x);
  return start_ready(x);
}

tri_status tri_bucket_exchange_finish(tri_bucket_exchange *x)
{
  const int n = x->plan.buckets->n;
  TRI_CALL(tri_bucket_exchange_ready(x, n));
  TRI_CALL(tri_bucket_exchange_progress(x));
  while (x->n_done < n) {
    exchange_slot *oldest = slot_of(x, x->n_done);
    TRI_CALL(tri_transport_wait(&oldest->transfer));
    TRI_CALL(advance(x, oldest));
    TRI_CALL(tri_bucket_exchange_progress(x));
  }
  TRI_CALL(tri_event_record(x->exchanged, x->stream));
  return tri_event_wait(x->exchanged, x->compute);
}

tri_status tri_bucket_exchange_synchronize(tri_bucket_exchange *x)
{
  // This rank's own work first, so that only the rest counts as waiting for others.
  TRI_CALL(tri_event_synchronize(x->ready[x->plan.buckets->n - 1]));
  TRI_CALL(tri_transport_synchronize(x->transport, x->exchanged));
  return TRI_OK;
}

// As many buckets as there are slots at a time, in order.
tri_status tri_bucket_exchange_gather(tri_bucket_exchange *x, void *array, int64_t count,
                                      size_t element_size)
{
  const int n = x->plan.buckets->n;
  TRI_CALL(tri_event_record(x->ready[0], x->compute));
  TRI_CALL(tri_event_wait(x->ready[0], x->stream));
  for (int b = 0; b < n + x->plan.in_flight; b++) {
    exchange_slot *slot = slot_of(x, b);
    if (slot->transfer != NULL) TRI_CALL(tri_transport_wait(&slot->transfer));
    if (b >= n || x->plan.buckets->list[b].end > count) continue;
    slot->bucket = b;
    TRI_CALL(gather_slices(x, "weight gather", slot, array, element_size));
  }
  TRI_CALL(tri_event_record(x->exchanged, x->stream));
  return tri_event_wait(x->exchanged, x->compute);
}
