#include <math.h>

#include "job/train_run.h"
#include "trireme/base/memory.h"
#include "trireme/telemetry/clock.h"

// The run's micro-batches that this rank computes are numbered 0, 1, 2, … over all steps: the first
// sample of number k.
static uint64_t first_sample_of(const tri_train *train, uint64_t start_step, uint64_t k)
{
  const uint64_t share = (uint64_t)(train->end_microbatch - train->first_microbatch);
  const uint64_t step = start_step + k / share;
  const uint64_t microbatch = (uint64_t)train->first_microbatch + k % share;
  return (step * (uint64_t)train->n_microbatches + microbatch) * (uint64_t)train->B;
}

tri_status tri_train_prefetch(tri_train *train)
{
  train->next_request = 0;
  train->start_step = (uint64_t)train->step;
  if (train->end_microbatch == train->first_microbatch) return TRI_OK;
  // Two in flight: one being read while one is being computed.
  for (; train->next_request < 2; train->next_request++) {
    const uint64_t first = first_sample_of(train, (uint64_t)train->step, train->next_request);
    TRI_CALL(tri_loader_request(train->loader, first, train->B));
  }
  return TRI_OK;
}

// Takes the next micro-batch, asks for the one after the next, and brings it to the device.
static tri_status take_batch(tri_train *train)
{
  const size_t bytes = (size_t)train->B * (size_t)train->T * sizeof(int32_t);
  TRI_CALL(tri_loader_take(train->loader, train->host_tokens, train->host_targets));
  const uint64_t next = first_sample_of(train, train->start_step, train->next_request);
  TRI_CALL(tri_loader_request(train->loader, next, train->B));
  train->next_request++;
  TRI_CALL(tri_stream_copy_to_device(train->stream, train->tokens, train->host_tokens, bytes));
  return tri_stream_copy_to_device(train->stream, train->targets, train->host_targets, bytes);
}

static tri_pass pass_of(tri_train *train, const tri_batch *batch, int block, float *gradients)
{
  const bool last = block == train->model->n_blocks - 1;
  return (tri_pass){.stream = train->stream,
                    .batch = batch,
                    .training = gradients != NULL,
                    .weights = train->weights,
                    .gradients = gradients,
                    .hidden_in = train->hidden[block],
                    .hidden_out = last ? NULL : train->hidden[block + 1],
                    .saved = train->saved[block],
                    .d_hidden = train->d_hidden,
                    .scratch = train->scratch,
                    .losses = train->losses};
}

static tri_status forward(tri_train *train, const tri_batch *batch, float *gradients)
{
  for (int block = 0; block < train->model->n_blocks; block++) {
    const tri_pass pass = pass_of(train, batch, block, gradients);
    TRI_CALL(train->model->operations->forward(train->model, block, &pass));
  }
  return TRI_OK;
}

static tri_status backward(tri_train *train, const tri_batch *batch, int microbatch,
                           float *gradients)
{
  for (int block = train->model->n_blocks - 1; block >= 0; block--) {
    const tri_pass pass = pass_of(train, batch, block, gradients);
    TRI_CALL(train->model->operations->backward(train->model, block, &pass));
    TRI_CALL(tri_data_parallel_block_done(train->dp, microbatch, block));
  }
  return TRI_OK;
}

// Sum of the losses of the tokens of one micro-batch.
static tri_status fetch_loss(tri_train *train, const tri_batch *batch, double *out)
{
  const int64_t n = (int64_t)batch->B * batch->T;
  TRI_CALL(train->kernels->sum(train->stream, train->loss_sum, train->losses, n));
  TRI_CALL(
      tri_stream_copy_to_host(train->stream, train->host_sums, train->loss_sum, sizeof(double)));
  TRI_CALL(tri_stream_synchronize(train->stream));
  *out = train->host_sums[0];
  return TRI_OK;
}

static tri_status compute_microbatch(tri_train *train, int microbatch, tri_step_times *times)
{
  const double began = tri_clock_seconds();
  TRI_CALL(take_batch(train));
  times->data += tri_clock_seconds() - began;
  const double tokens = (double)train->job->train.global_batch * train->T;
  const tri_batch batch = {.tokens = train->tokens,
                           .targets = train->targets,
                           .B = train->B,
                           .T = train->T,
                           .first_sample =
                               train->samples + (uint64_t)microbatch * (uint64_t)train->B,
                           .loss_scale = (float)(1.0 / tokens)};
  float *gradients = NULL;
  TRI_CALL(tri_data_parallel_gradients(train->dp, microbatch, &gradients));
  TRI_CALL(forward(train, &batch, gradients));
  TRI_CALL(backward(train, &batch, microbatch, gradients));
  return fetch_loss(train, &batch, &train->microbatch_losses[microbatch - train->first_microbatch]);
}

static tri_status gradient_norm(tri_train *train, const float *gradient, double *norm)
{
  const int64_t n = train->model->parameters.flat_count;
  TRI_CALL(train->kernels->sum_squares(train->stream, train->chunk_sums, gradient, n));
  TRI_CALL(tri_stream_copy_to_host(train->stream, train->host_sums, train->chunk_sums,
                                   (size_t)train->n_chunks * sizeof(double)));
  TRI_CALL(tri_data_parallel_synchronize(train->dp));
  TRI_CALL(tri_stream_synchronize(train->stream));
  *norm = tri_norm_of_chunks(train->host_sums, train->n_chunks);
  return TRI_OK;
}

// Every rank holds the whole gradient and makes the same update.
static tri_status update(tri_train *train, const float *gradient, float lr, double norm)
{
  const tri_model *model = train->model;
  tri_bf16 *rounded = model->dtype == TRI_DTYPE_BF16 ? train->weights : NULL;
  return tri_adamw_update(&train->adamw, train->stream, &model->parameters, 0,
                          model->parameters.flat_count, train->parameters, rounded, train->moment1,
                          train->moment2, gradient, train->step + 1, lr,
                          tri_clip_scale(norm, train->job->train.clip));
}

static void fill_metrics(const tri_train *train, const tri_step_times *times, double loss,
                         double norm, float lr, tri_step_metrics *metrics)
{
  const double tokens = (double)train->job->train.global_batch * train->T;
  metrics->step = train->step;
  metrics->tokens = (int64_t)train->samples * train->T;
  metrics->loss = loss;
  metrics->grad_norm = norm;
  metrics->lr = lr;
  metrics->step_seconds = times->total;
  metrics->communication_seconds = times->communication;
  metrics->data_seconds = times->data;
  metrics->compute_seconds = times->total - times->communication - times->data;
  metrics->tokens_per_second = tokens / times->total;
  metrics->model_flops_per_second = metrics->tokens_per_second * train->flops_per_token;
  metrics->mfu = metrics->model_flops_per_second / (train->peak_flops * train->n_ranks);
}

tri_status tri_train_step(tri_train *train, tri_step_metrics *metrics, tri_step_times *times)
{
  const double began = tri_clock_seconds();
  const double waited = tri_comm_wait_seconds(train->comm);
  const float *gradient = NULL;
  double loss = 0.0, norm = 0.0;
  TRI_CALL(tri_data_parallel_begin(train->dp));
  for (int m = train->first_microbatch; m < train->end_microbatch; m++) {
    TRI_CALL(compute_microbatch(train, m, times));
  }
  TRI_CALL(tri_data_parallel_wait(train->dp, &gradient));
  TRI_CALL(tri_data_parallel_sum(train->dp, "loss", train->microbatch_losses, &loss));
  loss /= (double)train->job->train.global_batch * train->T;
  TRI_CALL(gradient_norm(train, gradient, &norm));
  TRI_CHECK(isfinite(loss) && isfinite(norm), TRI_ERR_NUMERIC,
            "step %lld: the loss is %g and the gradient norm %g; lower train.lr, or resume from an "
            "earlier "
            "checkpoint",
            (long long)train->step + 1, loss, norm);
  const float lr = tri_schedule_rate(&train->schedule, train->step + 1);
  TRI_CALL(update(train, gradient, lr, norm));
  TRI_CALL(tri_stream_synchronize(train->stream));
  train->step++;
  train->samples += (uint64_t)train->job->train.global_batch;
  times->total = tri_clock_seconds() - began;
  times->communication = tri_comm_wait_seconds(train->comm) - waited;
  fill_metrics(train, times, loss, norm, lr, metrics);
  return TRI_OK;
}

// --- validation

// Sum of the losses of validation samples [first, first + n).
static tri_status validate_microbatch(tri_train *train, int64_t first, int n, double *loss)
{
  const size_t bytes = (size_t)n * (size_t)train->T * sizeof(int32_t);
  TRI_CALL(tri_loader_request(train->validation, (uint64_t)first, n));
  TRI_CALL(tri_loader_take(train->validation, train->host_tokens, train->host_targets));
  TRI_CALL(tri_stream_copy_to_device(train->stream, train->tokens, train->host_tokens, bytes));
  TRI_CALL(tri_stream_copy_to_device(train->stream, train->targets, train->host_targets, bytes));
  const tri_batch batch = {
      .tokens = train->tokens, .targets = train->targets, .B = n, .T = train->T};
  TRI_CALL(forward(train, &batch, NULL));
  return fetch_loss(train, &batch, loss);
}

// The losses of all micro-batches, one after another, from every rank's share of them.
static tri_status gather_losses(tri_train *train, int n, double *all)
{
  const double *own = train->microbatch_losses;
  const tri_sum_node widest = tri_sum_tree_share(n, train->n_ranks, 0);
  const int block = widest.end - widest.first;
  double *blocks = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, (int64_t)block * train->n_ranks, &blocks));
  const tri_status status = tri_comm_all_gather(train->comm, "validation loss", own,
                                                (size_t)block * sizeof(double), blocks);
  for (int r = 0, k = 0; status == TRI_OK && r < train->n_ranks; r++) {
    const tri_sum_node share = tri_sum_tree_share(n, train->n_ranks, r);
    for (int i = 0; i < share.end - share.first; i++)
      all[k++] = blocks[r * block + i];
  }
  TRI_FREE(&blocks);
  return status;
}

tri_status tri_train_validate(tri_train *train, double *loss)
{
  int64_t samples = tri_loader_samples(train->validation);
  const int64_t wanted = train->job->train.validate_samples;
  if (wanted > 0 && wanted < samples) samples = wanted;
  const int n = (int)((samples + train->B - 1) / train->B);
  const tri_sum_node share = tri_sum_tree_share(n, train->n_ranks, train->rank);
  for (int m = share.first; m < share.end; m++) {
    const int64_t first = (int64_t)m * train->B;
    const int64_t left = samples - first;
    TRI_CALL(validate_microbatch(train, first, left < train->B ? (int)left : train->B,
                                 &train->microbatch_losses[m - share.first]));
  }
  double *all = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n, &all));
  const tri_status status = gather_losses(train, n, all);
  if (status == TRI_OK) *loss = tri_sum_tree_double(all, n) / ((double)samples * train->T);
  TRI_FREE(&all);
  return status;
}
