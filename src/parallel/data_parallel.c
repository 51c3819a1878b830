#include "trireme/parallel/data_parallel.h"

#include <string.h>

#include "parallel/buckets.h"
#include "trireme/base/memory.h"
#include "trireme/device/arena.h"

// One addition of the tree between two gradient buffers: buffer[into] += buffer[from].
typedef struct merge {
  int into, from;
} merge;

// What becomes of a leaf once its gradient is complete.
typedef struct leaf_plan {
  int buffer; // where it is computed
  merge merges[TRI_SUM_TREE_MAX_NODES];
  int n_merges;
} leaf_plan;

// A bucket's way: idle until ready, then partial sums to the owners, then results to all.
typedef enum exchange_stage { STAGE_IDLE, STAGE_SCATTER, STAGE_GATHER, STAGE_DONE } exchange_stage;

typedef struct exchange_slot {
  exchange_stage stage;
  int bucket;
  tri_request *request;
  float *received; // partial sums of this rank's slice from all others, one after another
} exchange_slot;

struct tri_data_parallel {
  tri_comm *comm;     // borrowed
  tri_stream *stream; // borrowed
  const tri_kernels *kernels;
  tri_data_parallel_options options;
  int rank, size;
  int64_t flat_count;

  tri_sum_node share; // leaves
  leaf_plan *leaves;  // of the share
  int n_buffers;
  float **buffers; // views into gradient_arena, flat_count each; buffers[0] ends as the result
  tri_arena gradient_arena;

  tri_sum_node *nodes; // of all ranks, in leaf order
  int *first_node;     // (size + 1): nodes of rank r are [first_node[r], first_node[r + 1])
  tri_buckets buckets;
  exchange_slot *slots;
  tri_arena exchange_arena;
  int n_ready, n_started, n_done; // buckets; each runs through the list in order
  tri_message *sends, *receives;  // scratch for one group
  double *values, *gathered;      // scratch of tri_data_parallel_sum
  int max_share;                  // micro-batches
};

static int leaves_first_microbatch(const tri_data_parallel *dp, int leaf)
{
  const int m = leaf * dp->options.leaf_microbatches;
  return m < dp->options.n_microbatches ? m : dp->options.n_microbatches;
}

static tri_sum_node microbatches_of(const tri_data_parallel *dp, int rank)
{
  const tri_sum_node leaves = tri_sum_tree_share(dp->options.n_leaves, dp->size, rank);
  return (tri_sum_node){leaves_first_microbatch(dp, leaves.first),
                        leaves_first_microbatch(dp, leaves.end)};
}

static int leaf_of(const tri_data_parallel *dp, int microbatch)
{
  return microbatch / dp->options.leaf_microbatches;
}

static bool is_first_of_leaf(const tri_data_parallel *dp, int microbatch)
{
  return microbatch % dp->options.leaf_microbatches == 0;
}

static bool is_last_of_leaf(const tri_data_parallel *dp, int microbatch)
{
  return microbatch + 1 == leaves_first_microbatch(dp, leaf_of(dp, microbatch) + 1);
}

static bool siblings(int n, tri_sum_node left, tri_sum_node right, tri_sum_node *parent)
{
  tri_sum_node left_parent, right_parent;
  bool left_is_left, right_is_left;
  if (!tri_sum_tree_parent(n, left, &left_parent, &left_is_left)) return false;
  if (!tri_sum_tree_parent(n, right, &right_parent, &right_is_left)) return false;
  *parent = left_parent;
  return left_is_left && !right_is_left && left_parent.first == right_parent.first &&
         left_parent.end == right_parent.end;
}

// --- planning -----------------------------------------------------------------------------------

// Plays the stack of partial sums once: each leaf is computed on top, finished pairs merge
// downwards, so that after the last leaf the rank's maximal nodes lie in buffers 0, 1, … in leaf
// order.
static tri_status plan_leaves(tri_data_parallel *dp)
{
  const int n = dp->share.end - dp->share.first;
  tri_sum_node stack[TRI_SUM_TREE_MAX_NODES];
  int depth = 0;
  dp->n_buffers = 1;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n, &dp->leaves));
  for (int i = 0; i < n; i++) {
    leaf_plan *plan = &dp->leaves[i];
    plan->buffer = depth;
    stack[depth++] = (tri_sum_node){dp->share.first + i, dp->share.first + i + 1};
    if (depth > dp->n_buffers) dp->n_buffers = depth;
    tri_sum_node parent;
    while (depth >= 2 &&
           siblings(dp->options.n_leaves, stack[depth - 2], stack[depth - 1], &parent)) {
      plan->merges[plan->n_merges++] = (merge){.into = depth - 2, .from = depth - 1};
      stack[depth - 2] = parent;
      depth--;
    }
  }
  return TRI_OK;
}

static tri_status plan_nodes(tri_data_parallel *dp)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->size * TRI_SUM_TREE_MAX_NODES, &dp->nodes));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->size + 1, &dp->first_node));
  for (int r = 0; r < dp->size; r++) {
    const tri_sum_node share = tri_sum_tree_share(dp->options.n_leaves, dp->size, r);
    const int first = dp->first_node[r];
    dp->first_node[r + 1] =
        first + tri_sum_tree_nodes(dp->options.n_leaves, share, dp->nodes + first);
    const tri_sum_node micro = microbatches_of(dp, r);
    if (micro.end - micro.first > dp->max_share) dp->max_share = micro.end - micro.first;
  }
  return TRI_OK;
}

static int nodes_of(const tri_data_parallel *dp, int rank)
{
  return dp->first_node[rank + 1] - dp->first_node[rank];
}

static tri_status plan_buffers(tri_data_parallel *dp)
{
  tri_device *device = tri_stream_device(dp->stream);
  tri_arena_begin(&dp->gradient_arena, device, "gradients");
  const size_t bytes = (size_t)dp->flat_count * sizeof(float);
  size_t *offsets = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->n_buffers, &offsets));
  for (int i = 0; i < dp->n_buffers; i++) {
    offsets[i] = tri_arena_reserve(&dp->gradient_arena, bytes);
  }
  tri_status status = TRI_OK;
  TRI_CALL_GOTO(done, tri_arena_commit(&dp->gradient_arena));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, dp->n_buffers, &dp->buffers));
  for (int i = 0; i < dp->n_buffers; i++) {
    dp->buffers[i] = tri_arena_at(&dp->gradient_arena, offsets[i]);
  }

done:
  TRI_FREE(&offsets);
  return status;
}

// Elements of the largest slice this rank owns, over all buckets.
static int64_t largest_slice(const tri_data_parallel *dp)
{
  int64_t largest = 0;
  for (int b = 0; b < dp->buckets.n; b++) {
    int64_t first, end;
    tri_bucket_slice(&dp->buckets.list[b], dp->size, dp->rank, &first, &end);
    if (end - first > largest) largest = end - first;
  }
  return largest;
}

static tri_status plan_exchange(tri_data_parallel *dp)
{
  const int all_nodes = dp->first_node[dp->size];
  const int n_messages = all_nodes + (dp->size - 1) * (nodes_of(dp, dp->rank) + 2);
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n_messages, &dp->sends));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n_messages, &dp->receives));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->max_share + 1, &dp->values));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, (dp->max_share + 1) * (dp->size + 1), &dp->gathered));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->options.in_flight, &dp->slots));
  tri_arena_begin(&dp->exchange_arena, tri_stream_device(dp->stream), "exchange");
  if (dp->size == 1) return TRI_OK;
  TRI_CALL(tri_comm_reserve(dp->comm, dp->options.in_flight, n_messages));
  const int64_t received = largest_slice(dp) * (all_nodes - nodes_of(dp, dp->rank));
  const size_t slot_bytes = (size_t)received * sizeof(float);
  for (int i = 0; i < dp->options.in_flight; i++) {
    (void)tri_arena_reserve(&dp->exchange_arena, slot_bytes);
  }
  TRI_CALL(tri_arena_commit(&dp->exchange_arena));
  const size_t stride = dp->exchange_arena.size_bytes / (size_t)dp->options.in_flight;
  for (int i = 0; i < dp->options.in_flight; i++) {
    dp->slots[i].received = tri_arena_at(&dp->exchange_arena, (size_t)i * stride);
  }
  return TRI_OK;
}

static tri_status check_options(const tri_data_parallel_options *options)
{
  TRI_CHECK(options->n_leaves >= 1 && options->leaf_microbatches >= 1 && options->in_flight >= 1 &&
                options->n_leaves <= options->n_microbatches &&
                (int64_t)options->n_leaves * options->leaf_microbatches >= options->n_microbatches,
            TRI_ERR_ARGUMENT, "%d leaves of %d micro-batches do not make a batch of %d",
            options->n_leaves, options->leaf_microbatches, options->n_microbatches);
  return TRI_OK;
}

static tri_status create_local(tri_data_parallel *dp, const tri_model *model)
{
  tri_device_facts facts;
  TRI_CALL(check_options(&dp->options));
  tri_device_get_facts(tri_stream_device(dp->stream), &facts);
  TRI_CHECK(facts.host_memory || dp->size == 1, TRI_ERR_UNSUPPORTED,
            "gradients on device %s have no transport between ranks in this version", facts.name);
  TRI_CALL(plan_leaves(dp));
  TRI_CALL(plan_nodes(dp));
  TRI_CALL(tri_buckets_plan(model, dp->options.bucket_bytes, &dp->buckets));
  TRI_CALL(plan_buffers(dp));
  return plan_exchange(dp);
}

tri_status tri_data_parallel_create(tri_comm *comm, tri_stream *stream, const tri_model *model,
                                    const tri_data_parallel_options *options,
                                    tri_data_parallel **out)
{
  tri_data_parallel *dp = NULL;
  tri_status status = TRI_NEW(TRI_MODULE_PARALLEL, 1, &dp);
  if (status == TRI_OK) {
    dp->comm = comm;
    dp->stream = stream;
    dp->kernels = tri_device_kernels(tri_stream_device(stream));
    dp->options = *options;
    dp->rank = tri_comm_rank(comm);
    dp->size = tri_comm_size(comm);
    dp->flat_count = model->parameters.flat_count;
    dp->share = tri_sum_tree_share(options->n_leaves, dp->size, dp->rank);
    status = create_local(dp, model);
  }
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "plan of data parallelism", status));
  *out = dp;
  return TRI_OK;

err_destroy:
  tri_data_parallel_destroy(&dp);
  return status;
}

void tri_data_parallel_destroy(tri_data_parallel **dp)
{
  tri_data_parallel *d = *dp;
  if (d == NULL) return;
  tri_arena_end(&d->gradient_arena);
  tri_arena_end(&d->exchange_arena);
  tri_buckets_free(&d->buckets);
  TRI_FREE(&d->leaves);
  TRI_FREE(&d->buffers);
  TRI_FREE(&d->nodes);
  TRI_FREE(&d->first_node);
  TRI_FREE(&d->slots);
  TRI_FREE(&d->sends);
  TRI_FREE(&d->receives);
  TRI_FREE(&d->values);
  TRI_FREE(&d->gathered);
  TRI_FREE(dp);
}

void tri_data_parallel_share(const tri_data_parallel *dp, int *first, int *end)
{
  const tri_sum_node share = microbatches_of(dp, dp->rank);
  *first = share.first;
  *end = share.end;
}

void tri_data_parallel_get_memory(const tri_data_parallel *dp, tri_data_parallel_memory *out)
{
  out->n_gradient_buffers = dp->n_buffers;
  out->gradient_bytes = dp->gradient_arena.size_bytes;
  out->exchange_bytes = dp->exchange_arena.size_bytes;
}

// --- the exchange of one bucket -----------------------------------------------------------------

static size_t slice_of(const tri_data_parallel *dp, const tri_bucket *bucket, int rank,
                       int64_t *first)
{
  int64_t end;
  tri_bucket_slice(bucket, dp->size, rank, first, &end);
  return (size_t)(end - *first) * sizeof(float);
}

// Sends the partial sums of every other rank's slice, receives those of the own slice.
static tri_status start_scatter(tri_data_parallel *dp, exchange_slot *slot)
{
  const tri_bucket *bucket = &dp->buckets.list[slot->bucket];
  int n_sends = 0, n_receives = 0;
  int64_t first;
  const size_t own_bytes = slice_of(dp, bucket, dp->rank, &first);
  char *received = (char *)slot->received;
  for (int r = 0; r < dp->size; r++) {
    if (r == dp->rank) continue;
    const size_t bytes = slice_of(dp, bucket, r, &first);
    for (int k = 0; k < nodes_of(dp, dp->rank); k++) {
      dp->sends[n_sends++] = (tri_message){dp->buffers[k] + first, bytes, r, 2 * slot->bucket};
    }
    for (int k = 0; k < nodes_of(dp, r); k++) {
      dp->receives[n_receives++] = (tri_message){received, own_bytes, r, 2 * slot->bucket};
      received += own_bytes;
    }
  }
  TRI_CALL(tri_stream_synchronize(dp->stream));
  TRI_CALL(tri_comm_exchange_start(dp->comm, "gradient scatter", dp->sends, n_sends, dp->receives,
                                   n_receives, &slot->request));
  slot->stage = STAGE_SCATTER;
  return TRI_OK;
}

// Merges the partial sums of the own slice in tree order; the last addition lands in the result.
static tri_status merge_slice(tri_data_parallel *dp, const exchange_slot *slot)
{
  int64_t first;
  const size_t bytes = slice_of(dp, &dp->buckets.list[slot->bucket], dp->rank, &first);
  const int64_t n = (int64_t)(bytes / sizeof(float));
  float *result = dp->buffers[0] + first;
  struct {
    tri_sum_node node;
    float *data;
  } stack[2 * TRI_SUM_TREE_MAX_NODES];
  int depth = 0;
  const float *received = slot->received;
  for (int r = 0; r < dp->size; r++) {
    for (int k = 0; k < nodes_of(dp, r); k++) {
      stack[depth].node = dp->nodes[dp->first_node[r] + k];
      stack[depth].data = r == dp->rank ? dp->buffers[k] + first : (float *)received;
      if (r != dp->rank) received += n;
      depth++;
      tri_sum_node parent;
      while (depth >= 2 && siblings(dp->options.n_leaves, stack[depth - 2].node,
                                    stack[depth - 1].node, &parent)) {
        float *left = stack[depth - 2].data;
        const bool is_root = parent.first == 0 && parent.end == dp->options.n_leaves;
        float *into = is_root ? result : left;
        TRI_CALL(dp->kernels->add(dp->stream, into, left, stack[depth - 1].data, n));
        stack[depth - 2].node = parent;
        stack[depth - 2].data = into;
        depth--;
      }
    }
  }
  TRI_ASSERT(depth == 1);
  if (stack[0].data == result) return TRI_OK;
  return tri_stream_copy_on_device(dp->stream, result, stack[0].data, bytes);
}

static tri_status start_gather(tri_data_parallel *dp, exchange_slot *slot)
{
  TRI_CALL(merge_slice(dp, slot));
  const tri_bucket *bucket = &dp->buckets.list[slot->bucket];
  int n = 0;
  int64_t own_first, first;
  const size_t own_bytes = slice_of(dp, bucket, dp->rank, &own_first);
  for (int r = 0; r < dp->size; r++) {
    if (r == dp->rank) continue;
    const size_t bytes = slice_of(dp, bucket, r, &first);
    const int tag = 2 * slot->bucket + 1;
    dp->sends[n] = (tri_message){dp->buffers[0] + own_first, own_bytes, r, tag};
    dp->receives[n] = (tri_message){dp->buffers[0] + first, bytes, r, tag};
    n++;
  }
  TRI_CALL(tri_stream_synchronize(dp->stream));
  TRI_CALL(tri_comm_exchange_start(dp->comm, "gradient gather", dp->sends, n, dp->receives, n,
                                   &slot->request));
  slot->stage = STAGE_GATHER;
  return TRI_OK;
}

// Moves a slot on whose request is complete.
static tri_status advance(tri_data_parallel *dp, exchange_slot *slot)
{
  if (slot->stage == STAGE_SCATTER) return start_gather(dp, slot);
  slot->stage = STAGE_DONE;
  return TRI_OK;
}

static exchange_slot *slot_of(tri_data_parallel *dp, int bucket)
{
  return &dp->slots[bucket % dp->options.in_flight];
}

// Retires finished buckets from the front, in order.
static void retire(tri_data_parallel *dp)
{
  while (dp->n_done < dp->n_started && slot_of(dp, dp->n_done)->stage == STAGE_DONE) {
    slot_of(dp, dp->n_done)->stage = STAGE_IDLE;
    dp->n_done++;
  }
}

static tri_status start_ready(tri_data_parallel *dp)
{
  while (dp->n_started < dp->n_ready && dp->n_started < dp->n_done + dp->options.in_flight) {
    exchange_slot *slot = slot_of(dp, dp->n_started);
    slot->bucket = dp->n_started;
    TRI_CALL(start_scatter(dp, slot));
    dp->n_started++;
  }
  return TRI_OK;
}

// Whatever can move without waiting moves.
static tri_status progress(tri_data_parallel *dp)
{
  for (int b = dp->n_done; b < dp->n_started; b++) {
    exchange_slot *slot = slot_of(dp, b);
    if (slot->stage == STAGE_DONE) continue;
    bool done;
    TRI_CALL(tri_comm_request_test(&slot->request, &done));
    if (done) TRI_CALL(advance(dp, slot));
  }
  retire(dp);
  return start_ready(dp);
}

// --- a step -------------------------------------------------------------------------------------

tri_status tri_data_parallel_begin(tri_data_parallel *dp)
{
  dp->n_ready = dp->n_started = dp->n_done = 0;
  return TRI_OK;
}

static const leaf_plan *plan_of(const tri_data_parallel *dp, int microbatch)
{
  return &dp->leaves[leaf_of(dp, microbatch) - dp->share.first];
}

tri_status tri_data_parallel_gradients(tri_data_parallel *dp, int microbatch, float **out)
{
  float *buffer = dp->buffers[plan_of(dp, microbatch)->buffer];
  if (is_first_of_leaf(dp, microbatch)) {
    TRI_CALL(dp->kernels->fill(dp->stream, buffer, 0.0f, dp->flat_count));
  }
  *out = buffer;
  return TRI_OK;
}

static tri_status merge_bucket(tri_data_parallel *dp, const leaf_plan *plan,
                               const tri_bucket *bucket)
{
  for (int m = 0; m < plan->n_merges; m++) {
    float *into = dp->buffers[plan->merges[m].into] + bucket->first;
    const float *from = dp->buffers[plan->merges[m].from] + bucket->first;
    TRI_CALL(dp->kernels->add(dp->stream, into, into, from, bucket->end - bucket->first));
  }
  return TRI_OK;
}

tri_status tri_data_parallel_block_done(tri_data_parallel *dp, int microbatch, int block)
{
  if (!is_last_of_leaf(dp, microbatch)) return TRI_OK;
  const bool last_leaf = leaf_of(dp, microbatch) + 1 == dp->share.end;
  const leaf_plan *plan = plan_of(dp, microbatch);
  for (int b = 0; b < dp->buckets.n; b++) {
    const tri_bucket *bucket = &dp->buckets.list[b];
    if (bucket->ready_block != block) continue;
    TRI_CALL(merge_bucket(dp, plan, bucket));
    if (last_leaf) dp->n_ready = b + 1;
  }
  if (!last_leaf || !dp->options.overlap || dp->size == 1) return TRI_OK;
  return progress(dp);
}

tri_status tri_data_parallel_wait(tri_data_parallel *dp, const float **gradient)
{
  if (dp->size > 1) {
    dp->n_ready = dp->buckets.n;
    TRI_CALL(progress(dp));
    while (dp->n_done < dp->buckets.n) {
      exchange_slot *oldest = slot_of(dp, dp->n_done);
      TRI_CALL(tri_comm_request_wait(&oldest->request));
      TRI_CALL(advance(dp, oldest));
      TRI_CALL(progress(dp));
    }
  }
  *gradient = dp->buffers[0];
  return TRI_OK;
}

// --- numbers ------------------------------------------------------------------------------------

tri_status tri_data_parallel_sum(tri_data_parallel *dp, const char *what, const double *own,
                                 double *out)
{
  const int block = dp->max_share;
  const tri_sum_node mine = microbatches_of(dp, dp->rank);
  for (int m = 0; m < mine.end - mine.first; m++)
    dp->values[m] = own[m];
  TRI_CALL(tri_comm_all_gather(dp->comm, what, dp->values, (size_t)block * sizeof(double),
                               dp->gathered));
  // Compacted in place to micro-batch order, then to leaves: both run ahead of what is still to be
  // read.
  double *all = dp->gathered;
  int n = 0;
  for (int r = 0; r < dp->size; r++) {
    const tri_sum_node share = microbatches_of(dp, r);
    memmove(all + n, dp->gathered + (size_t)r * (size_t)block,
            (size_t)(share.end - share.first) * sizeof(double));
    n += share.end - share.first;
  }
  for (int leaf = 0; leaf < dp->options.n_leaves; leaf++) {
    double sum = 0.0;
    for (int m = leaves_first_microbatch(dp, leaf); m < leaves_first_microbatch(dp, leaf + 1);
         m++) {
      sum += all[m];
    }
    all[leaf] = sum;
  }
  *out = tri_sum_tree_double(all, dp->options.n_leaves);
  return TRI_OK;
}
