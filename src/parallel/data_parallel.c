#include "trireme/parallel/data_parallel.h"

#include <string.h>

#include "parallel/bucket_exchange.h"
#include "parallel/data_parallel_buckets.h"
#include "parallel/deal.h"
#include "parallel/leaf_exchange.h"
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

  tri_deal deal;

  // zero 0 and 1: sums of whole gradients.
  leaf_plan *leaves; // of the share
  int n_buffers;
  float *
      *buffers; // views into gradient_arena, a gradient array each; buffers[0] ends as the result
  tri_arena gradient_arena;

  tri_buckets buckets;
  tri_owned_range *own_ranges;
  const tri_owned_range *owned; // ascending
  int n_owned;
  int open_block, open_i;        // whose gradient is being computed; -1: none
  int n_ready;                   // buckets whose last leaf of this rank is merged
  bool recording;                // block_done exchanges nothing
  tri_bucket_exchange *exchange; // NULL for one rank
  tri_leaf_exchange *sharded;    // zero 2 and 3, in place of all of this
  double *values, *gathered;     // scratch of tri_data_parallel_sum
  double *ordered;
  int max_share; // micro-batches
};

// --- planning -----------------------------------------------------------------------------------

// Plays the stack of partial sums once: each leaf is computed on top, finished pairs merge
// downwards, so that after the last leaf the rank's maximal nodes lie in buffers 0, 1, … in leaf
// order.
static tri_status plan_leaves(tri_data_parallel *dp)
{
  const tri_sum_node share = tri_sum_tree_share(dp->options.n_leaves, dp->size, dp->rank);
  const int n = share.end - share.first;
  tri_sum_node stack[TRI_SUM_TREE_MAX_NODES];
  int depth = 0;
  dp->n_buffers = 1;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n, &dp->leaves));
  for (int i = 0; i < n; i++) {
    leaf_plan *plan = &dp->leaves[i];
    plan->buffer = depth;
    stack[depth++] = (tri_sum_node){share.first + i, share.first + i + 1};
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
    const int n = tri_deal_count(&dp->deal, r);
    if (n > dp->max_share) dp->max_share = n;
  }
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->options.n_microbatches, &dp->ordered));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->max_share + 1, &dp->values));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, (dp->max_share + 1) * dp->size, &dp->gathered));
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
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, dp->buckets.n + 1, &dp->own_ranges));
  dp->owned = dp->own_ranges;
  if (!is_sharded(dp)) {
    dp->own_ranges[dp->n_owned++] = (tri_owned_range){0, flat, 0, 0};
    return TRI_OK;
  }
  int64_t first, end;
  for (int64_t from = 0; from < flat;) {
    int b = 0;
    while (dp->buckets.list[b].first != from)
      b++;
    tri_bucket_slice(&dp->buckets.list[b], dp->size, dp->rank, &first, &end);
    if (first < end) dp->own_ranges[dp->n_owned++] = (tri_owned_range){first, end, at, first};
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
  TRI_CHECK(options->zero >= 0 && options->zero <= 3 && (options->zero == 0 || !options->fast),
            TRI_ERR_CONFIG,
            "parallel.zero %d%s is not there: 0, or 1 to 3 with parallel.reduce exact",
            options->zero, options->fast ? " with parallel.reduce fast" : "");
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

// Sums of whole gradients.
static tri_status plan_whole(tri_data_parallel *dp, tri_transport *transport,
                             const tri_model *model)
{
  TRI_CALL(plan_leaves(dp));
  TRI_CALL(tri_buckets_plan(model, dp->options.first_blocks, dp->options.n_chunks,
                            dp->options.bucket_bytes, &dp->buckets));
  TRI_CALL(plan_owned(dp));
  TRI_CALL(plan_buffers(dp));
  return plan_exchange(dp, transport);
}

// Sums of slices; each block has buckets of its own.
static tri_status plan_sharded(tri_data_parallel *dp, tri_transport *transport,
                               const tri_model *model)
{
  int *blocks = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, model->n_blocks, &blocks));
  for (int block = 0; block < model->n_blocks; block++)
    blocks[block] = block;
  const tri_status status =
      tri_buckets_plan(model, blocks, model->n_blocks, dp->options.bucket_bytes, &dp->buckets);
  TRI_FREE(&blocks);
  TRI_CALL(status);
  const tri_leaf_exchange_plan plan = {.deal = dp->deal,
                                       .in_flight = dp->options.in_flight,
                                       .overlap = dp->options.overlap,
                                       .buckets = &dp->buckets,
                                       .parameters = dp->parameters};
  TRI_CALL(tri_leaf_exchange_create(transport, dp->stream, &plan, &dp->sharded));
  dp->n_owned = tri_leaf_exchange_owned(dp->sharded, &dp->owned);
  return TRI_OK;
}

static tri_status create_local(tri_data_parallel *dp, tri_transport *transport,
                               const tri_model *model)
{
  TRI_CALL(check_options(&dp->options));
  TRI_CALL(plan_sums(dp));
  return dp->deal.by_rounds ? plan_sharded(dp, transport, model) : plan_whole(dp, transport, model);
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
    dp->deal = (tri_deal){.n_leaves = options->n_leaves,
                          .leaf_microbatches = options->leaf_microbatches,
                          .n_microbatches = options->n_microbatches,
                          .size = dp->size,
                          .by_rounds = options->zero >= 2 && dp->size > 1};
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
  tri_leaf_exchange_destroy(&d->sharded);
  tri_arena_end(&d->gradient_arena);
  tri_buckets_free(&d->buckets);
  TRI_FREE(&d->own_ranges);
  TRI_FREE(&d->leaves);
  TRI_FREE(&d->buffers);
  TRI_FREE(&d->values);
  TRI_FREE(&d->gathered);
  TRI_FREE(&d->ordered);
  TRI_FREE(dp);
}

int tri_data_parallel_count(const tri_data_parallel *dp)
{
  return tri_deal_count(&dp->deal, dp->rank);
}

int tri_data_parallel_microbatch(const tri_data_parallel *dp, int i)
{
  return tri_deal_microbatch(&dp->deal, dp->rank, i);
}

int tri_data_parallel_owned(const tri_data_parallel *dp, const tri_owned_range **out)
{
  *out = dp->owned;
  return dp->n_owned;
}

const tri_buckets *tri_data_parallel_buckets(const tri_data_parallel *dp)
{
  return &dp->buckets;
}

void tri_data_parallel_get_memory(const tri_data_parallel *dp, tri_data_parallel_memory *out)
{
  if (dp->sharded != NULL) {
    *out =
        (tri_data_parallel_memory){.gradient_bytes = tri_leaf_exchange_gradient_bytes(dp->sharded),
                                   .exchange_bytes = tri_leaf_exchange_bytes(dp->sharded)};
    return;
  }
  out->n_gradient_buffers = dp->n_buffers;
  out->gradient_bytes = dp->gradient_arena.size_bytes;
  out->exchange_bytes = dp->exchange == NULL ? 0 : tri_bucket_exchange_bytes(dp->exchange);
}

// --- a step -------------------------------------------------------------------------------------

tri_status tri_data_parallel_begin(tri_data_parallel *dp)
{
  dp->n_ready = 0;
  dp->open_block = -1;
  if (dp->sharded != NULL) tri_leaf_exchange_begin(dp->sharded);
  if (dp->exchange != NULL) tri_bucket_exchange_begin(dp->exchange);
  return TRI_OK;
}

static const leaf_plan *plan_of(const tri_data_parallel *dp, int i)
{
  return &dp->leaves[i / dp->options.leaf_microbatches];
}

static bool ends_share(const tri_data_parallel *dp, int i)
{
  return i + 1 == tri_data_parallel_count(dp);
}

// Zeroed when a leaf begins.
static tri_status open_block(tri_data_parallel *dp, float *buffer, int i, int block)
{
  const tri_parameters *p = dp->parameters;
  const bool last = block + 1 == p->n_blocks;
  const int64_t end = last ? tri_parameters_gradient_count(p) : p->offsets[block + 1];
  if (dp->open_block == block && dp->open_i == i) return TRI_OK;
  dp->open_block = block;
  dp->open_i = i;
  if (!tri_deal_begins_leaf(&dp->deal, dp->rank, i)) return TRI_OK;
  return dp->kernels->fill(dp->stream, buffer + p->offsets[block], 0.0f, end - p->offsets[block]);
}

tri_status tri_data_parallel_gradients(tri_data_parallel *dp, int i, int block, float **gradients,
                                       float **tied)
{
  const tri_parameters *p = dp->parameters;
  if (dp->sharded != NULL)
    return tri_leaf_exchange_gradients(dp->sharded, i, block, gradients, tied);
  float *buffer = dp->buffers[plan_of(dp, i)->buffer];
  TRI_CALL(open_block(dp, buffer, i, block));
  *gradients = buffer + p->offsets[block];
  *tied = buffer + p->flat_count;
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

tri_status tri_data_parallel_block_done(tri_data_parallel *dp, int i, int block)
{
  if (dp->sharded != NULL) return tri_leaf_exchange_block_done(dp->sharded, i, block);
  dp->open_block = -1;
  if (!tri_deal_ends_leaf(&dp->deal, dp->rank, i)) return TRI_OK;
  const bool last_leaf = ends_share(dp, i);
  const leaf_plan *plan = plan_of(dp, i);
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

tri_status tri_data_parallel_launched(tri_data_parallel *dp, int i)
{
  if (!ends_share(dp, i) || dp->exchange == NULL) return TRI_OK;
  tri_bucket_exchange_launched(dp->exchange, dp->buckets.n);
  if (dp->options.overlap) TRI_CALL(tri_bucket_exchange_progress(dp->exchange));
  return TRI_OK;
}

// The second use of a tied array, where its owner is held.
static tri_status add_tied(tri_data_parallel *dp, float *sum)
{
  const tri_parameters *parameters = dp->parameters;
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

tri_status tri_data_parallel_wait(tri_data_parallel *dp, float **gradient, float **tied)
{
  const tri_parameters *parameters = dp->parameters;
  if (dp->sharded != NULL) return tri_leaf_exchange_finish(dp->sharded, gradient, tied);
  if (dp->exchange != NULL) TRI_CALL(tri_bucket_exchange_finish(dp->exchange));
  *gradient = dp->buffers[0];
  *tied = NULL;
  if (parameters->tied_count == 0) return TRI_OK;
  if (parameters->tied >= 0) return add_tied(dp, *gradient);
  *tied = *gradient + parameters->flat_count;
  return TRI_OK;
}

tri_status tri_data_parallel_gather_weights(tri_data_parallel *dp, void *weights, tri_dtype dtype)
{
  if (dp->sharded != NULL)
    return tri_leaf_exchange_gather(dp->sharded, weights, tri_dtype_size(dtype));
  if (!is_sharded(dp)) return TRI_OK;
  return tri_bucket_exchange_gather(dp->exchange, weights, dp->parameters->flat_count,
                                    tri_dtype_size(dtype));
}

tri_status tri_data_parallel_synchronize(tri_data_parallel *dp)
{
  if (dp->sharded != NULL) return tri_leaf_exchange_synchronize(dp->sharded);
  if (dp->exchange != NULL) TRI_CALL(tri_bucket_exchange_synchronize(dp->exchange));
  return TRI_OK;
}

// --- numbers ------------------------------------------------------------------------------------

tri_status tri_data_parallel_sum(tri_data_parallel *dp, const char *what, const double *own,
                                 double *out)
{
  const int width = dp->max_share + 1;
  for (int i = 0; i < tri_data_parallel_count(dp); i++)
    dp->values[i] = own[i];
  TRI_CALL(tri_comm_all_gather(dp->comm, what, dp->values, (size_t)width * sizeof(double),
                               dp->gathered));
  for (int r = 0; r < dp->size; r++) {
    for (int i = 0; i < tri_deal_count(&dp->deal, r); i++) {
      const int m = tri_deal_microbatch(&dp->deal, r, i);
      if (m >= 0) dp->ordered[m] = dp->gathered[r * width + i];
    }
  }
  // A leaf's sum takes the place of a micro-batch that is no longer needed.
  for (int leaf = 0; leaf < dp->options.n_leaves; leaf++) {
    const tri_sum_node micro = tri_deal_leaf(&dp->deal, leaf);
    double sum = 0.0;
    for (int m = micro.first; m < micro.end; m++)
      sum += dp->ordered[m];
    dp->ordered[leaf] = sum;
  }
  *out = tri_sum_tree_double(dp->ordered, dp->options.n_leaves);
  return TRI_OK;
}
