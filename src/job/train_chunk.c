// Passes over the blocks that a rank holds.
#include "job/train_run.h"

static bool ends_model(const tri_train *train, const tri_train_chunk *chunk)
{
  return chunk->end == train->model->n_blocks;
}

static tri_pass pass_of(const tri_train *train, const tri_train_work *work, int block)
{
  const tri_train_chunk *chunk = work->chunk;
  void *const *hidden = chunk->hidden + work->slot * (chunk->end - chunk->first);
  void *const *saved = chunk->saved + work->slot * (chunk->end - chunk->first);
  void *const *kept = chunk->kept + work->weight_slot * (chunk->end - chunk->first);
  const int i = block - chunk->first;
  tri_pass pass = {.stream = train->stream,
                   .batch = &work->batch,
                   .training = work->training,
                   .hidden_in = i == 0 ? work->input : hidden[i],
                   .hidden_out = block + 1 == chunk->end ? work->output : hidden[i + 1],
                   .saved = saved[i],
                   .d_hidden = work->d_hidden,
                   .part = work->part,
                   .kept = work->part == TRI_BACKWARD_WHOLE ? NULL : kept[i],
                   .scratch = train->scratch,
                   .losses = train->losses,
                   .seams = tri_tensor_seams(train->tensor)};
  if (train->block_weights == NULL)
    tri_pass_set_arrays(&pass, train->model, block, train->weights, NULL);
  return pass;
}

// Weights that are gathered; `next` is the block that is computed after this one, if it is in the
// chunk.
static tri_status take_weights(const tri_train *train, const tri_train_work *work, int block,
                               int next, tri_pass *pass)
{
  const bool known = next >= work->chunk->first && next < work->chunk->end;
  if (train->block_weights == NULL) return TRI_OK;
  TRI_CALL(tri_block_weights_take(train->block_weights, block, known ? next : -1, &pass->weights,
                                  &pass->tied_weights));
  if (pass->tied_weights == NULL) pass->tied_weights = train->tied_copy;
  return TRI_OK;
}

// Between blocks, what travels meanwhile moves on.
static tri_status progress(const tri_train *train)
{
  TRI_CALL(tri_block_weights_progress(train->block_weights));
  return train->pipeline == NULL ? TRI_OK : tri_pipeline_progress(train->pipeline);
}

tri_status tri_train_forward(tri_train *train, const tri_train_work *work)
{
  const tri_model *model = train->model;
  for (int block = work->chunk->first; block < work->chunk->end; block++) {
    if (block == model->n_blocks - 1) break;
    tri_pass pass = pass_of(train, work, block);
    TRI_CALL(take_weights(train, work, block, block + 1, &pass));
    TRI_CALL(model->operations->forward(model, block, &pass));
    TRI_CALL(progress(train));
  }
  return TRI_OK;
}

// Where the pass adds its gradients.
static tri_status add_gradients(tri_train *train, const tri_train_work *work, int block,
                                tri_pass *pass)
{
  return tri_data_parallel_gradients(train->dp, work->index, block, &pass->gradients,
                                     &pass->tied_gradients);
}

static tri_status run_head(tri_train *train, const tri_train_work *work, bool gradients)
{
  const int head = train->model->n_blocks - 1;
  tri_pass pass = pass_of(train, work, head);
  TRI_CALL(take_weights(train, work, head, gradients ? head - 1 : -1, &pass));
  if (gradients) TRI_CALL(add_gradients(train, work, head, &pass));
  TRI_CALL(train->model->operations->forward(train->model, head, &pass));
  return progress(train);
}

tri_status tri_train_losses(tri_train *train, const tri_train_work *work)
{
  return run_head(train, work, false);
}

tri_status tri_train_sum_losses(tri_train *train, const tri_batch *batch, int index)
{
  const int64_t n = (int64_t)batch->B * batch->T;
  return train->kernels->sum(train->stream, train->sums + train->n_norm + index, train->losses, n);
}

// Backward of blocks [first, end) of the chunk; without gradients: the first half.
static tri_status backward(tri_train *train, const tri_train_work *work, int first, int end,
                           bool gradients)
{
  for (int block = end - 1; block >= first; block--) {
    tri_pass pass = pass_of(train, work, block);
    TRI_CALL(take_weights(train, work, block, block - 1, &pass));
    if (gradients) TRI_CALL(add_gradients(train, work, block, &pass));
    TRI_CALL(train->model->operations->backward(train->model, block, &pass));
    if (gradients) TRI_CALL(tri_data_parallel_block_done(train->dp, work->index, block));
    TRI_CALL(progress(train));
  }
  return TRI_OK;
}

// The head's forward and the backward of blocks [first, n_blocks).
static tri_status end_model(tri_train *train, const tri_train_work *work, int first)
{
  TRI_CALL(run_head(train, work, true));
  TRI_CALL(tri_train_sum_losses(train, &work->batch, work->index));
  return backward(train, work, first, train->model->n_blocks, true);
}

static tri_status backward_at_once(tri_train *train, const tri_train_work *work)
{
  const tri_train_chunk *chunk = work->chunk;
  if (ends_model(train, chunk)) return end_model(train, work, chunk->first);
  return backward(train, work, chunk->first, chunk->end, true);
}

// The head has no halves: all of it belongs to the first, where it is a chunk by itself to the
// sums of gradients.
tri_status tri_train_backward(tri_train *train, const tri_train_work *work)
{
  const tri_train_chunk *chunk = work->chunk;
  const int end = ends_model(train, chunk) ? chunk->end - 1 : chunk->end;
  switch (work->part) {
  case TRI_BACKWARD_WHOLE: return backward_at_once(train, work);
  case TRI_BACKWARD_INPUT:
    if (ends_model(train, chunk)) TRI_CALL(end_model(train, work, end));
    return backward(train, work, chunk->first, end, false);
  case TRI_BACKWARD_WEIGHT: return backward(train, work, chunk->first, end, true);
  }
  return TRI_ERROR(TRI_ERR_INTERNAL, "part %d of a backward is none", (int)work->part);
}
