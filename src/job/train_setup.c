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
  tri_gpt_config config = {.n_layers = job->model.layers,
                           .n_heads = job->model.heads,
                           .width = job->model.width,
                           .context = job->model.context,
                           .vocab_size = vocab,
                           .vocab_multiple = job->model.vocab_multiple,
                           .dropout = job->model.dropout,
                           .seed = job->seed,
                           .dtype = job->train.precision};
  bool *blocks = NULL;
  tri_status status = tri_train_plan_chunks(train, &config, &blocks);
  const tri_model_part part = {.blocks = blocks,
                               .share = train->at[TRI_GRID_TENSOR],
                               .n_shares = train->grid.size[TRI_GRID_TENSOR]};
  config.part = &part;
  if (status == TRI_OK) status = tri_gpt_create(&config, job->model.name, &train->model);
  tri_free(blocks);
  TRI_CALL(status);
  train->flops_per_token =
      train->model->operations->flops_per_token(train->model, train->T, &train->flop_convention);
  return TRI_OK;
}

// Everything that one rank can find wrong alone.
static tri_status open_local(tri_train *train)
{
  TRI_CALL(open_corpus(train));
  TRI_CALL(open_loaders(train));
  TRI_CALL(open_device(train));
  return open_model(train);
}

// What a step works on, once it is known what this rank does of it.
static tri_status open_step(tri_train *train)
{
  TRI_CALL(tri_train_open_memory(train));
  TRI_CALL(tri_train_list_arrays(train));
  if (!train->job->cuda.graph) return TRI_OK;
  return TRI_NEW(TRI_MODULE_JOB, train->n_own * train->n_slots, &train->graphs);
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
  TRI_CALL(tri_comm_agree(train->comm, "layout", tri_train_plan_grid(train)));
  TRI_CALL(tri_comm_agree(train->comm, "run folder", open_run_folder(train)));
  // Root may be tokenizing a large text: that is work, not absence.
  tri_comm_set_limit(train->comm, PREPARE_LIMIT_SECONDS);
  TRI_CALL(tri_comm_agree(train->comm, "corpus", prepare_data(train)));
  tri_comm_set_limit(train->comm, job->parallel.limit_seconds);
  TRI_CALL(tri_runtime_device(runtime, job->device == TRI_JOB_DEVICE_CUDA ? "cuda" : "cpu",
                              job->cuda.share, train->device_name, sizeof train->device_name));
  TRI_CALL(tri_comm_agree(train->comm, "set-up", open_local(train)));
  TRI_CALL(tri_train_open_layout(train));
  TRI_CALL(tri_comm_agree(train->comm, "memory", open_step(train)));
  return tri_train_measure_peak(train);
}

static void close_graphs(tri_train *train)
{
  const int n = train->graphs == NULL ? 0 : train->n_own;
  for (int g = 0; g < n * train->n_slots; g++)
    tri_graph_destroy(&train->graphs[g]);
  TRI_FREE(&train->graphs);
}

void tri_train_close(tri_train *train)
{
  close_graphs(train);
  tri_train_close_transfers(train); // releasing memory would wait for what is under way
  if (train->metrics != NULL && tri_metrics_close(&train->metrics) != TRI_OK) {
    tri_log(TRI_LOG_WARN, "%s", tri_error_message());
  }
  tri_train_close_memory(train);
  TRI_FREE(&train->arrays);
  TRI_FREE(&train->array_data);
  tri_model_destroy(&train->model);
  tri_loader_destroy(&train->loader);
  tri_loader_destroy(&train->validation);
  tri_corpus_close(&train->corpus);
  tri_train_close_layout(train);
  tri_stream_destroy(&train->copies);
  tri_stream_destroy(&train->stream);
  tri_device_close(&train->device);
  if (train->log_fd >= 0) {
    tri_log_tee(-1);
    close(train->log_fd);
  }
}
