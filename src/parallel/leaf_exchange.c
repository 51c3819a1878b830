#include "parallel/leaf_exchange.h"

#include "trireme/base/memory.h"
#include "trireme/device/arena.h"

enum { RING = 2 };

// Memory for the gradient of a block.
typedef struct block_place {
  size_t offset; // in the arena
  float *data;
  int n_pending; // buckets that are still to be exchanged
} block_place;

// A bucket of a block's gradient that is complete.
typedef struct leaf_bucket {
  int bucket, round;
  bool sends; // this rank has a leaf of the round
  block_place *from;
} leaf_bucket;

typedef struct exchange_slot {
  leaf_bucket item;
  tri_transfer *transfer; // NULL: idle
  float *received;        // this rank's slice of the leaves of others, one after another
} exchange_slot;

struct tri_leaf_exchange {
  tri_transport *transport; // borrowed
  tri_stream *compute;      // borrowed
  tri_stream *stream;
  const tri_kernels *kernels;
  tri_leaf_exchange_plan plan;
  int rank, size;

  int64_t *bucket_at; // (n buckets): place of the own slice among all that is owned
  int64_t n_owned;    // elements, tied buckets included
  tri_owned_range *owned;
  int n_ranges, depth; // sums of earlier rounds that wait to be merged, at most

  block_place *places; // of each block, or the one of first and last block and a ring
  int n_places, next_in_ring;
  int open_block, open_i; // whose gradient is being computed, -1: none
  block_place *open;

  leaf_bucket *queue; // complete buckets, oldest first
  int queue_first, n_queued, queue_room;
  exchange_slot *slots;
  int64_t n_started, n_done; // of the step

  tri_arena gradient_arena, arena;
  float *sums; // (depth, n_owned)
  tri_message *sends, *receives;
  tri_event **ready; // of each bucket: the compute stream is done with it
  tri_event *merged; // the exchange stream is done with what was merged last
};

static int64_t slice_of(const tri_leaf_exchange *x, int bucket, int rank, int64_t *first)
{
  int64_t end;
  tri_bucket_slice(&x->plan.buckets->list[bucket], x->size, rank, first, &end);
  return end - *first;
}

static bool has_leaf(const tri_leaf_exchange *x, int round, int rank)
{
  return round * x->size + rank < x->plan.deal.n_leaves;
}

static bool is_tied(const tri_leaf_exchange *x, int bucket)
{
  return x->plan.buckets->list[bucket].first >= x->plan.parameters->flat_count;
}

// --- planning

// Leaves before a round as nodes: what an owner has by then.
static int nodes_before(const tri_leaf_exchange *x, int round, tri_sum_node *nodes)
{
  const int n_leaves = x->plan.deal.n_leaves, n = round * x->size;
  const tri_sum_node done = {0, n < n_leaves ? n : n_leaves};
  return tri_sum_tree_nodes(n_leaves, done, nodes);
}

static void plan_depth(tri_leaf_exchange *x)
{
  tri_sum_node nodes[TRI_SUM_TREE_MAX_NODES];
  for (int round = 1; round <= tri_deal_rounds(&x->plan.deal); round++) {
    const int n = nodes_before(x, round, nodes);
    if (n > x->depth) x->depth = n;
  }
}

// Own slices in ascending order, those of the second use of a tied array last.
static tri_status plan_owned(tri_leaf_exchange *x)
{
  const tri_buckets *buckets = x->plan.buckets;
  const int64_t count = tri_parameters_gradient_count(x->plan.parameters);
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, buckets->n, &x->bucket_at));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, buckets->n, &x->owned));
  for (int64_t from = 0; from < count;) {
    int b = 0;
    int64_t first;
    while (buckets->list[b].first != from)
      b++;
    const int64_t n = slice_of(x, b, x->rank, &first);
    x->bucket_at[b] = x->n_owned;
    if (n > 0 && !is_tied(x, b))
      x->owned[x->n_ranges++] = (tri_owned_range){first, first + n, x->n_owned, x->n_owned};
    x->n_owned += n;
    from = buckets->list[b].end;
  }
  return TRI_OK;
}

static int64_t elements_of(const tri_leaf_exchange *x, int block)
{
  const tri_parameters *p = x->plan.parameters;
  return p->offsets[block + 1] - p->offsets[block] + (block + 1 == p->n_blocks ? p->tied_count : 0);
}

static bool keeps_leaves(const tri_leaf_exchange *x)
{
  return x->plan.deal.leaf_microbatches > 1;
}

// The place of each kind in turn: see place_of.
static tri_status plan_places(tri_leaf_exchange *x)
{
  const int n_blocks = x->plan.parameters->n_blocks;
  int64_t ends = 0, middle = 0;
  x->n_places = keeps_leaves(x) ? n_blocks : 1 + RING;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, x->n_places, &x->places));
  for (int block = 0; block < n_blocks; block++) {
    int64_t *most = block == 0 || block + 1 == n_blocks ? &ends : &middle;
    if (elements_of(x, block) > *most) *most = elements_of(x, block);
  }
  for (int p = 0; p < x->n_places; p++) {
    const int64_t n = keeps_leaves(x) ? elements_of(x, p) : p == 0 ? ends : middle;
    x->places[p].offset = tri_arena_reserve(&x->gradient_arena, (size_t)n * sizeof(float));
  }
  const size_t sums = (size_t)x->depth * (size_t)x->n_owned * sizeof(float);
  const size_t offset = tri_arena_reserve(&x->gradient_arena, sums);
  TRI_CALL(tri_arena_commit(&x->gradient_arena));
  for (int p = 0; p < x->n_places; p++)
    x->places[p].data = tri_arena_at(&x->gradient_arena, x->places[p].offset);
  x->sums = tri_arena_at(&x->gradient_arena, offset);
  return TRI_OK;
}

// The largest slices of a bucket: of this rank, and of all others together.
static void largest_slices(const tri_leaf_exchange *x, int64_t *own, int64_t *others)
{
  *own = *others = 0;
  for (int b = 0; b < x->plan.buckets->n; b++) {
    const tri_bucket *bucket = &x->plan.buckets->list[b];
    int64_t first;
    const int64_t n = slice_of(x, b, x->rank, &first);
    const int64_t rest = bucket->end - bucket->first - n;
    if (n > *own) *own = n;
    if (rest > *others) *others = rest;
  }
}

static tri_status plan_slots(tri_leaf_exchange *x)
{
  const int n_slots = x->plan.in_flight, n_others = x->size - 1;
  int64_t own, others;
  largest_slices(x, &own, &others);
  const int64_t received = own * n_others;
  const size_t most = (size_t)(received > others ? received : others) * sizeof(float);
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n_slots, &x->slots));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n_others, &x->sends));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n_others, &x->receives));
  TRI_CALL(tri_transport_reserve(x->transport, n_slots, 2 * n_others, most, most));
  for (int i = 0; i < n_slots; i++)
    (void)tri_arena_reserve(&x->arena, (size_t)received * sizeof(float));
  TRI_CALL(tri_arena_commit(&x->arena));
  const size_t stride = x->arena.size_bytes / (size_t)n_slots;
  for (int i = 0; i < n_slots; i++)
    x->slots[i].received = tri_arena_at(&x->arena, (size_t)i * stride);
  return TRI_OK;
}

static tri_status plan_queue(tri_leaf_exchange *x)
{
  tri_device *device = tri_transport_device(x->transport);
  const int n = x->plan.buckets->n;
  // A place is not filled again before its buckets are done: no bucket waits more than RING times.
  x->queue_room = RING * n + 1;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, x->queue_room, &x->queue));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n, &x->ready));
  for (int b = 0; b < n; b++)
    TRI_CALL(tri_event_create(device, &x->ready[b]));
  return tri_event_create(device, &x->merged);
}

static tri_status fill_in(tri_leaf_exchange *x)
{
  TRI_CALL(tri_stream_create(tri_transport_device(x->transport), &x->stream));
  plan_depth(x);
  TRI_CALL(plan_owned(x));
  TRI_CALL(plan_places(x));
  TRI_CALL(plan_slots(x));
  return plan_queue(x);
}

tri_status tri_leaf_exchange_create(tri_transport *transport, tri_stream *compute,
                                    const tri_leaf_exchange_plan *plan, tri_leaf_exchange **out)
{
  tri_device *device = tri_transport_device(transport);
  tri_leaf_exchange *x = NULL;
  tri_status status;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, 1, &x));
  x->transport = transport;
  x->compute = compute;
  x->kernels = tri_device_kernels(device);
  x->plan = *plan;
  x->rank = tri_comm_rank(tri_transport_comm(transport));
  x->size = tri_comm_size(tri_transport_comm(transport));
  x->open_block = -1;
  tri_arena_begin(&x->gradient_arena, device, "gradients");
  tri_arena_begin(&x->arena, device, "exchange");
  TRI_CALL_GOTO(err_destroy, fill_in(x));
  *out = x;
  return TRI_OK;

err_destroy:
  tri_leaf_exchange_destroy(&x);
  return status;
}

void tri_leaf_exchange_destroy(tri_leaf_exchange **exchange)
{
  tri_leaf_exchange *x = *exchange;
  if (x == NULL) return;
  tri_arena_end(&x->gradient_arena);
  tri_arena_end(&x->arena);
  for (int b = 0; x->ready != NULL && b < x->plan.buckets->n; b++)
    tri_event_destroy(&x->ready[b]);
  tri_event_destroy(&x->merged);
  tri_stream_destroy(&x->stream);
  TRI_FREE(&x->ready);
  TRI_FREE(&x->queue);
  TRI_FREE(&x->receives);
  TRI_FREE(&x->sends);
  TRI_FREE(&x->slots);
  TRI_FREE(&x->places);
  TRI_FREE(&x->owned);
  TRI_FREE(&x->bucket_at);
  TRI_FREE(exchange);
}

size_t tri_leaf_exchange_gradient_bytes(const tri_leaf_exchange *x)
{
  return x->gradient_arena.size_bytes;
}

size_t tri_leaf_exchange_bytes(const tri_leaf_exchange *x)
{
  return x->arena.size_bytes;
}

int tri_leaf_exchange_owned(const tri_leaf_exchange *x, const tri_owned_range **out)
{
  *out = x->owned;
  return x->n_ranges;
}

// --- one bucket of one round

// A bucket lies in its block's gradient as in the flat space, the second use of a tied array
// behind.
static float *data_of(const tri_leaf_exchange *x, const leaf_bucket *item)
{
  const tri_parameters *p = x->plan.parameters;
  const tri_bucket *bucket = &x->plan.buckets->list[item->bucket];
  const int block = bucket->ready_block;
  if (!is_tied(x, item->bucket)) return item->from->data + (bucket->first - p->offsets[block]);
  return item->from->data + (p->offsets[block + 1] - p->offsets[block]) +
         (bucket->first - p->flat_count);
}

static tri_status start(tri_leaf_exchange *x, exchange_slot *slot)
{
  const leaf_bucket *item = &slot->item;
  int n_sends = 0, n_receives = 0;
  int64_t own_first, first;
  const int64_t own = slice_of(x, item->bucket, x->rank, &own_first);
  char *data = (char *)data_of(x, item), *received = (char *)slot->received;
  TRI_CALL(tri_event_wait(x->ready[item->bucket], x->stream));
  for (int r = 0; r < x->size; r++) {
    if (r == x->rank) continue;
    const size_t bytes = (size_t)slice_of(x, item->bucket, r, &first) * sizeof(float);
    const size_t offset =
        (size_t)(first - x->plan.buckets->list[item->bucket].first) * sizeof(float);
    if (item->sends) x->sends[n_sends++] = (tri_message){data + offset, bytes, r, item->bucket};
    if (!has_leaf(x, item->round, r)) continue;
    x->receives[n_receives++] =
        (tri_message){received, (size_t)own * sizeof(float), r, item->bucket};
    received += (size_t)own * sizeof(float);
  }
  return tri_transport_start(x->transport, "gradient scatter", x->stream, x->sends, n_sends,
                             x->receives, n_receives, &slot->transfer);
}

// The own slice of partial sums, leaves in order.
typedef struct sum_stack {
  tri_sum_node node[TRI_SUM_TREE_MAX_NODES + 1];
  float *data[TRI_SUM_TREE_MAX_NODES + 1];
  int depth;
} sum_stack;

static tri_status push(tri_leaf_exchange *x, sum_stack *s, tri_sum_node node, float *data,
                       int64_t n)
{
  tri_sum_node parent;
  s->node[s->depth] = node;
  s->data[s->depth++] = data;
  while (s->depth >= 2 && tri_sum_tree_siblings(x->plan.deal.n_leaves, s->node[s->depth - 2],
                                                s->node[s->depth - 1], &parent)) {
    float *left = s->data[s->depth - 2];
    TRI_CALL(x->kernels->add(x->stream, left, left, s->data[s->depth - 1], n));
    s->node[s->depth - 2] = parent;
    s->depth--;
  }
  return TRI_OK;
}

// Merges the leaves of a round into what is there of earlier ones; what is left lies in x->sums.
static tri_status merge(tri_leaf_exchange *x, const exchange_slot *slot)
{
  const leaf_bucket *item = &slot->item;
  int64_t first;
  const int64_t n = slice_of(x, item->bucket, x->rank, &first);
  float *sums = x->sums + x->bucket_at[item->bucket], *received = slot->received;
  sum_stack stack;
  if (n == 0) return TRI_OK;
  stack.depth = nodes_before(x, item->round, stack.node);
  for (int k = 0; k < stack.depth; k++)
    stack.data[k] = sums + k * x->n_owned;
  for (int r = 0; r < x->size && has_leaf(x, item->round, r); r++) {
    const int leaf = item->round * x->size + r;
    float *own = data_of(x, item) + (first - x->plan.buckets->list[item->bucket].first);
    TRI_CALL(push(x, &stack, (tri_sum_node){leaf, leaf + 1}, r == x->rank ? own : received, n));
    if (r != x->rank) received += n;
  }
  for (int k = 0; k < stack.depth; k++) {
    float *to = sums + k * x->n_owned;
    if (stack.data[k] != to)
      TRI_CALL(tri_stream_copy_on_device(x->stream, to, stack.data[k], (size_t)n * sizeof(float)));
  }
  return TRI_OK;
}

// --- all buckets

static exchange_slot *slot_of(tri_leaf_exchange *x, int64_t number)
{
  return &x->slots[number % x->plan.in_flight];
}

// The oldest under way has come.
static tri_status take(tri_leaf_exchange *x)
{
  exchange_slot *slot = slot_of(x, x->n_done);
  TRI_CALL(merge(x, slot));
  TRI_CALL(tri_event_record(x->merged, x->stream));
  slot->item.from->n_pending--;
  x->n_done++;
  return TRI_OK;
}

static tri_status start_queued(tri_leaf_exchange *x)
{
  while (x->n_queued > 0 && x->n_started < x->n_done + x->plan.in_flight) {
    exchange_slot *slot = slot_of(x, x->n_started);
    slot->item = x->queue[x->queue_first];
    x->queue_first = (x->queue_first + 1) % x->queue_room;
    x->n_queued--;
    TRI_CALL(start(x, slot));
    x->n_started++;
  }
  return TRI_OK;
}

// As far as it goes without waiting; what comes is taken in order.
static tri_status progress(tri_leaf_exchange *x)
{
  TRI_CALL(tri_transport_poll(x->transport));
  TRI_CALL(start_queued(x));
  while (x->n_done < x->n_started) {
    bool done = false;
    TRI_CALL(tri_transport_test(&slot_of(x, x->n_done)->transfer, &done));
    if (!done) return TRI_OK;
    TRI_CALL(take(x));
    TRI_CALL(start_queued(x));
  }
  return TRI_OK;
}

static tri_status wait_for_oldest(tri_leaf_exchange *x)
{
  TRI_CALL(tri_transport_wait(&slot_of(x, x->n_done)->transfer));
  TRI_CALL(take(x));
  return progress(x);
}

void tri_leaf_exchange_begin(tri_leaf_exchange *x)
{
  x->n_started = x->n_done = 0;
}

static block_place *place_of(tri_leaf_exchange *x, int block)
{
  const int n_blocks = x->plan.parameters->n_blocks;
  if (keeps_leaves(x)) return &x->places[block];
  if (block == 0 || block + 1 == n_blocks) return &x->places[0];
  x->next_in_ring = (x->next_in_ring + 1) % RING;
  return &x->places[1 + x->next_in_ring];
}

static tri_status clear(tri_leaf_exchange *x, block_place *place, int block)
{
  while (place->n_pending > 0)
    TRI_CALL(wait_for_oldest(x));
  TRI_CALL(tri_event_wait(x->merged, x->compute));
  return x->kernels->fill(x->compute, place->data, 0.0f, elements_of(x, block));
}

tri_status tri_leaf_exchange_gradients(tri_leaf_exchange *x, int i, int block, float **gradients,
                                       float **tied)
{
  const tri_parameters *p = x->plan.parameters;
  if (x->open_block != block || x->open_i != i) {
    x->open = place_of(x, block);
    x->open_block = block;
    x->open_i = i;
    if (tri_deal_begins_leaf(&x->plan.deal, x->rank, i)) TRI_CALL(clear(x, x->open, block));
  }
  *gradients = x->open->data;
  *tied = x->open->data + (p->offsets[block + 1] - p->offsets[block]);
  return TRI_OK;
}

static tri_status queue_bucket(tri_leaf_exchange *x, int bucket, int round)
{
  TRI_ASSERT(x->n_queued < x->queue_room);
  TRI_CALL(tri_event_record(x->ready[bucket], x->compute));
  x->queue[(x->queue_first + x->n_queued++) % x->queue_room] = (leaf_bucket){
      .bucket = bucket, .round = round, .sends = has_leaf(x, round, x->rank), .from = x->open};
  x->open->n_pending++;
  return TRI_OK;
}

tri_status tri_leaf_exchange_block_done(tri_leaf_exchange *x, int i, int block)
{
  TRI_ASSERT(x->open_block == block && x->open_i == i);
  x->open_block = -1;
  if (!tri_deal_ends_leaf(&x->plan.deal, x->rank, i)) return TRI_OK;
  for (int b = 0; b < x->plan.buckets->n; b++) {
    if (x->plan.buckets->list[b].ready_block != block) continue;
    TRI_CALL(queue_bucket(x, b, tri_deal_round_of(&x->plan.deal, i)));
  }
  TRI_CALL(progress(x));
  while (!x->plan.overlap && x->open->n_pending > 0)
    TRI_CALL(wait_for_oldest(x));
  return TRI_OK;
}

// --- the end of a step

// The second use of a tied array, where both are held: each owner has both gradients of an element.
static tri_status add_tied(tri_leaf_exchange *x)
{
  const tri_buckets *buckets = x->plan.buckets;
  const tri_parameters *p = x->plan.parameters;
  for (int b = 0; b < buckets->n; b++) {
    int64_t first;
    const int64_t n = slice_of(x, b, x->rank, &first);
    if (!is_tied(x, b) || n == 0) continue;
    // Its elements in the flat space lie in one range, since both are cut at the same places.
    const int64_t owner = first - p->flat_count + p->list[p->tied].offset;
    int r = 0;
    while (owner >= x->owned[r].end)
      r++;
    TRI_ASSERT(owner >= x->owned[r].first && owner + n <= x->owned[r].end);
    float *sum = x->sums + x->owned[r].gradient_at + (owner - x->owned[r].first);
    TRI_CALL(x->kernels->add(x->compute, sum, sum, x->sums + x->bucket_at[b], n));
  }
  return TRI_OK;
}

// One transfer a slot, in order, of the buckets up to an end of the space.
static tri_status gather_buckets(tri_leaf_exchange *x, const char *what, char *array, int64_t from,
                                 int64_t to, size_t size)
{
  const int n = x->plan.buckets->n;
  for (int b = 0; b < n + x->plan.in_flight; b++) {
    exchange_slot *slot = slot_of(x, b);
    if (slot->transfer != NULL) TRI_CALL(tri_transport_wait(&slot->transfer));
    if (b >= n) continue;
    const tri_bucket *bucket = &x->plan.buckets->list[b];
    if (bucket->first < from || bucket->end > to) continue;
    const int k = tri_bucket_gather_messages(bucket, x->size, x->rank, b,
                                             array + (size_t)bucket->first * size, size, x->sends,
                                             x->receives);
    TRI_CALL(tri_transport_start(x->transport, what, x->compute, x->sends, k, x->receives, k,
                                 &slot->transfer));
  }
  return TRI_OK;
}

// The whole of it, for the stage that owns the array; in the memory of the last block's gradient.
static tri_status gather_tied(tri_leaf_exchange *x, float **tied)
{
  const tri_parameters *p = x->plan.parameters;
  const int last = p->n_blocks - 1;
  const block_place *place = keeps_leaves(x) ? &x->places[last] : &x->places[0];
  float *whole = place->data + (p->offsets[last + 1] - p->offsets[last]);
  for (int b = 0; b < x->plan.buckets->n; b++) {
    int64_t first;
    const int64_t n = slice_of(x, b, x->rank, &first);
    if (!is_tied(x, b) || n == 0) continue;
    TRI_CALL(tri_stream_copy_on_device(x->compute, whole + (first - p->flat_count),
                                       x->sums + x->bucket_at[b], (size_t)n * sizeof(float)));
  }
  *tied = whole;
  return gather_buckets(x, "gradient gather", (char *)(whole - p->flat_count), p->flat_count,
                        tri_parameters_gradient_count(p), sizeof(float));
}

tri_status tri_leaf_exchange_finish(tri_leaf_exchange *x, float **sum, float **tied)
{
  const tri_parameters *p = x->plan.parameters;
  TRI_CALL(progress(x));
  while (x->n_done < x->n_started)
    TRI_CALL(wait_for_oldest(x));
  TRI_CALL(tri_event_record(x->merged, x->stream));
  TRI_CALL(tri_event_wait(x->merged, x->compute));
  *sum = x->sums;
  *tied = NULL;
  if (p->tied_count == 0) return TRI_OK;
  return p->tied >= 0 ? add_tied(x) : gather_tied(x, tied);
}

tri_status tri_leaf_exchange_gather(tri_leaf_exchange *x, void *array, size_t element_size)
{
  return gather_buckets(x, "weight gather", array, 0, x->plan.parameters->flat_count, element_size);
}

tri_status tri_leaf_exchange_synchronize(tri_leaf_exchange *x)
{
  return tri_transport_synchronize(x->transport, x->merged);
}
