#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "job/train_run.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include "trireme/telemetry/clock.h"
#include "trireme/telemetry/report.h"

// What a rank says of itself in the header.
typedef struct rank_facts {
  tri_binding binding;
  char device[192];
  int n_threads;
  uint64_t parameter_bytes, optimizer_bytes, activation_bytes, pipeline_bytes;
  uint64_t gradient_bytes, exchange_bytes;
  int n_gradient_buffers;
  int n_microbatches, first_microbatch, next_microbatch; // of a step; -1: none
  int stage, first_block, end_block;                     // of its first chunk
} rank_facts;

enum { MOST_RANKS_LISTED = 16 };

static double mib(uint64_t bytes)
{
  return (double)bytes / 1048576.0;
}

// Hidden states and gradients on their way between stages and between shares.
static uint64_t pipeline_bytes(const tri_train *train)
{
  tri_pipeline_memory memory = {0};
  if (train->pipeline != NULL) tri_pipeline_get_memory(train->pipeline, &memory);
  return memory.pool_bytes + tri_tied_memory_bytes(train->tied) +
         tri_tensor_memory_bytes(train->tensor);
}

static uint64_t all_bytes(const rank_facts *f)
{
  return f->parameter_bytes + f->optimizer_bytes + f->activation_bytes + f->pipeline_bytes +
         f->gradient_bytes + f->exchange_bytes;
}

// ", stage 1: blocks 3 to 5", or nothing where there is one stage; of several chunks the first.
static const char *stage_text(const tri_train *train, const rank_facts *f, char *text, size_t size)
{
  text[0] = '\0';
  if (train->grid.size[TRI_GRID_PIPELINE] == 1) return text;
  snprintf(text, size, ", stage %d: blocks %d to %d%s", f->stage, f->first_block, f->end_block - 1,
           train->grid.n_virtual > 1 ? " and on" : "");
  return text;
}

// "[2, 4)", or by rounds "1, 3, …, 2 of them": those of a step.
static const char *microbatches_text(const rank_facts *f, char *text, size_t size)
{
  const int step = f->next_microbatch - f->first_microbatch;
  if (f->n_microbatches == 0 || f->first_microbatch < 0)
    snprintf(text, size, "none");
  else if (step == 1 || f->next_microbatch < 0)
    snprintf(text, size, "[%d, %d)", f->first_microbatch, f->first_microbatch + f->n_microbatches);
  else
    snprintf(text, size, "%d, %d, …, %d in all", f->first_microbatch, f->next_microbatch,
             f->n_microbatches);
  return text;
}

static void own_facts(const tri_train *train, rank_facts *facts)
{
  tri_device_facts device;
  tri_data_parallel_memory memory;
  memset(facts, 0, sizeof *facts);
  tri_device_get_facts(train->device, &device);
  tri_data_parallel_get_memory(train->dp, &memory);
  facts->binding = *tri_runtime_binding(train->runtime);
  snprintf(facts->device, sizeof facts->device, "%s: %s", device.name, device.description);
  facts->n_threads = device.n_threads;
  facts->parameter_bytes =
      train->parameter_arena.size_bytes + tri_block_weights_memory_bytes(train->block_weights);
  facts->optimizer_bytes = train->optimizer_arena.size_bytes;
  facts->activation_bytes = train->activation_arena.size_bytes;
  facts->pipeline_bytes = pipeline_bytes(train);
  facts->gradient_bytes = memory.gradient_bytes;
  facts->exchange_bytes = memory.exchange_bytes;
  facts->n_gradient_buffers = memory.n_gradient_buffers;
  facts->n_microbatches = train->n_own;
  facts->first_microbatch = train->n_own > 0 ? tri_data_parallel_microbatch(train->dp, 0) : -1;
  facts->next_microbatch = train->n_own > 1 ? tri_data_parallel_microbatch(train->dp, 1) : -1;
  facts->stage = train->at[TRI_GRID_PIPELINE];
  facts->first_block = train->chunks[0].first;
  facts->end_block = train->chunks[0].end;
}

static void print_ranks(const tri_train *train, const rank_facts *all)
{
  const int shown = train->n_ranks < MOST_RANKS_LISTED ? train->n_ranks : MOST_RANKS_LISTED;
  for (int r = 0; r < shown; r++) {
    const rank_facts *f = &all[r];
    // Devices that differ are told a rank; the header has named the first.
    const bool told = strcmp(f->device, all[0].device) != 0;
    const bool wired = f->binding.network[0] != '\0';
    char stage[64], dealt[64];
    tri_log(TRI_LOG_INFO, "  rank %-4d %s, units %s%s, %d thread%s%s, micro-batches %s%s%s%s%s", r,
            f->binding.host, f->binding.units, f->binding.bound ? "" : " (not bound)", f->n_threads,
            f->n_threads == 1 ? "" : "s", stage_text(train, f, stage, sizeof stage),
            microbatches_text(f, dealt, sizeof dealt), told ? ", " : "", told ? f->device : "",
            wired ? ", network " : "", f->binding.network);
  }
  if (shown < train->n_ranks)
    tri_log(TRI_LOG_INFO, "  … and %d ranks more", train->n_ranks - shown);
}

static void print_model(const tri_train *train)
{
  const tri_model *model = train->model;
  const tri_job_model *shape = &train->job->model;
  tri_log(TRI_LOG_INFO,
          "model      %s: %d layers, %d heads, width %d, context %d, vocabulary %d, %" PRId64
          " parameters",
          model->name, shape->layers, shape->heads, model->width, train->T, model->vocab_size,
          model->parameters.logical_count);
  tri_log(TRI_LOG_INFO, "precision  %s, sums in f32 or wider; gradients, moments, parameters f32",
          tri_dtype_name(model->dtype));
}

// "2 buffers", or "slices": zero 2.
static const char *buffers_text(const rank_facts *f, char *text, size_t size)
{
  const int n = f->n_gradient_buffers;
  snprintf(text, size, n == 0 ? "slices" : n == 1 ? "%d buffer" : "%d buffers", n);
  return text;
}

static void print_memory(const tri_train *train, const rank_facts *all)
{
  const rank_facts *f = &all[0];
  for (int r = 1; r < train->n_ranks; r++) {
    if (all_bytes(&all[r]) > all_bytes(f)) f = &all[r];
  }
  char buffers[32];
  tri_log(TRI_LOG_INFO,
          "memory     %" PRIu64 " bytes (%.1f MiB) on rank %d, the fullest: parameters %" PRIu64
          ", gradients %" PRIu64 " (%s), optimizer %" PRIu64 ", activations %" PRIu64
          ", exchange %" PRIu64 ", pipeline %" PRIu64,
          all_bytes(f), mib(all_bytes(f)), (int)(f - all), f->parameter_bytes, f->gradient_bytes,
          buffers_text(f, buffers, sizeof buffers), f->optimizer_bytes, f->activation_bytes,
          f->exchange_bytes, f->pipeline_bytes);
}

static void print_exchange(const tri_train *train)
{
  tri_transport_facts facts;
  char created[64] = "", staging[96] = "";
  if (train->grid.size[TRI_GRID_DATA] == 1) return;
  tri_transport_get_facts(train->transport, &facts);
  if (facts.create_seconds > 0)
    snprintf(created, sizeof created, "; communicator made in %.2f s", facts.create_seconds);
  if (facts.staging_bytes > 0)
    snprintf(staging, sizeof staging, "; %.1f MiB of pinned host memory", mib(facts.staging_bytes));
  tri_log(TRI_LOG_INFO, "exchange   %s: %s%s%s; parallel.reduce %s", facts.name, facts.reason,
          created, staging,
          train->job->parallel.reduce == TRI_JOB_REDUCE_FAST
              ? "fast: NCCL's all-reduce, bits depend on the ranks"
              : "exact: the fixed tree, the same bits on any ranks");
}

static void print_pipeline(const tri_train *train)
{
  tri_pipeline_memory memory;
  if (train->pipeline == NULL) return;
  tri_pipeline_get_memory(train->pipeline, &memory);
  tri_log(TRI_LOG_INFO, "pipeline   %s; rank 0 has %d buffers of %.1f MiB between its stages",
          tri_pipeline_kind_name(train->grid.schedule), memory.n_buffers,
          mib(memory.n_buffers == 0 ? 0 : memory.pool_bytes / (unsigned)memory.n_buffers));
}

static void print_layout(const tri_train *train)
{
  const tri_job *job = train->job;
  char grid[TRI_GRID_TEXT_BYTES];
  tri_log(
      TRI_LOG_INFO,
      "layout     %s; global batch %d samples of %d tokens = %d micro-batches of %d; sum groups "
      "of %d; overlap %s",
      tri_grid_text(&train->grid, grid), job->train.global_batch, train->T, train->n_microbatches,
      train->B, job->train.sum_group, job->parallel.overlap ? "on" : "off");
  if (train->n_ranks > 1) tri_log(TRI_LOG_INFO, "           %s", tri_grid_comms_text(train->comms));
}

// They are right, and gain no time.
static void print_ranks_without_data(const tri_train *train)
{
  const int n_data = train->grid.size[TRI_GRID_DATA], group = train->job->train.sum_group;
  const int n_groups = (train->n_microbatches + group - 1) / group;
  if (n_data <= n_groups) return;
  tri_log(TRI_LOG_INFO,
          "           %d of %d data ranks have no micro-batch: a step has %d sum group%s",
          n_data - n_groups, n_data, n_groups, n_groups == 1 ? "" : "s");
}

static void print_header(const tri_train *train, const rank_facts *all)
{
  const tri_job *job = train->job;
  tri_log(TRI_LOG_INFO, "run        %s in %s, seed %" PRIu64, job->name, train->run_dir, job->seed);
  tri_log(TRI_LOG_INFO, "device     %s", all[0].device);
  print_layout(train);
  print_ranks_without_data(train);
  print_ranks(train, all);
  print_exchange(train);
  print_pipeline(train);
  print_model(train);
  tri_log(TRI_LOG_INFO,
          "data       %s: tokenizer %s, %" PRId64 " tokens to train on, %" PRId64 " to validate on",
          job->data.corpus, train->corpus_facts.tokenizer_name,
          train->corpus_facts.n_tokens[TRI_SPLIT_TRAIN],
          train->corpus_facts.n_tokens[TRI_SPLIT_VALIDATION]);
  print_memory(train, all);
  tri_log(TRI_LOG_INFO, "flops      %.4g GFLOP a token (%s); peak %.4g GFLOP/s a rank (%s)",
          train->flops_per_token * 1e-9, train->flop_convention, train->peak_flops * 1e-9,
          job->log.peak_gflops > 0 ? "log.peak_gflops" : "measured by a matrix product");
}

static tri_status open_metrics(tri_train *train)
{
  char path[TRI_TRAIN_PATH_BYTES];
  TRI_CALL(tri_path_join(path, sizeof path, train->run_dir, "metrics.jsonl"));
  TRI_CALL(tri_metrics_open(path, train->step, &train->metrics));
  return tri_metrics_header(train->metrics, train->flop_convention, train->flops_per_token,
                            train->job->log.peak_gflops > 0 ? "log.peak_gflops"
                                                            : "measured matrix product",
                            train->peak_flops, train->n_ranks);
}

tri_status tri_train_report_header(tri_train *train)
{
  rank_facts own;
  rank_facts *all = NULL;
  tri_status status = TRI_OK;
  own_facts(train, &own);
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, train->n_ranks, &all));
  TRI_CALL_GOTO(done, tri_comm_all_gather(train->comm, "header", &own, sizeof own, all));
  if (train->rank == 0) {
    print_header(train, all);
    status = open_metrics(train);
  }
  TRI_CALL_GOTO(done, tri_comm_agree(train->comm, "metrics file", status));

done:
  TRI_FREE(&all);
  return status;
}

void tri_train_report_step(const tri_progress *progress, const tri_step_metrics *metrics)
{
  char remaining[64];
  char validation[96] = "";
  tri_progress_remaining(progress, metrics->step, remaining, sizeof remaining);
  if (!isnan(metrics->validation_loss)) {
    snprintf(validation, sizeof validation, "  validation %.4f (%.4f nats a byte)",
             metrics->validation_loss, metrics->validation_loss_per_byte);
  }
  tri_log(
      TRI_LOG_INFO,
      "step %*" PRId64 "/%" PRId64
      "  loss %.4f  norm %.3f  lr %.2e  %.0f tokens/s  MFU %.0f %%  exposed communication %.1f %%  "
      "%s to go%s",
      4, metrics->step, progress->total, metrics->loss, metrics->grad_norm, metrics->lr,
      metrics->tokens_per_second, 100.0 * metrics->mfu,
      100.0 * metrics->communication_seconds / metrics->step_seconds, remaining, validation);
}

static void draw_loss(const tri_train *train)
{
  if (train->step == 0) return;
  if (tri_report_loss_svg(train->run_dir) == TRI_OK) {
    tri_log(TRI_LOG_INFO, "pictures   %s/loss.svg; 'trireme report %s' makes a page of all curves",
            train->run_dir, train->run_dir);
    return;
  }
  // A picture is not worth a run: say why it is missing and how to get it, and end well.
  tri_log(TRI_LOG_INFO, "pictures   loss.svg was not drawn: %s", tri_error_message());
  tri_error_clear();
}

tri_status tri_train_report_end(tri_train *train, const tri_progress *progress)
{
  tri_digest digest;
  char hex[TRI_DIGEST_HEX_BYTES];
  TRI_CALL(tri_train_digest(train, &digest));
  if (train->rank != 0) return TRI_OK;
  tri_digest_hex(&digest, hex);
  TRI_CALL(tri_metrics_close(&train->metrics));
  draw_loss(train);
  const double seconds = tri_clock_seconds() - progress->began_seconds;
  const int64_t steps = train->step - progress->first;
  const double tokens = (double)steps * train->job->train.global_batch * train->T;
  tri_log(TRI_LOG_INFO, "done       %" PRId64 " steps in %.1f s, %.0f tokens/s%s%s", steps, seconds,
          seconds > 0 ? tokens / seconds : 0.0,
          train->last_saved_step >= 0 ? ", checkpoint in " : "",
          train->last_saved_step >= 0 ? train->checkpoint_dir : "");
  tri_log(TRI_LOG_INFO, "state digest %s", hex);
  return TRI_OK;
}

// --- peak

enum { PEAK_N = 1024, PEAK_REPEATS = 5 };

static tri_status time_product(tri_train *train, float *memory, double *best)
{
  const int64_t n = PEAK_N;
  float *x = memory, *w = memory + n * n, *out = memory + 2 * n * n;
  TRI_CALL(train->kernels->fill(train->stream, memory, 0.5f, 3 * n * n));
  TRI_CALL(train->kernels->linear_prepare(train->stream, n, n, n, TRI_DTYPE_F32));
  *best = INFINITY;
  for (int i = 0; i < PEAK_REPEATS; i++) {
    const double began = tri_clock_seconds();
    TRI_CALL(train->kernels->linear_forward(train->stream, out, NULL, x, w, NULL, n, n, n,
                                            TRI_DTYPE_F32));
    TRI_CALL(tri_stream_synchronize(train->stream));
    const double seconds = tri_clock_seconds() - began;
    if (seconds < *best) *best = seconds;
  }
  return TRI_OK;
}

tri_status tri_train_measure_peak(tri_train *train)
{
  train->peak_flops = train->job->log.peak_gflops * 1e9;
  if (train->peak_flops > 0) return TRI_OK;
  void *memory = NULL;
  double best = INFINITY;
  const size_t n = PEAK_N;
  TRI_CALL(tri_device_alloc(train->device, 3 * n * n * sizeof(float), &memory));
  const tri_status status = time_product(train, memory, &best);
  tri_device_free(train->device, &memory);
  train->peak_flops = 2.0 * (double)(n * n * n) / best;
  return status;
}
