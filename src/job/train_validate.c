// The loss on samples that are held out: forward passes alone.
#include "job/train_run.h"
#include "trireme/base/memory.h"

typedef struct validation {
  tri_train *train;
  tri_sum_node share; // of the micro-batches, along the data axis
  int widest;         // micro-batches of the largest share
  int64_t samples;
  int current; // micro-batch of the share that is in `slot`, -1: none
  tri_batch_slot *slot;
} validation;

// The number of a micro-batch of the share. One too many, see compute_share, is any that is there.
static int number_of(const validation *v, int index)
{
  const int number = v->share.first + index;
  return number < v->share.end ? number : 0;
}

// Samples of a micro-batch: the last of all may be shorter.
static int samples_of(const validation *v, int index)
{
  const int B = v->train->B;
  const int64_t left = v->samples - (int64_t)number_of(v, index) * B;
  return left < B ? (int)left : B;
}

static tri_status bring_batch(validation *v, int index)
{
  tri_train *train = v->train;
  const uint64_t first = (uint64_t)number_of(v, index) * (uint64_t)train->B;
  const int n = samples_of(v, index);
  if (v->current == index) return TRI_OK;
  TRI_CALL(tri_loader_request(train->validation, first, n));
  TRI_CALL(tri_train_batch_take(train, train->validation, n, &v->slot));
  v->current = index;
  return TRI_OK;
}

// One chunk of one micro-batch.
static tri_status compute(void *user, const tri_pipeline_call *call)
{
  validation *v = user;
  tri_train *train = v->train;
  const int index = call->action->microbatch;
  const tri_train_chunk *chunk = &train->chunks[call->action->chunk];
  const bool begins = chunk->first == 0, ends = chunk->end == train->model->n_blocks;
  if (begins || ends) TRI_CALL(bring_batch(v, index));
  const tri_train_work work = {.chunk = chunk,
                               .batch = {.tokens = begins ? v->slot->tokens : NULL,
                                         .targets = ends ? v->slot->targets : NULL,
                                         .B = samples_of(v, index),
                                         .T = train->T},
                               .input = call->input,
                               .output = call->output};
  TRI_CALL(tri_train_forward(train, &work));
  if (ends) {
    TRI_CALL(tri_train_losses(train, &work));
    TRI_CALL(tri_train_sum_losses(train, &work.batch, index));
  }
  return ends || (begins && !train->is_last) ? tri_train_batch_done(train, v->slot) : TRI_OK;
}

// Where weights are gathered all data ranks compute as many micro-batches: a loss too many is not
// read.
static tri_status compute_share(validation *v)
{
  tri_train *train = v->train;
  const int n = train->block_weights == NULL ? v->share.end - v->share.first : v->widest;
  if (train->pipeline != NULL) return tri_pipeline_run_forward(train->pipeline, n, compute, v);
  for (int index = 0; index < n; index++) {
    const tri_pipeline_action action = {.microbatch = index};
    const tri_pipeline_call call = {.action = &action};
    TRI_CALL(compute(v, &call));
  }
  return TRI_OK;
}

// The losses of all micro-batches, one after another, from every data rank's share of them.
static tri_status gather_losses(tri_train *train, int n, double *all)
{
  const double *own = train->host_sums + train->n_norm;
  const int n_data = train->grid.size[TRI_GRID_DATA];
  const tri_sum_node widest = tri_sum_tree_share(n, n_data, 0);
  const int block = widest.end - widest.first;
  double *blocks = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, (int64_t)block * n_data, &blocks));
  const tri_status status = tri_comm_all_gather(train->data_comm, "validation loss", own,
                                                (size_t)block * sizeof(double), blocks);
  for (int r = 0, k = 0; status == TRI_OK && r < n_data; r++) {
    const tri_sum_node share = tri_sum_tree_share(n, n_data, r);
    for (int i = 0; i < share.end - share.first; i++)
      all[k++] = blocks[r * block + i];
  }
  TRI_FREE(&blocks);
  return status;
}

// In the last stage.
static tri_status sum_of_losses(tri_train *train, int n, double *out)
{
  double *all = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n, &all));
  const tri_status status = gather_losses(train, n, all);
  if (status == TRI_OK) *out = tri_sum_tree_double(all, n);
  TRI_FREE(&all);
  return status;
}

tri_status tri_train_validate(tri_train *train, double *loss)
{
  validation v = {.train = train, .samples = tri_loader_samples(train->validation), .current = -1};
  const int64_t wanted = train->job->train.validate_samples;
  if (wanted > 0 && wanted < v.samples) v.samples = wanted;
  const int n = (int)((v.samples + train->B - 1) / train->B);
  v.share = tri_sum_tree_share(n, train->grid.size[TRI_GRID_DATA], train->at[TRI_GRID_DATA]);
  const tri_sum_node widest = tri_sum_tree_share(n, train->grid.size[TRI_GRID_DATA], 0);
  v.widest = widest.end - widest.first;
  TRI_CALL(compute_share(&v));
  double sum = 0.0;
  if (train->is_last) {
    TRI_CALL(tri_train_fetch_sums(train, train->n_norm, v.share.end - v.share.first));
    TRI_CALL(sum_of_losses(train, n, &sum));
  }
  TRI_CALL(tri_train_from_last_stage(train, "validation loss", &sum));
  *loss = sum / ((double)v.samples * train->T);
  return TRI_OK;
}
