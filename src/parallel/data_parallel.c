#include "trireme/parallel/data_parallel.h"

#include <string.h>

#include "parallel/bucket_exchange.h"
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

struct tri_data_parallel {
  tri_comm *comm;     // of the transport
  tri_stream *stream; // borrowed
  const tri_kernels *kernels;
  tri_data_parallel_options options;
  int rank, size;
  const tri_parameters *parameters; // borrowed from the model

  tri_sum_node share; // leaves
  leaf_plan *leaves;  // of the share
  int n_buffers;
  float *
      *buffers; // views into gradient_arena, a gradient array each; buffers[0] ends as the result
  tri_arena gradient_arena;

  tri_buckets buckets;
  tri_owned_range *owned; // ascending
  int n_owned;
  int n_ready;                   // buckets whose last leaf of this rank is merged
  bool recording;                // block_done exchanges nothing
  tri_bucket_exchange *exchange; // NULL for one rank
  double *values, *gathered;     // scratch of tri_data_parallel_sum
  int max_share;                 // micro-batches
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
    while (depth >= 2 && tri_sum_tree_siblings(dp->options.n_leaves, stack[depth - 2],
                                               stack[depth - 1], &parent)) {
      plan->merges[plan->n_merges++] = (merge){.into = depth - 2, .from = depth - 1};
      stack[depth - 2] = parent;
      depth--;
    }
  }
  return TRI_OK;
}

static tri_status plan_sums(tri_data_parallel *dp)
{
  for (int r = 0; r < dp->size; r++) {
    const tri_sum_node micro = microbatches_of(dp, r);
    if (micro.end - micro.first > dp->max_share) dp->max_share = micro.end - micro.first;
  }
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->max_share + 1, &dp->values));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, (dp->max_share + 1) * (dp->size + 1), &dp->gathered));
  return TRI_OK;
}

static tri_status plan_buffers(tri_data_parallel *dp)
{
  tri_device *device = tri_stream_device(dp->stream);
  tri_arena_begin(&dp->gradient_arena, device, "gradients");
  const size_t bytes = (size_t)tri_parameters_gradient_count(dp->parameters) * sizeof(float);
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

static bool is_sharded(const tri_data_parallel *dp)
{
  return dp->options.zero > 0 && dp->size > 1;
}

// A second use whose array another stage holds goes there whole (tied.h).
static int64_t sharded_end(const tri_data_parallel *dp)
{
  if (!is_sharded(dp)) return 0;
  return dp->parameters->tied < 0 ? dp->parameters->flat_count
                                  : tri_parameters_gradient_count(dp->parameters);
}

// The slices of this rank of the buckets that lie in the flat space, which cover it.
static tri_status plan_owned(tri_data_parallel *dp)
{
  const int64_t flat = dp->parameters->flat_count;
  int64_t at = 0;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->buckets.n + 1, &dp->owned));
  if (!is_sharded(dp)) {
    dp->owned[dp->n_owned++] = (tri_owned_range){0, flat, 0};
    return TRI_OK;
  }
  int64_t first, end;
  for (int64_t from = 0; from < flat;) {
    int b = 0;
    while (dp->buckets.list[b].first != from)
      b++;
    tri_bucket_slice(&dp->buckets.list[b], dp->size, dp->rank, &first, &end);
    if (first < end) dp->owned[dp->n_owned++] = (tri_owned_range){first, end, at};
    at += end - first;
    from = dp->buckets.list[b].end;
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
  TRI_CHECK(options->zero == 0 || (options->zero == 1 && !options->fast), TRI_ERR_ARGUMENT,
            "zero %d%s is not there: 0, or 1 with exact sums", options->zero,
            options->fast ? " with fast sums" : "");
  return TRI_OK;
}

static tri_status plan_exchange(tri_data_parallel *dp, tri_transport *transport)
{
  if (dp->size == 1) return TRI_OK;
  const tri_bucket_exchange_plan plan = {.n_leaves = dp->options.n_leaves,
                                         .in_flight = dp->options.in_flight,
                                         .fast = dp->options.fast,
                                         .sharded_end = sharded_end(dp),
                                         .buckets = &dp->buckets,
                                         .buffers = dp->buffers};
  TRI_CALL(tri_bucket_exchange_create(transport, dp->stream, &plan, &dp->exchange));
  return TRI_OK;
}

static tri_status create_local(tri_data_parallel *dp, tri_transport *transport,
                               const tri_model *model)
{
  TRI_CALL(check_options(&dp->options));
  TRI_CALL(plan_leaves(dp));
  TRI_CALL(plan_sums(dp));
  TRI_CALL(tri_buckets_plan(model, dp->options.first_blocks, dp->options.n_chunks,
                            dp->options.bucket_bytes, &dp->buckets));
  TRI_CALL(plan_owned(dp));
  TRI_CALL(plan_buffers(dp));
  TRI_CALL(plan_exchange(dp, transport));
  return TRI_OK;
}

tri_status tri_data_parallel_create(tri_transport *transport, tri_stream *stream,
                                    const tri_model *model,
                                    const tri_data_parallel_options *options,
                                    tri_data_parallel **out)
{
  tri_comm *comm = tri_transport_comm(transport);
  tri_data_parallel *dp = NULL;
  tri_status status = TRI_NEW(TRI_MODULE_PARALLEL, 1, &dp);
  if (status == TRI_OK) {
    dp->comm = comm;
    dp->stream = stream;
    dp->kernels = tri_device_kernels(tri_stream_device(stream));
    dp->options = *options;
    dp->rank = tri_comm_rank(comm);
    dp->size = tri_comm_size(comm);
    dp->parameters = &model->parameters;
    dp->share = tri_sum_tree_share(options->n_leaves, dp->size, dp->rank);
    status = create_local(dp, transport, model);
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
  tri_bucket_exchange_destroy(&d->exchange);
  tri_arena_end(&d->gradient_arena);
  tri_buckets_free(&d->buckets);
  TRI_FREE(&d->owned);
  TRI_FREE(&d->leaves);
  TRI_FREE(&d->buffers);
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

int tri_data_parallel_owned(const tri_data_parallel *dp, const tri_owned_range **out)
{
  *out = dp->owned;
  return dp->n_owned;
}

void tri_data_parallel_get_memory(const tri_data_parallel *dp, tri_data_parallel_memory *out)
{
  out->n_gradient_buffers = dp->n_buffers;
  out->gradient_bytes = dp->gradient_arena.size_bytes;
  out->exchange_bytes = dp->exchange == NULL ? 0 : tri_bucket_exchange_bytes(dp->exchange);
}

// --- a step -------------------------------------------------------------------------------------

tri_status tri_data_parallel_begin(tri_data_parallel *dp)
{
  dp->n_ready = 0;
  if (dp->exchange != NULL) tri_bucket_exchange_begin(dp->exchange);
  return TRI_OK;
}

static const leaf_plan *plan_of(const tri_data_parallel *dp, int microbatch)
{
  return &dp->leaves[leaf_of(dp, microbatch) - dp->share.first];
}

tri_status tri_data_parallel_gradients(tri_data_parallel *dp, int microbatch, int first_block,
                                       int end_block, float **out)
{
  const tri_parameters *parameters = dp->parameters;
  float *buffer = dp->buffers[plan_of(dp, microbatch)->buffer];
  *out = buffer;
  if (!is_first_of_leaf(dp, microbatch)) return TRI_OK;
  const int64_t first = parameters->offsets[first_block];
  const int64_t end = end_block == parameters->n_blocks ? tri_parameters_gradient_count(parameters)
                                                        : parameters->offsets[end_block];
  return dp->kernels->fill(dp->stream, buffer + first, 0.0f, end - first);
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
  if (!last_leaf || dp->exchange == NULL) return TRI_OK;
  TRI_CALL(tri_bucket_exchange_ready(dp->exchange, dp->n_ready));
  if (dp->options.overlap && !dp->recording) TRI_CALL(tri_bucket_exchange_progress(dp->exchange));
  return TRI_OK;
}

void tri_data_parallel_record(tri_data_parallel *dp, bool recording)
{
  dp->recording = recording;
}

tri_status tri_data_parallel_launched(tri_data_parallel *dp, int microbatch)
{
  const bool last = is_last_of_leaf(dp, microbatch) && leaf_of(dp, microbatch) + 1 == dp->share.end;
  if (!last || dp->exchange == NULL) return TRI_OK;
  tri_bucket_exchange_launched(dp->exchange, dp->buckets.n);
  if (dp->options.overlap) TRI_CALL(tri_bucket_exchange_progress(dp->exchange));
  return TRI_OK;
}

tri_status tri_data_parallel_wait(tri_data_parallel *dp, float **gradient)
{
  const tri_parameters *parameters = dp->parameters;
  float *sum = dp->buffers[0];
  if (dp->exchange != NULL) TRI_CALL(tri_bucket_exchange_finish(dp->exchange));
  *gradient = sum;
  if (parameters->tied < 0 || parameters->tied_count == 0) return TRI_OK;
  const int64_t tied = parameters->list[parameters->tied].offset;
  const int64_t tied_end = tied + parameters->tied_count;
  for (int r = 0; r < dp->n_owned; r++) {
    const tri_owned_range *range = &dp->owned[r];
    const int64_t first = range->first > tied ? range->first : tied;
    const int64_t end = range->end < tied_end ? range->end : tied_end;
    if (first >= end) continue;
    const float *second_use = sum + parameters->flat_count + (first - tied);
    TRI_CALL(dp->kernels->add(dp->stream, sum + first, sum + first, second_use, end - first));
  }
  return TRI_OK;
}

tri_status tri_data_parallel_gather_weights(tri_data_parallel *dp, void *weights, tri_dtype dtype)
{
  if (!is_sharded(dp)) return TRI_OK;
  return tri_bucket_exchange_gather(dp->exchange, weights, dp->parameters->flat_count,
                                    tri_dtype_size(dtype));
}

tri_status tri_data_parallel_synchronize(tri_data_parallel *dp)
{
  if (dp->exchange != NULL) TRI_CALL(tri_bucket_exchange_synchronize(dp->exchange));
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
