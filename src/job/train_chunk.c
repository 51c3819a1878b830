// Passes over the blocks that a rank holds.
#include "job/train_run.h"

static bool ends_model(const tri_train *train, const tri_train_chunk *chunk)
{
  return chunk->end == train->model->n_blocks;
}

static tri_pass pass_of(const tri_train *train, const tri_train_work *work, int block,
                        float *gradients)
{
  const tri_train_chunk *chunk = work->chunk;
  void *const *hidden = chunk->hidden + work->slot * (chunk->end - chunk->first);
  void *const *saved = chunk->saved + work->slot * (chunk->end - chunk->first);
  const int i = block - chunk->first;
  return (tri_pass){.stream = train->stream,
                    .batch = &work->batch,
                    .training = work->training,
                    .weights = train->weights,
                    .gradients = gradients,
                    .hidden_in = i == 0 ? work->input : hidden[i],
                    .hidden_out = block + 1 == chunk->end ? work->output : hidden[i + 1],
                    .saved = saved[i],
                    .d_hidden = work->d_hidden,
                    .scratch = train->scratch,
                    .losses = train->losses};
}

// Between blocks, what travels meanwhile moves on.
static tri_status progress(const tri_train *train)
{
  return train->pipeline == NULL ? TRI_OK : tri_pipeline_progress(train->pipeline);
}

tri_status tri_train_forward(tri_train *train, const tri_train_work *work)
{
  const tri_model *model = train->model;
  for (int block = work->chunk->first; block < work->chunk->end; block++) {
    if (block == model->n_blocks - 1) break;
    const tri_pass pass = pass_of(train, work, block, NULL);
    TRI_CALL(model->operations->forward(model, block, &pass));
    TRI_CALL(progress(train));
  }
  return TRI_OK;
}

static tri_status run_head(tri_train *train, const tri_train_work *work, float *gradients)
{
  const int head = train->model->n_blocks - 1;
  const tri_pass pass = pass_of(train, work, head, gradients);
  TRI_CALL(train->model->operations->forward(train->model, head, &pass));
  return progress(train);
}

tri_status tri_train_losses(tri_train *train, const tri_train_work *work)
{
  return run_head(train, work, NULL);
}

tri_status tri_train_sum_losses(tri_train *train, const tri_batch *batch, int index)
{
  const int64_t n = (int64_t)batch->B * batch->T;
  return train->kernels->sum(train->stream, train->sums + train->n_norm + index, train->losses, n);
}

tri_status tri_train_backward(tri_train *train, const tri_train_work *work)
{
  const tri_model *model = train->model;
  const tri_train_chunk *chunk = work->chunk;
  float *gradients = NULL;
  TRI_CALL(tri_data_parallel_gradients(train->dp, work->microbatch, chunk->first, chunk->end,
                                       &gradients));
  if (ends_model(train, chunk)) {
    TRI_CALL(run_head(train, work, gradients));
    TRI_CALL(tri_train_sum_losses(train, &work->batch, work->microbatch - train->first_microbatch));
  }
  for (int block = chunk->end - 1; block >= chunk->first; block--) {
    const tri_pass pass = pass_of(train, work, block, gradients);
    TRI_CALL(model->operations->backward(model, block, &pass));
    TRI_CALL(tri_data_parallel_block_done(train->dp, work->microbatch, block));
    TRI_CALL(progress(train));
  }
  return TRI_OK;
}
