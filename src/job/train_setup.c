#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "job/train_run.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"

enum { LOADER_DEPTH = 3, PREPARE_LIMIT_SECONDS = 24 * 3600 };

static tri_status check_layout(tri_train *train)
{
  const tri_job *job = train->job;
  TRI_CHECK(
      job->parallel.data == 0 || job->parallel.data == train->n_ranks, TRI_ERR_CONFIG,
      "parallel.data is %d but %d ranks were started: start %d ranks or set parallel.data=auto",
      job->parallel.data, train->n_ranks, job->parallel.data);
  TRI_CHECK(train->n_ranks <= train->n_microbatches, TRI_ERR_CONFIG,
            "%d ranks for %d micro-batches (train.global_batch %d / train.microbatch %d): start at "
            "most %d "
            "ranks, or make the micro-batch smaller",
            train->n_ranks, train->n_microbatches, job->train.global_batch, job->train.microbatch,
            train->n_microbatches);
  return TRI_OK;
}

// --- the run folder

static tri_status open_log(tri_train *train)
{
  char path[TRI_TRAIN_PATH_BYTES];
  TRI_CALL(tri_path_join(path, sizeof path, train->run_dir, "run.log"));
  train->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  TRI_CHECK(train->log_fd >= 0, TRI_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  tri_log_tee(train->log_fd);
  return TRI_OK;
}

static tri_status write_job(const tri_train *train)
{
  char path[TRI_TRAIN_PATH_BYTES];
  char *yaml = NULL;
  TRI_CALL(tri_path_join(path, sizeof path, train->run_dir, "job.yaml"));
  TRI_CALL(tri_job_to_yaml(train->job, &yaml));
  const tri_status status = tri_file_write_atomic(path, yaml, strlen(yaml));
  TRI_FREE(&yaml);
  return status;
}

static tri_status write_tokenizer(const tri_train *train)
{
  char path[TRI_TRAIN_PATH_BYTES];
  tri_tokenizer *tokenizer = NULL;
  char *json = NULL;
  tri_status status = TRI_OK;
  TRI_CALL(tri_path_join(path, sizeof path, train->run_dir, "tokenizer.json"));
  TRI_CALL(tri_corpus_tokenizer(train->corpus, &tokenizer));
  TRI_CALL_GOTO(done, tri_tokenizer_to_json(tokenizer, &json));
  TRI_CALL_GOTO(done, tri_file_write_atomic(path, json, strlen(json)));

done:
  TRI_FREE(&json);
  tri_tokenizer_close(&tokenizer);
  return status;
}

static tri_status open_run_folder(tri_train *train)
{
  const tri_job *job = train->job;
  const int n = snprintf(train->run_dir, sizeof train->run_dir, "%s", job->run.dir);
  const int m =
      snprintf(train->checkpoint_dir, sizeof train->checkpoint_dir, "%s", job->checkpoint.dir);
  TRI_CHECK(n < TRI_TRAIN_PATH_BYTES - 64 && m < TRI_TRAIN_PATH_BYTES - 64, TRI_ERR_CONFIG,
            "run.dir or checkpoint.dir is too long");
  if (train->rank != 0) return TRI_OK;
  TRI_CALL(tri_file_make_folder(train->run_dir));
  TRI_CALL(tri_file_make_folder(train->checkpoint_dir));
  TRI_CALL(open_log(train));
  return write_job(train);
}

// --- data

static tri_status open_corpus(tri_train *train)
{
  const tri_job *job = train->job;
  TRI_CALL(tri_corpus_open(job->data.corpus, &train->corpus));
  tri_corpus_get_facts(train->corpus, &train->corpus_facts);
  const int vocab = train->corpus_facts.vocab_size;
  TRI_CHECK(job->model.vocab_size == 0 || job->model.vocab_size >= vocab, TRI_ERR_CONFIG,
            "model.vocab_size is %d, but %s was made by tokenizer %s with %d tokens: give the "
            "model at least "
            "%d, or leave the key out",
            job->model.vocab_size, job->data.corpus, train->corpus_facts.tokenizer_name, vocab,
            vocab);
  return train->rank == 0 ? write_tokenizer(train) : TRI_OK;
}

static tri_status open_loaders(tri_train *train)
{
  const tri_job *job = train->job;
  const tri_loader_options training = {.split = TRI_SPLIT_TRAIN,
                                       .T = train->T,
                                       .max_samples = train->B,
                                       .depth = LOADER_DEPTH,
                                       .shuffled = true,
                                       .seed = job->seed};
  TRI_CALL(tri_loader_create(train->corpus, &training, &train->loader));
  if (train->corpus_facts.n_tokens[TRI_SPLIT_VALIDATION] <= train->T) return TRI_OK;
  tri_loader_options validation = training;
  validation.split = TRI_SPLIT_VALIDATION;
  validation.shuffled = false;
  validation.depth = 1;
  return tri_loader_create(train->corpus, &validation, &train->validation);
}

// --- model, device, memory

static tri_status open_device(tri_train *train)
{
  const tri_job *job = train->job;
  const tri_device_options options = {.isa = job->cpu.isa,
                                      .kernels = job->cpu.kernels,
                                      .n_threads =
                                          tri_runtime_threads(train->runtime, job->cpu.threads)};
  TRI_CALL(tri_device_open(train->device_name, &options, &train->device));
  train->kernels = tri_device_kernels(train->device);
  TRI_CALL(tri_stream_create(train->device, &train->stream));
  TRI_CALL(tri_stream_create(train->device, &train->copies));
  return TRI_OK;
}

static tri_status open_model(tri_train *train)
{
  const tri_job *job = train->job;
  const int vocab =
      job->model.vocab_size > 0 ? job->model.vocab_size : train->corpus_facts.vocab_size;
  const tri_gpt_config config = {.n_layers = job->model.layers,
                                 .n_heads = job->model.heads,
                                 .width = job->model.width,
                                 .context = job->model.context,
                                 .vocab_size = vocab,
                                 .vocab_multiple = job->model.vocab_multiple,
                                 .dropout = job->model.dropout,
                                 .seed = job->seed,
                                 .dtype = job->train.precision};
  TRI_CALL(tri_gpt_create(&config, job->model.name, &train->model));
  train->flops_per_token =
      train->model->operations->flops_per_token(train->model, train->T, &train->flop_convention);
  return TRI_OK;
}

// Offsets of the pieces of the three arenas, between planning and commit.
typedef struct memory_plan {
  size_t parameters, weights, moment1, moment2;
  size_t *hidden, *saved;
  size_t d_hidden, scratch, losses, sums;
  size_t tokens[TRI_TRAIN_SLOTS], targets[TRI_TRAIN_SLOTS];
} memory_plan;

static void plan_state(tri_train *train, memory_plan *plan)
{
  const size_t n = (size_t)train->model->parameters.flat_count;
  tri_arena_begin(&train->parameter_arena, train->device, "parameters");
  tri_arena_begin(&train->optimizer_arena, train->device, "optimizer state");
  plan->parameters = tri_arena_reserve(&train->parameter_arena, n * sizeof(float));
  plan->weights = plan->parameters;
  if (train->model->dtype != TRI_DTYPE_F32) {
    plan->weights =
        tri_arena_reserve(&train->parameter_arena, n * tri_dtype_size(train->model->dtype));
  }
  plan->moment1 = tri_arena_reserve(&train->optimizer_arena, n * sizeof(float));
  plan->moment2 = tri_arena_reserve(&train->optimizer_arena, n * sizeof(float));
}

static void plan_activations(tri_train *train, memory_plan *plan)
{
  const tri_model *model = train->model;
  const size_t BT = (size_t)train->B * (size_t)train->T;
  const size_t hidden_bytes = BT * (size_t)model->width * tri_dtype_size(model->dtype);
  tri_arena *arena = &train->activation_arena;
  tri_arena_begin(arena, train->device, "activations");
  for (int i = 0; i < model->n_blocks; i++) {
    if (i > 0) plan->hidden[i] = tri_arena_reserve(arena, hidden_bytes);
    plan->saved[i] =
        tri_arena_reserve(arena, model->operations->saved_bytes(model, i, train->B, train->T));
  }
  plan->d_hidden = tri_arena_reserve(arena, hidden_bytes);
  plan->scratch =
      tri_arena_reserve(arena, model->operations->scratch_bytes(model, train->B, train->T));
  plan->losses = tri_arena_reserve(arena, BT * sizeof(float));
  for (int s = 0; s < TRI_TRAIN_SLOTS; s++) {
    plan->tokens[s] = tri_arena_reserve(arena, BT * sizeof(int32_t));
    plan->targets[s] = tri_arena_reserve(arena, BT * sizeof(int32_t));
  }
  plan->sums = tri_arena_reserve(arena, (size_t)train->n_sums * sizeof(double));
}

static tri_status commit_memory(tri_train *train, const memory_plan *plan)
{
  TRI_CALL(tri_arena_commit(&train->parameter_arena));
  TRI_CALL(tri_arena_commit(&train->optimizer_arena));
  TRI_CALL(tri_arena_commit(&train->activation_arena));
  train->parameters = tri_arena_at(&train->parameter_arena, plan->parameters);
  train->weights = tri_arena_at(&train->parameter_arena, plan->weights);
  train->moment1 = tri_arena_at(&train->optimizer_arena, plan->moment1);
  train->moment2 = tri_arena_at(&train->optimizer_arena, plan->moment2);
  const tri_arena *arena = &train->activation_arena;
  for (int i = 0; i < train->model->n_blocks; i++) {
    if (i > 0) train->hidden[i] = tri_arena_at(arena, plan->hidden[i]);
    train->saved[i] = tri_arena_at(arena, plan->saved[i]);
  }
  train->d_hidden = tri_arena_at(arena, plan->d_hidden);
  train->scratch = tri_arena_at(arena, plan->scratch);
  train->losses = tri_arena_at(arena, plan->losses);
  for (int s = 0; s < TRI_TRAIN_SLOTS; s++) {
    train->slots[s].tokens = tri_arena_at(arena, plan->tokens[s]);
    train->slots[s].targets = tri_arena_at(arena, plan->targets[s]);
  }
  train->sums = tri_arena_at(arena, plan->sums);
  return TRI_OK;
}

static tri_status open_host_memory(tri_train *train)
{
  int64_t largest = 0;
  for (int i = 0; i < train->model->parameters.n; i++) {
    const int64_t count = train->model->parameters.list[i].count;
    if (count > largest) largest = count;
  }
  TRI_CALL(tri_device_alloc_host(train->device, (size_t)train->n_sums * sizeof(double),
                                 (void **)&train->host_sums));
  TRI_CALL(tri_device_alloc_host(train->device, (size_t)largest * sizeof(float),
                                 (void **)&train->staging));
  TRI_CALL(tri_event_create(train->device, &train->handed_over));
  TRI_CALL(tri_train_batch_open(train));
  return TRI_OK;
}

// Room for the norm's chunks and the losses of a step or of a validation.
static void count_sums(tri_train *train)
{
  const int64_t share = train->n_microbatches / train->n_ranks + 1;
  const int64_t validation =
      train->validation == NULL ? 0 : tri_loader_samples(train->validation) / train->n_ranks + 2;
  train->n_chunks = (train->model->parameters.flat_count + TRI_NORM_CHUNK - 1) / TRI_NORM_CHUNK;
  train->n_sums = train->n_chunks + (share > validation ? share : validation);
}

static tri_status open_memory(tri_train *train)
{
  memory_plan plan = {0};
  tri_status status = TRI_OK;
  const int n_blocks = train->model->n_blocks;
  count_sums(train);
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_JOB, n_blocks, &plan.hidden));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_JOB, n_blocks, &plan.saved));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_JOB, n_blocks, &train->hidden));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_JOB, n_blocks, &train->saved));
  plan_state(train, &plan);
  plan_activations(train, &plan);
  TRI_CALL_GOTO(done, commit_memory(train, &plan));
  TRI_CALL_GOTO(done, open_host_memory(train));
  TRI_CALL_GOTO(done,
                train->model->operations->prepare(train->model, train->stream, train->B, train->T));

done:
  TRI_FREE(&plan.hidden);
  TRI_FREE(&plan.saved);
  return status;
}

static tri_status open_parallel(tri_train *train)
{
  const tri_job *job = train->job;
  const int group = job->train.sum_group;
  const tri_data_parallel_options options = {
      .n_leaves = (train->n_microbatches + group - 1) / group,
      .leaf_microbatches = group,
      .n_microbatches = train->n_microbatches,
      .overlap = job->parallel.overlap,
      .bucket_bytes = (int64_t)(job->parallel.bucket_mib * 1048576.0),
      .in_flight = job->parallel.in_flight,
      .fast = job->parallel.reduce == TRI_JOB_REDUCE_FAST};
  TRI_CALL(tri_transport_create(train->comm, train->device, job->parallel.transport, NULL,
                                &train->transport));
  TRI_CALL(tri_data_parallel_create(train->transport, train->stream, train->model, &options,
                                    &train->dp));
  tri_data_parallel_share(train->dp, &train->first_microbatch, &train->end_microbatch);
  if (!job->cuda.graph) return TRI_OK;
  const int n = train->end_microbatch - train->first_microbatch;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n * TRI_TRAIN_SLOTS, &train->graphs));
  return TRI_OK;
}

// Everything that one rank can find wrong alone.
static tri_status open_local(tri_train *train)
{
  TRI_CALL(open_corpus(train));
  TRI_CALL(open_loaders(train));
  TRI_CALL(open_device(train));
  TRI_CALL(open_model(train));
  TRI_CALL(open_memory(train));
  return tri_train_list_arrays(train);
}

static tri_status prepare_data(tri_train *train)
{
  return train->rank == 0 ? tri_prepare_corpus(&train->job->data) : TRI_OK;
}

tri_status tri_train_open(tri_train *train, tri_runtime *runtime, const tri_job *job)
{
  train->runtime = runtime;
  train->comm = tri_runtime_world(runtime);
  train->job = job;
  train->rank = tri_comm_rank(train->comm);
  train->n_ranks = tri_comm_size(train->comm);
  train->B = job->train.microbatch;
  train->T = job->train.context;
  train->n_microbatches = job->train.global_batch / job->train.microbatch;
  train->adamw =
      (tri_adamw){job->train.beta1, job->train.beta2, job->train.eps, job->train.weight_decay};
  train->schedule = (tri_schedule){job->train.schedule, job->train.lr, job->train.min_lr,
                                   job->train.warmup_steps, job->train.steps};
  TRI_CALL(tri_comm_agree(train->comm, "layout", check_layout(train)));
  TRI_CALL(tri_comm_agree(train->comm, "run folder", open_run_folder(train)));
  // Root may be tokenizing a large text: that is work, not absence.
  tri_comm_set_limit(train->comm, PREPARE_LIMIT_SECONDS);
  TRI_CALL(tri_comm_agree(train->comm, "corpus", prepare_data(train)));
  tri_comm_set_limit(train->comm, job->parallel.limit_seconds);
  TRI_CALL(tri_runtime_device(runtime, job->device == TRI_JOB_DEVICE_CUDA ? "cuda" : "cpu",
                              job->cuda.share, train->device_name, sizeof train->device_name));
  TRI_CALL(tri_comm_agree(train->comm, "set-up", open_local(train)));
  TRI_CALL(open_parallel(train));
  return tri_train_measure_peak(train);
}

static void close_graphs(tri_train *train)
{
  const int n = train->graphs == NULL ? 0 : train->end_microbatch - train->first_microbatch;
  for (int g = 0; g < n * TRI_TRAIN_SLOTS; g++)
    tri_graph_destroy(&train->graphs[g]);
  TRI_FREE(&train->graphs);
}

void tri_train_close(tri_train *train)
{
  close_graphs(train);
  tri_transport_destroy(&train->transport); // releasing memory would wait for what is under way
  tri_data_parallel_destroy(&train->dp);
  if (train->metrics != NULL && tri_metrics_close(&train->metrics) != TRI_OK) {
    tri_log(TRI_LOG_WARN, "%s", tri_error_message());
  }
  if (train->device != NULL) {
    tri_train_batch_close(train);
    tri_event_destroy(&train->handed_over);
    tri_device_free_host(train->device, (void **)&train->host_sums);
    tri_device_free_host(train->device, (void **)&train->staging);
  }
  tri_arena_end(&train->parameter_arena);
  tri_arena_end(&train->optimizer_arena);
  tri_arena_end(&train->activation_arena);
  TRI_FREE(&train->hidden);
  TRI_FREE(&train->saved);
  TRI_FREE(&train->arrays);
  tri_model_destroy(&train->model);
  tri_loader_destroy(&train->loader);
  tri_loader_destroy(&train->validation);
  tri_corpus_close(&train->corpus);
  tri_stream_destroy(&train->copies);
  tri_stream_destroy(&train->stream);
  tri_device_close(&train->device);
  if (train->log_fd >= 0) {
    tri_log_tee(-1);
    close(train->log_fd);
  }
}
