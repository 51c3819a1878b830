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

// Takes the next micro-batch and asks for the one after the next.
static tri_status take_batch(tri_train *train, tri_batch_slot **out)
{
  TRI_CALL(tri_train_batch_take(train, train->loader, train->B, out));
  const uint64_t next = first_sample_of(train, train->start_step, train->next_request);
  TRI_CALL(tri_loader_request(train->loader, next, train->B));
  train->next_request++;
  return TRI_OK;
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

// The sum of the losses of the tokens of the index-th micro-batch, on the device.
static tri_status sum_losses(tri_train *train, const tri_batch *batch, int index)
{
  const int64_t n = (int64_t)batch->B * batch->T;
  TRI_CALL(
      train->kernels->sum(train->stream, train->sums + train->n_chunks + index, train->losses, n));
  return TRI_OK;
}

// Everything between a micro-batch in its slot and its gradients and loss.
static tri_status compute(tri_train *train, int microbatch, const tri_batch_slot *slot)
{
  const double tokens = (double)train->job->train.global_batch * train->T;
  const tri_batch batch = {.tokens = slot->tokens,
                           .targets = slot->targets,
                           .B = train->B,
                           .T = train->T,
                           .first_sample =
                               train->samples + (uint64_t)microbatch * (uint64_t)train->B,
                           .loss_scale = (float)(1.0 / tokens)};
  float *gradients = NULL;
  TRI_CALL(
      tri_data_parallel_gradients(train->dp, microbatch, 0, train->model->n_blocks, &gradients));
  TRI_CALL(forward(train, &batch, gradients));
  TRI_CALL(backward(train, &batch, microbatch, gradients));
  return sum_losses(train, &batch, microbatch - train->first_microbatch);
}

static tri_status record(tri_train *train, int microbatch, const tri_batch_slot *slot,
                         tri_graph **out)
{
  TRI_CALL(tri_graph_begin(train->stream));
  tri_data_parallel_record(train->dp, true);
  const tri_status status = compute(train, microbatch, slot);
  tri_data_parallel_record(train->dp, false);
  // What a failed recording left is given up; its cause has been said.
  if (status != TRI_OK && tri_graph_end(train->stream, out) == TRI_OK) tri_graph_destroy(out);
  TRI_CALL(status);
  TRI_CALL(tri_graph_end(train->stream, out));
  return TRI_OK;
}

// A slot and a place in the share are the same work in every step: recorded when they first meet.
static tri_status launch(tri_train *train, int microbatch, const tri_batch_slot *slot)
{
  const int place = microbatch - train->first_microbatch;
  tri_graph **graph = &train->graphs[place * TRI_TRAIN_SLOTS + (int)(slot - train->slots)];
  if (*graph == NULL) TRI_CALL(record(train, microbatch, slot, graph));
  TRI_CALL(tri_graph_launch(*graph, train->stream));
  TRI_CALL(tri_data_parallel_launched(train->dp, microbatch));
  return TRI_OK;
}

static tri_status compute_microbatch(tri_train *train, int microbatch, tri_step_times *times)
{
  const double began = tri_clock_seconds();
  tri_batch_slot *slot = NULL;
  TRI_CALL(take_batch(train, &slot));
  times->data += tri_clock_seconds() - began;
  if (train->graphs != NULL) {
    TRI_CALL(launch(train, microbatch, slot));
  } else {
    TRI_CALL(compute(train, microbatch, slot));
  }
  TRI_CALL(tri_train_batch_done(train, slot));
  return TRI_OK;
}

// Sums [first, first + n) on the host.
static tri_status fetch_sums(tri_train *train, int64_t first, int64_t n)
{
  TRI_CALL(tri_stream_copy_to_host(train->stream, train->host_sums + first, train->sums + first,
                                   (size_t)n * sizeof(double)));
  TRI_CALL(tri_data_parallel_synchronize(train->dp));
  TRI_CALL(tri_stream_synchronize(train->stream));
  return TRI_OK;
}

// The one place in a step where the host waits for the device: it needs the norm for the update,
// and the losses of the micro-batches come along.
static tri_status fetch_norm(tri_train *train, const float *gradient, double *norm)
{
  const int64_t n = train->model->parameters.flat_count;
  const int n_own = train->end_microbatch - train->first_microbatch;
  TRI_CALL(train->kernels->sum_squares(train->stream, train->sums, gradient, n));
  TRI_CALL(fetch_sums(train, 0, train->n_chunks + n_own));
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
  TRI_CALL(fetch_norm(train, gradient, &norm));
  TRI_CALL(tri_data_parallel_sum(train->dp, "loss", train->host_sums + train->n_chunks, &loss));
  loss /= (double)train->job->train.global_batch * train->T;
  TRI_CHECK(isfinite(loss) && isfinite(norm), TRI_ERR_NUMERIC,
            "step %lld: the loss is %g and the gradient norm %g; lower train.lr, or resume from an "
            "earlier "
            "checkpoint",
            (long long)train->step + 1, loss, norm);
  const float lr = tri_schedule_rate(&train->schedule, train->step + 1);
  // Queued: the next step's first kernels are queued behind it while it runs.
  TRI_CALL(update(train, gradient, lr, norm));
  train->step++;
  train->samples += (uint64_t)train->job->train.global_batch;
  times->total = tri_clock_seconds() - began;
  times->communication = tri_comm_wait_seconds(train->comm) - waited;
  fill_metrics(train, times, loss, norm, lr, metrics);
  return TRI_OK;
}

// --- validation

// The losses of validation samples [first, first + n) as the index-th sum on the device.
static tri_status validate_microbatch(tri_train *train, int64_t first, int n, int index)
{
  tri_batch_slot *slot = NULL;
  TRI_CALL(tri_loader_request(train->validation, (uint64_t)first, n));
  TRI_CALL(tri_train_batch_take(train, train->validation, n, &slot));
  const tri_batch batch = {.tokens = slot->tokens, .targets = slot->targets, .B = n, .T = train->T};
  TRI_CALL(forward(train, &batch, NULL));
  TRI_CALL(tri_train_batch_done(train, slot));
  return sum_losses(train, &batch, index);
}

// The losses of all micro-batches, one after another, from every rank's share of them.
static tri_status gather_losses(tri_train *train, int n, double *all)
{
  const double *own = train->host_sums + train->n_chunks;
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
    TRI_CALL(
        validate_microbatch(train, first, left < train->B ? (int)left : train->B, m - share.first));
  }
  TRI_CALL(fetch_sums(train, train->n_chunks, share.end - share.first));
  double *all = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n, &all));
  const tri_status status = gather_losses(train, n, all);
  if (status == TRI_OK) *loss = tri_sum_tree_double(all, n) / ((double)samples * train->T);
  TRI_FREE(&all);
  return status;
}
