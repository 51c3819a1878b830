// What this rank holds of the model and of the data, and what goes between ranks.
#include <limits.h>

#include "job/train_run.h"
#include "trireme/base/memory.h"
#include "trireme/parallel/partition.h"

static int virtual_stages(const tri_train *train)
{
  return train->grid.size[TRI_GRID_PIPELINE] * train->grid.n_virtual;
}

// --- the grid

tri_status tri_train_plan_grid(tri_train *train)
{
  const tri_job *job = train->job;
  const tri_grid wish = {
      .size = {job->parallel.tensor, 1, job->parallel.data, job->parallel.pipeline},
      .n_virtual = job->parallel.virtual_stages,
      .schedule = job->parallel.schedule,
      .zero = job->parallel.zero,
      .sequence = true};
  const tri_grid_limits limits = {.n_ranks = train->n_ranks,
                                  .n_blocks = tri_gpt_blocks(job->model.layers),
                                  .n_heads = job->model.heads,
                                  .vocabulary = INT_MAX, // shares of none are right, too
                                  .T = train->T,
                                  .no_context = true};
  TRI_CALL(tri_grid_plan(&limits, &wish, &train->grid));
  tri_grid_coordinates(&train->grid, train->rank, train->at);
  return TRI_OK;
}

// --- chunks

static tri_status cut_model(tri_train *train, const tri_gpt_config *config)
{
  const int n = virtual_stages(train);
  const int n_blocks = tri_gpt_blocks(config->n_layers);
  int64_t *costs = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n + 1, &train->first_blocks));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n_blocks, &costs));
  tri_gpt_block_costs(config, train->T, costs);
  const tri_partition_chain chain = {.n_blocks = n_blocks, .costs = costs};
  const tri_status status = tri_partition_cut(&chain, n, train->first_blocks);
  TRI_FREE(&costs);
  return status;
}

tri_status tri_train_plan_chunks(tri_train *train, const tri_gpt_config *config, bool **blocks)
{
  const int n_blocks = tri_gpt_blocks(config->n_layers);
  const int n_stages = train->grid.size[TRI_GRID_PIPELINE];
  TRI_CALL(cut_model(train, config));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, train->grid.n_virtual, &train->chunks));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n_blocks, blocks));
  for (int c = 0; c < train->grid.n_virtual; c++) {
    const int j = c * n_stages + train->at[TRI_GRID_PIPELINE];
    tri_train_chunk *chunk = &train->chunks[c];
    chunk->first = train->first_blocks[j];
    chunk->end = train->first_blocks[j + 1];
    chunk->n_slots = 1;
    for (int b = chunk->first; b < chunk->end; b++)
      (*blocks)[b] = true;
  }
  train->is_first = (*blocks)[0];
  train->is_last = (*blocks)[n_blocks - 1];
  return TRI_OK;
}

// --- what goes between ranks

// Where the parts of this rank's blocks begin whose gradients are complete at times of their own:
// the chunks, and the head where backward is done in halves (train_chunk.c). first_blocks
// (n_virtual + 1); returns how many.
static int gradient_parts(const tri_train *train, int *first_blocks)
{
  const int n_virtual = train->grid.n_virtual, head = train->model->n_blocks - 1;
  for (int c = 0; c < n_virtual; c++)
    first_blocks[c] = train->chunks[c].first;
  if (!train->is_last || train->grid.schedule != TRI_PIPELINE_ZB_H1 ||
      first_blocks[n_virtual - 1] == head)
    return n_virtual;
  first_blocks[n_virtual] = head;
  return n_virtual + 1;
}

static tri_status open_data_parallel(tri_train *train)
{
  const tri_job *job = train->job;
  const int group = job->train.sum_group;
  int *first_blocks = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, train->grid.n_virtual + 1, &first_blocks));
  const int n_parts = gradient_parts(train, first_blocks);
  const tri_data_parallel_options options = {
      .n_leaves = (train->n_microbatches + group - 1) / group,
      .leaf_microbatches = group,
      .n_microbatches = train->n_microbatches,
      .overlap = job->parallel.overlap,
      .bucket_bytes = (int64_t)(job->parallel.bucket_mib * 1048576.0),
      .in_flight = job->parallel.in_flight,
      .fast = job->parallel.reduce == TRI_JOB_REDUCE_FAST,
      .zero = train->grid.zero,
      .first_blocks = first_blocks,
      .n_chunks = n_parts};
  const tri_status status =
      tri_data_parallel_create(train->transport, train->stream, train->model, &options, &train->dp);
  TRI_FREE(&first_blocks);
  TRI_CALL(status);
  train->n_own = tri_data_parallel_count(train->dp);
  train->sharded = train->grid.zero > 0 && train->grid.size[TRI_GRID_DATA] > 1;
  train->n_owned = tri_data_parallel_owned(train->dp, &train->owned);
  for (int i = 0; i < train->n_owned; i++)
    train->owned_count += train->owned[i].end - train->owned[i].first;
  return TRI_OK;
}

size_t tri_train_hidden_bytes(const tri_train *train)
{
  const size_t rows =
      (size_t)train->B * (size_t)train->T / (size_t)train->grid.size[TRI_GRID_TENSOR];
  return rows * (size_t)train->model->width * tri_dtype_size(train->model->dtype);
}

static tri_status open_tensor(tri_train *train)
{
  const int64_t rows = (int64_t)train->B * train->T, n_shares = train->grid.size[TRI_GRID_TENSOR];
  if (n_shares == 1) return TRI_OK;
  // Hidden states of the rank's rows; and of all rows, the three numbers of the split loss.
  const int64_t hidden = rows / n_shares * train->model->width;
  TRI_CALL(tri_transport_create(train->tensor_comm, train->device, train->job->parallel.transport,
                                NULL, &train->tensor_transport));
  return tri_tensor_create(train->tensor_transport, train->stream,
                           hidden > 3 * rows ? hidden : 3 * rows, &train->tensor);
}

static tri_status open_pipeline(tri_train *train)
{
  const tri_job *job = train->job;
  const tri_model *model = train->model;
  if (virtual_stages(train) == 1) return TRI_OK;
  const tri_pipeline_options options = {.kind = train->grid.schedule,
                                        .n_virtual = train->grid.n_virtual,
                                        .n_microbatches = train->n_own,
                                        .message_bytes = (size_t)train->B * (size_t)train->T *
                                                         (size_t)model->width *
                                                         tri_dtype_size(model->dtype),
                                        .transport = job->parallel.transport,
                                        .limit_seconds = job->parallel.limit_seconds};
  TRI_CALL(tri_pipeline_create(train->pipeline_comm, train->stream, &options, &train->pipeline));
  const tri_pipeline_schedule *schedule = tri_pipeline_get_schedule(train->pipeline);
  for (int c = 0; schedule != NULL && c < train->grid.n_virtual; c++) {
    const tri_pipeline_stage *stage = &schedule->stages[train->at[TRI_GRID_PIPELINE]];
    train->chunks[c].n_slots = stage->n_slots[c];
    train->chunks[c].n_weight_slots = stage->n_weight_slots[c];
  }
  if (train->grid.size[TRI_GRID_PIPELINE] == 1) return TRI_OK;
  const tri_tied_options tied = {.piece_bytes = (size_t)(job->parallel.bucket_mib * 1048576.0),
                                 .transport = job->parallel.transport};
  return tri_tied_create(train->pipeline_comm, train->stream, &model->parameters, model->dtype,
                         &tied, &train->tied);
}

tri_status tri_train_open_layout(tri_train *train)
{
  TRI_CALL(tri_grid_comms_create(train->comm, &train->grid, &train->comms));
  train->tensor_comm = tri_grid_comms_axis(train->comms, TRI_GRID_TENSOR);
  train->data_comm = tri_grid_comms_axis(train->comms, TRI_GRID_DATA);
  train->pipeline_comm = tri_grid_comms_axis(train->comms, TRI_GRID_PIPELINE);
  TRI_CALL(tri_transport_create(train->data_comm, train->device, train->job->parallel.transport,
                                NULL, &train->transport));
  TRI_CALL(open_data_parallel(train));
  TRI_CALL(open_tensor(train));
  if (train->grid.zero == 3 && train->sharded)
    TRI_CALL(tri_block_weights_create(train->data_comm, train->stream, train->model, train->dp,
                                      train->job->parallel.transport, &train->block_weights));
  return open_pipeline(train);
}

tri_status tri_train_finish_layout(tri_train *train)
{
  if (train->pipeline != NULL) TRI_CALL(tri_pipeline_finish(train->pipeline));
  TRI_CALL(tri_block_weights_finish(train->block_weights));
  TRI_CALL(tri_tied_finish(train->tied));
  if (train->tensor_transport != NULL) TRI_CALL(tri_transport_finish(train->tensor_transport));
  return tri_transport_finish(train->transport);
}

void tri_train_close_transfers(tri_train *train)
{
  tri_block_weights_destroy(&train->block_weights);
  tri_transport_destroy(&train->transport);
  tri_data_parallel_destroy(&train->dp);
  tri_transport_destroy(&train->tensor_transport);
  tri_tensor_destroy(&train->tensor);
  tri_tied_destroy(&train->tied);
  tri_pipeline_destroy(&train->pipeline);
}

void tri_train_close_layout(tri_train *train)
{
  tri_grid_comms_destroy(&train->comms);
  TRI_FREE(&train->first_blocks);
}

tri_status tri_train_from_last_stage(tri_train *train, const char *what, double *value)
{
  const int n_stages = train->grid.size[TRI_GRID_PIPELINE];
  if (n_stages == 1) return TRI_OK;
  return tri_comm_broadcast(train->pipeline_comm, what, value, sizeof *value, n_stages - 1);
}

double tri_train_wait_seconds(const tri_train *train)
{
  const tri_comm *const axes[] = {train->tensor_comm, train->data_comm, train->pipeline_comm};
  double seconds = tri_comm_wait_seconds(train->comm) + tri_tied_wait_seconds(train->tied) +
                   tri_block_weights_wait_seconds(train->block_weights);
  for (int a = 0; a < 3; a++) {
    // Nothing is sent on those of one rank, which may be the same for several axes.
    if (axes[a] != NULL && tri_comm_size(axes[a]) > 1) seconds += tri_comm_wait_seconds(axes[a]);
  }
  if (train->pipeline != NULL) seconds += tri_pipeline_wait_seconds(train->pipeline);
  return seconds;
}
