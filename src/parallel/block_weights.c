#include "trireme/parallel/block_weights.h"

#include "parallel/data_parallel_buckets.h"
#include "parallel/weight_places.h"
#include "trireme/base/memory.h"
#include "trireme/device/arena.h"

typedef struct weight_place {
  char *data;
  tri_transfer *transfer; // NULL: nothing is on its way to it
  bool waited;            // the compute stream sees what lies here
  tri_event *came;
} weight_place;

struct tri_block_weights {
  tri_comm *comm; // of its own
  tri_transport *transport;
  tri_stream *compute; // borrowed
  tri_stream *stream;  // brings weights
  const tri_parameters *parameters;
  const tri_buckets *buckets; // both borrowed
  int64_t *bucket_at;         // (n buckets): place of the own slice among all that is owned
  int rank, size;
  size_t element_bytes;

  const char *owned; // borrowed
  tri_weight_places where;
  weight_place places[WEIGHT_PLACES];
  tri_arena arena;
  tri_message *sends, *receives;
  tri_event
      *used; // the compute stream is done with what is overwritten, and owned weights are there
};

// --- planning

static bool is_of(const tri_block_weights *w, int bucket, int block)
{
  const tri_bucket *b = &w->buckets->list[bucket];
  return b->ready_block == block && b->first < w->parameters->flat_count;
}

static tri_status plan_owned(tri_block_weights *w, const tri_data_parallel *dp)
{
  const tri_owned_range *owned;
  const int n = tri_data_parallel_owned(dp, &owned);
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, w->buckets->n, &w->bucket_at));
  for (int b = 0; b < w->buckets->n; b++) {
    int64_t first, end;
    tri_bucket_slice(&w->buckets->list[b], w->size, w->rank, &first, &end);
    for (int r = 0; r < n; r++) {
      if (first >= owned[r].first && first < owned[r].end)
        w->bucket_at[b] = owned[r].at + (first - owned[r].first);
    }
  }
  return TRI_OK;
}

static int64_t elements_of(const tri_block_weights *w, int block)
{
  return w->parameters->offsets[block + 1] - w->parameters->offsets[block];
}

static tri_status plan_places(tri_block_weights *w)
{
  const int n_blocks = w->parameters->n_blocks;
  int64_t most[WEIGHT_PLACES] = {0};
  size_t offsets[WEIGHT_PLACES];
  for (int block = 0; block < n_blocks; block++) {
    const bool ring = tri_weight_places_in_ring(&w->where, block);
    const int p = ring ? 0 : block == w->where.tied ? WEIGHT_RING : WEIGHT_RING + 1;
    if (elements_of(w, block) > most[p]) most[p] = elements_of(w, block);
  }
  most[1] = most[0];
  for (int p = 0; p < WEIGHT_PLACES; p++)
    offsets[p] = tri_arena_reserve(&w->arena, (size_t)most[p] * w->element_bytes);
  TRI_CALL(tri_arena_commit(&w->arena));
  for (int p = 0; p < WEIGHT_PLACES; p++) {
    w->places[p].data = tri_arena_at(&w->arena, offsets[p]);
    TRI_CALL(tri_event_create(tri_stream_device(w->compute), &w->places[p].came));
  }
  return TRI_OK;
}

// The largest group: of a block's slices, what this rank gives and what it gets.
static tri_status plan_groups(tri_block_weights *w)
{
  const int n_others = w->size - 1;
  int64_t sent = 0, received = 0;
  int most = 0;
  for (int block = 0; block < w->parameters->n_blocks; block++) {
    int64_t own = 0, first, end;
    int n = 0;
    for (int b = 0; b < w->buckets->n; b++) {
      if (!is_of(w, b, block)) continue;
      tri_bucket_slice(&w->buckets->list[b], w->size, w->rank, &first, &end);
      own += end - first;
      n++;
    }
    if (n > most) most = n;
    if (own * n_others > sent) sent = own * n_others;
    if (elements_of(w, block) - own > received) received = elements_of(w, block) - own;
  }
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, most * n_others, &w->sends));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, most * n_others, &w->receives));
  return tri_transport_reserve(w->transport, WEIGHT_PLACES, 2 * most * n_others,
                               (size_t)sent * w->element_bytes,
                               (size_t)received * w->element_bytes);
}

static tri_status set_up(tri_block_weights *w, const tri_data_parallel *dp, const char *transport)
{
  tri_device *device = tri_stream_device(w->compute);
  TRI_CALL(tri_transport_create(w->comm, device, transport, NULL, &w->transport));
  TRI_CALL(tri_stream_create(device, &w->stream));
  TRI_CALL(tri_event_create(device, &w->used));
  TRI_CALL(plan_owned(w, dp));
  TRI_CALL(plan_places(w));
  return plan_groups(w);
}

static int tied_block(const tri_parameters *parameters)
{
  return parameters->tied < 0 ? -1 : parameters->list[parameters->tied].block;
}

tri_status tri_block_weights_create(tri_comm *comm, tri_stream *stream, const tri_model *model,
                                    const tri_data_parallel *dp, const char *transport,
                                    tri_block_weights **out)
{
  tri_block_weights *w = NULL;
  tri_status status = TRI_NEW(TRI_MODULE_PARALLEL, 1, &w);
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "weights of blocks", status));
  w->compute = stream;
  w->parameters = &model->parameters;
  w->buckets = tri_data_parallel_buckets(dp);
  w->rank = tri_comm_rank(comm);
  w->size = tri_comm_size(comm);
  w->element_bytes = tri_dtype_size(model->dtype);
  tri_weight_places_clear(&w->where, model->n_blocks, tied_block(w->parameters));
  tri_arena_begin(&w->arena, tri_stream_device(stream), "gathered weights");
  TRI_CALL_GOTO(err_destroy, tri_comm_split(comm, "weights of blocks", 0, w->rank, &w->comm));
  status = set_up(w, dp, transport);
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "memory of gathered weights", status));
  *out = w;
  return TRI_OK;

err_destroy:
  tri_block_weights_destroy(&w);
  return status;
}

tri_status tri_block_weights_finish(tri_block_weights *w)
{
  if (w == NULL) return TRI_OK;
  for (int p = 0; p < WEIGHT_PLACES; p++) {
    if (w->places[p].transfer != NULL) TRI_CALL(tri_transport_wait(&w->places[p].transfer));
  }
  return tri_transport_finish(w->transport);
}

void tri_block_weights_destroy(tri_block_weights **weights)
{
  tri_block_weights *w = *weights;
  if (w == NULL) return;
  tri_transport_destroy(&w->transport);
  for (int p = 0; p < WEIGHT_PLACES; p++)
    tri_event_destroy(&w->places[p].came);
  tri_event_destroy(&w->used);
  tri_stream_destroy(&w->stream);
  tri_arena_end(&w->arena);
  tri_comm_destroy(&w->comm);
  TRI_FREE(&w->bucket_at);
  TRI_FREE(&w->sends);
  TRI_FREE(&w->receives);
  TRI_FREE(weights);
}

// --- a step

void tri_block_weights_renew(tri_block_weights *w, const void *owned)
{
  w->owned = owned;
  tri_weight_places_clear(&w->where, w->where.n_blocks, w->where.tied);
}

// The slices of one bucket: own ones are sent from where they are owned, and copied.
static tri_status add_bucket(tri_block_weights *w, int bucket, char *data, int *n)
{
  const tri_bucket *b = &w->buckets->list[bucket];
  int64_t first, end;
  tri_bucket_slice(b, w->size, w->rank, &first, &end);
  const char *own = w->owned + (size_t)w->bucket_at[bucket] * w->element_bytes;
  const size_t own_bytes = (size_t)(end - first) * w->element_bytes;
  const int k = tri_bucket_gather_messages(b, w->size, w->rank, bucket, data, w->element_bytes,
                                           w->sends + *n, w->receives + *n);
  for (int i = 0; i < k; i++)
    w->sends[*n + i].data = (void *)own;
  *n += k;
  if (own_bytes == 0) return TRI_OK;
  return tri_stream_copy_on_device(w->stream, data + (size_t)(first - b->first) * w->element_bytes,
                                   own, own_bytes);
}

static tri_status start(tri_block_weights *w, int block, weight_place *place)
{
  int n = 0;
  if (place->transfer != NULL) TRI_CALL(tri_transport_wait(&place->transfer));
  TRI_CALL(tri_event_record(w->used, w->compute));
  TRI_CALL(tri_event_wait(w->used, w->stream));
  for (int b = 0; b < w->buckets->n; b++) {
    const int64_t offset = w->buckets->list[b].first - w->parameters->offsets[block];
    if (is_of(w, b, block))
      TRI_CALL(add_bucket(w, b, place->data + (size_t)offset * w->element_bytes, &n));
  }
  place->waited = false;
  return tri_transport_start(w->transport, "weight gather", w->stream, w->sends, n, w->receives, n,
                             &place->transfer);
}

static tri_status bring(tri_block_weights *w, int block, weight_place **out)
{
  bool missing;
  weight_place *place = &w->places[tri_weight_places_find(&w->where, block, &missing)];
  if (missing) TRI_CALL(start(w, block, place));
  *out = place;
  return TRI_OK;
}

static tri_status wait_for(tri_block_weights *w, weight_place *place)
{
  if (place->waited) return TRI_OK;
  if (place->transfer != NULL) TRI_CALL(tri_transport_wait(&place->transfer));
  TRI_CALL(tri_event_record(place->came, w->stream));
  TRI_CALL(tri_event_wait(place->came, w->compute));
  place->waited = true;
  return TRI_OK;
}

static bool uses_tied(const tri_block_weights *w, int block)
{
  return block + 1 == w->where.n_blocks && w->where.tied >= 0;
}

static const char *tied_array(const tri_block_weights *w, const weight_place *place)
{
  const tri_parameter *tied = &w->parameters->list[w->parameters->tied];
  return place->data +
         (size_t)(tied->offset - w->parameters->offsets[tied->block]) * w->element_bytes;
}

tri_status tri_block_weights_take(tri_block_weights *w, int block, int next,
                                  const void **block_weights, const void **tied_weights)
{
  weight_place *place, *tied = NULL, *ahead;
  TRI_CALL(bring(w, block, &place));
  tri_weight_places_use(&w->where, block);
  if (uses_tied(w, block)) TRI_CALL(bring(w, w->where.tied, &tied));
  TRI_CALL(wait_for(w, place));
  if (tied != NULL) TRI_CALL(wait_for(w, tied));
  *block_weights = place->data;
  *tied_weights = tied == NULL ? NULL : tied_array(w, tied);
  if (next < 0) return TRI_OK;
  TRI_CALL(bring(w, next, &ahead));
  return uses_tied(w, next) ? bring(w, w->where.tied, &ahead) : TRI_OK;
}

tri_status tri_block_weights_progress(tri_block_weights *w)
{
  if (w == NULL) return TRI_OK;
  for (int p = 0; p < WEIGHT_PLACES; p++) {
    bool done;
    if (w->places[p].transfer != NULL) TRI_CALL(tri_transport_test(&w->places[p].transfer, &done));
  }
  return TRI_OK;
}

int64_t tri_block_weights_bytes_sent(const tri_block_weights *w)
{
  return w == NULL ? 0 : tri_comm_bytes_sent(w->comm);
}

size_t tri_block_weights_memory_bytes(const tri_block_weights *w)
{
  return w == NULL ? 0 : w->arena.size_bytes;
}

double tri_block_weights_wait_seconds(const tri_block_weights *w)
{
  return w == NULL ? 0.0 : tri_comm_wait_seconds(w->comm);
}
