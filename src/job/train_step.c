#include <math.h>
#include <string.h>

#include "job/train_run.h"
#include "trireme/telemetry/clock.h"

// The number in the global batch of this rank's i-th micro-batch. What is computed for none is not
// used: any will do.
static int number_of(const tri_train *train, int i)
{
  const int microbatch = tri_data_parallel_microbatch(train->dp, i);
  return microbatch < 0 ? 0 : microbatch;
}

// The run's micro-batches that this rank computes are numbered 0, 1, 2, … over all steps: the first
// sample of number k.
static uint64_t first_sample_of(const tri_train *train, uint64_t start_step, uint64_t k)
{
  const uint64_t step = start_step + k / (uint64_t)train->n_own;
  const int microbatch = number_of(train, (int)(k % (uint64_t)train->n_own));
  return (step * (uint64_t)train->n_microbatches + (uint64_t)microbatch) * (uint64_t)train->B;
}

tri_status tri_train_prefetch(tri_train *train)
{
  train->next_request = 0;
  train->start_step = (uint64_t)train->step;
  if (!train->is_first && !train->is_last) return TRI_OK;
  if (train->n_own == 0) return TRI_OK;
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

// --- gradients

// This rank's i-th micro-batch on the device, brought there at its first use in a step.
static tri_status batch_of(tri_train *train, int i, tri_step_times *times, tri_batch_slot **out)
{
  const int64_t number = train->step_batches + i;
  if (number == train->n_batches) {
    const double began = tri_clock_seconds();
    TRI_CALL(take_batch(train, out));
    times->data += tri_clock_seconds() - began;
  }
  *out = &train->slots[number % train->n_slots];
  return TRI_OK;
}

// `slot` NULL: neither tokens nor targets are needed.
static tri_train_work work_of(const tri_train *train, int i, const tri_batch_slot *slot)
{
  const uint64_t microbatch = (uint64_t)number_of(train, i);
  const double tokens = (double)train->job->train.global_batch * train->T;
  return (tri_train_work){
      .batch = {.tokens = slot == NULL ? NULL : slot->tokens,
                .targets = slot == NULL ? NULL : slot->targets,
                .B = train->B,
                .T = train->T,
                .first_sample = train->samples + microbatch * (uint64_t)train->B,
                .loss_scale = (float)(1.0 / tokens)},
      .training = true,
      .index = i};
}

// Everything between a micro-batch in its slot and its gradients and loss.
static tri_status compute(tri_train *train, int i, const tri_batch_slot *slot)
{
  tri_train_work work = work_of(train, i, slot);
  work.chunk = &train->chunks[0];
  work.d_hidden = train->d_hidden;
  TRI_CALL(tri_train_forward(train, &work));
  return tri_train_backward(train, &work);
}

static tri_status record(tri_train *train, int i, const tri_batch_slot *slot, tri_graph **out)
{
  TRI_CALL(tri_graph_begin(train->stream));
  tri_data_parallel_record(train->dp, true);
  const tri_status status = compute(train, i, slot);
  tri_data_parallel_record(train->dp, false);
  // What a failed recording left is given up; its cause has been said.
  if (status != TRI_OK && tri_graph_end(train->stream, out) == TRI_OK) tri_graph_destroy(out);
  TRI_CALL(status);
  TRI_CALL(tri_graph_end(train->stream, out));
  return TRI_OK;
}

// A slot and a place in the share are the same work in every step: recorded when they first meet.
static tri_status launch(tri_train *train, int i, const tri_batch_slot *slot)
{
  tri_graph **graph = &train->graphs[i * train->n_slots + (int)(slot - train->slots)];
  if (*graph == NULL) TRI_CALL(record(train, i, slot, graph));
  TRI_CALL(tri_graph_launch(*graph, train->stream));
  TRI_CALL(tri_data_parallel_launched(train->dp, i));
  return TRI_OK;
}

static tri_status compute_microbatch(tri_train *train, int i, tri_step_times *times)
{
  tri_batch_slot *slot = NULL;
  TRI_CALL(batch_of(train, i, times, &slot));
  if (train->graphs != NULL) {
    TRI_CALL(launch(train, i, slot));
  } else {
    TRI_CALL(compute(train, i, slot));
  }
  return tri_train_batch_done(train, slot);
}

typedef struct step_run {
  tri_train *train;
  tri_step_times *times;
} step_run;

// One action of the pipeline.
static tri_status compute_action(void *user, const tri_pipeline_call *call)
{
  const step_run *run = user;
  tri_train *train = run->train;
  const tri_pipeline_action *action = call->action;
  const tri_train_chunk *chunk = &train->chunks[action->chunk];
  const int i = action->microbatch;
  const bool begins = chunk->first == 0, ends = chunk->end == train->model->n_blocks;
  const bool uses_targets = ends && (action->work == TRI_PIPELINE_BACKWARD ||
                                     action->work == TRI_PIPELINE_BACKWARD_INPUT);
  tri_batch_slot *slot = NULL;
  if (begins || uses_targets) TRI_CALL(batch_of(train, i, run->times, &slot));
  tri_train_work work = work_of(train, i, slot);
  work.chunk = chunk;
  work.slot = action->slot;
  work.input = call->input;
  work.output = call->output;
  work.d_hidden = call->gradient;
  if (action->work == TRI_PIPELINE_FORWARD) return tri_train_forward(train, &work);
  if (action->work != TRI_PIPELINE_BACKWARD) {
    work.part =
        action->work == TRI_PIPELINE_BACKWARD_INPUT ? TRI_BACKWARD_INPUT : TRI_BACKWARD_WEIGHT;
    work.weight_slot = action->weight_slot;
  }
  TRI_CALL(tri_train_backward(train, &work));
  // The first block is the last to use it, where that is here.
  const bool last_use = begins ? work.part != TRI_BACKWARD_INPUT : uses_targets && !train->is_first;
  return last_use ? tri_train_batch_done(train, slot) : TRI_OK;
}

static tri_status compute_share(tri_train *train, tri_step_times *times)
{
  step_run run = {train, times};
  train->step_batches = train->n_batches;
  if (train->pipeline != NULL) return tri_pipeline_run(train->pipeline, compute_action, &run);
  for (int i = 0; i < train->n_own; i++)
    TRI_CALL(compute_microbatch(train, i, times));
  return TRI_OK;
}

// --- norm, loss, update

tri_status tri_train_fetch_sums(tri_train *train, int64_t first, int64_t n)
{
  TRI_CALL(tri_stream_copy_to_host(train->stream, train->host_sums + first, train->sums + first,
                                   (size_t)n * sizeof(double)));
  TRI_CALL(tri_data_parallel_synchronize(train->dp));
  return tri_stream_synchronize(train->stream);
}

// Puts the chunks of all stages in the order of the whole model.
static void order_norm(tri_train *train)
{
  const int n_stages = train->grid.size[TRI_GRID_PIPELINE];
  const int64_t *offsets = train->model->parameters.whole_offsets;
  for (int s = 0; s < n_stages; s++) {
    const double *from = train->stage_norms + s * train->widest_norm;
    for (int j = s; j < n_stages * train->grid.n_virtual; j += n_stages) {
      const int64_t first = offsets[train->first_blocks[j]] / TRI_NORM_CHUNK;
      const int64_t end = offsets[train->first_blocks[j + 1]] / TRI_NORM_CHUNK;
      memcpy(train->whole_norm + first, from, (size_t)(end - first) * sizeof(double));
      from += end - first;
    }
  }
}

// Elements [first, end) of the flat space, as far as they are in the range.
static tri_status sum_squares_of(tri_train *train, const float *gradient,
                                 const tri_owned_range *range, int64_t first, int64_t end)
{
  const int64_t from = first > range->first ? first : range->first;
  const int64_t to = end < range->end ? end : range->end;
  if (from >= to) return TRI_OK;
  return train->kernels->sum_squares(train->stream, train->sums + from / TRI_NORM_CHUNK,
                                     gradient + range->gradient_at + (from - range->first),
                                     to - from);
}

// Of a range: of a share but the first, what all shares hold is left out.
static tri_status sum_squares_of_range(tri_train *train, const float *gradient,
                                       const tri_owned_range *range)
{
  const tri_parameters *parameters = &train->model->parameters;
  if (train->at[TRI_GRID_TENSOR] == 0)
    return sum_squares_of(train, gradient, range, range->first, range->end);
  for (int i = 0; i < parameters->n; i++) {
    const tri_parameter *p = &parameters->list[i];
    if (p->split) TRI_CALL(sum_squares_of(train, gradient, range, p->offset, p->offset + p->count));
  }
  return TRI_OK;
}

static tri_status sum_squares(tri_train *train, const float *gradient)
{
  // 0.0 is zero bits.
  TRI_CALL(train->kernels->fill(train->stream, (float *)train->sums, 0.0f, 2 * train->n_norm));
  for (int i = 0; i < train->n_owned; i++)
    TRI_CALL(sum_squares_of_range(train, gradient, &train->owned[i]));
  return TRI_OK;
}

// Each chunk is of one data rank, and zero of the others: their sum is it.
static tri_status gather_owned_norm(tri_train *train)
{
  const int n_data = train->grid.size[TRI_GRID_DATA];
  const int64_t n = train->widest_norm;
  if (!train->sharded) return TRI_OK;
  TRI_CALL(tri_comm_all_gather(train->data_comm, "gradient norm", train->host_sums,
                               (size_t)n * sizeof(double), train->data_norms));
  for (int64_t c = 0; c < train->n_norm; c++) {
    double sum = 0.0;
    for (int r = 0; r < n_data; r++)
      sum += train->data_norms[r * n + c];
    train->host_sums[c] = sum;
  }
  return TRI_OK;
}

// The chunks of the whole model from those of this rank, in host_sums: of all stages, then of all
// shares, one after another.
static tri_status gather_norm(tri_train *train, int64_t whole)
{
  const double *own = train->host_sums;
  if (train->grid.size[TRI_GRID_PIPELINE] > 1) {
    TRI_CALL(tri_comm_all_gather(train->pipeline_comm, "gradient norm", own,
                                 (size_t)train->widest_norm * sizeof(double), train->stage_norms));
    order_norm(train);
    own = train->whole_norm;
  }
  if (train->grid.size[TRI_GRID_TENSOR] == 1) {
    if (own != train->whole_norm) memcpy(train->whole_norm, own, (size_t)whole * sizeof(double));
    return TRI_OK;
  }
  return tri_comm_all_gather(train->tensor_comm, "gradient norm", own,
                             (size_t)whole * sizeof(double), train->share_norms);
}

// The one place in a step where the host waits for the device: it needs the norm for the update,
// and the losses of the micro-batches come along.
static tri_status fetch_norm(tri_train *train, const float *gradient, double *norm)
{
  const tri_parameters *parameters = &train->model->parameters;
  const int64_t whole = parameters->whole_offsets[parameters->n_blocks] / TRI_NORM_CHUNK;
  const int n_own = train->is_last ? train->n_own : 0;
  const int n_shares = train->grid.size[TRI_GRID_TENSOR];
  TRI_CALL(sum_squares(train, gradient));
  TRI_CALL(tri_train_fetch_sums(train, 0, train->n_norm + n_own));
  TRI_CALL(gather_owned_norm(train));
  TRI_CALL(gather_norm(train, whole));
  *norm = n_shares == 1 ? tri_norm_of_chunks(train->whole_norm, whole)
                        : tri_norm_of_chunks(train->share_norms, n_shares * whole);
  return TRI_OK;
}

static tri_status mean_loss(tri_train *train, double *loss)
{
  if (train->is_last)
    TRI_CALL(tri_data_parallel_sum(train->dp, "loss", train->host_sums + train->n_norm, loss));
  TRI_CALL(tri_train_from_last_stage(train, "loss", loss));
  *loss /= (double)train->job->train.global_batch * train->T;
  return TRI_OK;
}

// Every rank updates what it owns.
static tri_status update(tri_train *train, const float *gradient, float lr, double norm)
{
  const tri_model *model = train->model;
  const bool whole = tri_train_has_whole_parameters(train);
  for (int i = 0; i < train->n_owned; i++) {
    const tri_owned_range *range = &train->owned[i];
    float *parameters = train->parameters + (whole ? range->first : range->at);
    tri_bf16 *rounded = tri_train_rounded(train, range);
    TRI_CALL(tri_adamw_update(&train->adamw, train->stream, &model->parameters, range->first,
                              range->end, parameters, rounded, train->moment1 + range->at,
                              train->moment2 + range->at, gradient + range->gradient_at,
                              train->step + 1, lr, tri_clip_scale(norm, train->job->train.clip)));
  }
  return tri_train_share_weights(train);
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
  const double waited = tri_train_wait_seconds(train);
  float *gradient = NULL, *second_use = NULL;
  double loss = 0.0, norm = 0.0;
  TRI_CALL(tri_data_parallel_begin(train->dp));
  TRI_CALL(compute_share(train, times));
  TRI_CALL(tri_data_parallel_wait(train->dp, &gradient, &second_use));
  TRI_CALL(tri_tied_sum_gradient(train->tied, train->owned, train->n_owned, gradient, second_use));
  TRI_CALL(tri_tensor_sum_gradients(train->tensor, &train->model->parameters, train->owned,
                                    train->n_owned, gradient));
  TRI_CALL(fetch_norm(train, gradient, &norm));
  TRI_CALL(mean_loss(train, &loss));
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
  times->communication = tri_train_wait_seconds(train) - waited;
  fill_metrics(train, times, loss, norm, lr, metrics);
  return TRI_OK;
}
