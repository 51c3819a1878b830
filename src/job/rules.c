// Values that come from other keys, and rules between keys.
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "job/check.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/nn/gpt.h"

static bool given(const job_document *document, const char *path)
{
  return document->values[tri_job_key_find(path)].given;
}

// A rule is broken: the message begins with the place of the key to change.
#define RULE(path, condition, ...) \
  do { \
    char place_[JOB_PLACE_BYTES], rule_[1024]; \
    if (!(condition)) { \
      snprintf(rule_, sizeof rule_, __VA_ARGS__); \
      return TRI_ERROR(TRI_ERR_CONFIG, "%s: %s", \
                       tri_job_place(document, tri_job_key_find(path), place_), rule_); \
    } \
  } while (0)

static tri_status replace(char **text, const char *value)
{
  char *copy = tri_strdup(TRI_MODULE_JOB, value);
  if (copy == NULL) return TRI_ERR_MEMORY;
  tri_free(*text);
  *text = copy;
  return TRI_OK;
}

enum { NAME_BYTES = 129, FOLDER_BYTES = 4096 };

// "jobs/small.yaml" names the run "small".
static tri_status derive_name(const job_document *document, tri_job *job)
{
  if (job->name[0] != '\0') return TRI_OK;
  const char *slash = strrchr(document->name, '/');
  const char *base = slash == NULL ? document->name : slash + 1;
  const char *dot = strrchr(base, '.');
  char name[NAME_BYTES];
  const int n = dot == NULL || dot == base ? (int)strlen(base) : (int)(dot - base);
  snprintf(name, sizeof name, "%.*s", n, base);
  return replace(&job->name, name);
}

static tri_status derive_folders(tri_job *job)
{
  char folder[FOLDER_BYTES];
  if (job->run.dir[0] == '\0') {
    TRI_CALL(tri_path_join(folder, sizeof folder, "runs", job->name));
    TRI_CALL(replace(&job->run.dir, folder));
  }
  if (job->checkpoint.dir[0] == '\0') {
    TRI_CALL(tri_path_join(folder, sizeof folder, job->run.dir, "checkpoints"));
    TRI_CALL(replace(&job->checkpoint.dir, folder));
  }
  return TRI_OK;
}

static tri_status derive_shape(const job_document *document, tri_job *job)
{
  tri_gpt_config shape = {0};
  tri_job_model *model = &job->model;
  const bool published = tri_gpt_named_shape(model->name, &shape);
  const struct {
    const char *path;
    int *value;
    int published;
  } parts[] = {
      {"model.layers", &model->layers, shape.n_layers},
      {"model.heads", &model->heads, shape.n_heads},
      {"model.width", &model->width, shape.width},
      {"model.context", &model->context, shape.context},
      {"model.vocab_size", &model->vocab_size, shape.vocab_size},
  };
  for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
    const bool is_given = given(document, parts[p].path);
    if (!published) {
      RULE(parts[p].path, is_given || parts[p].value == &model->vocab_size,
           "%s is missing: give it, or a published model.name such as gpt2-124M", parts[p].path);
      continue;
    }
    RULE(parts[p].path, !is_given || *parts[p].value == parts[p].published,
         "%s is %d, but model.name %s has %d: leave it out, or take model.name gpt", parts[p].path,
         *parts[p].value, model->name, parts[p].published);
    *parts[p].value = parts[p].published;
  }
  return TRI_OK;
}

tri_status tri_job_derive(const job_document *document, tri_job *job)
{
  TRI_CALL(derive_name(document, job));
  TRI_CALL(derive_folders(job));
  TRI_CALL(derive_shape(document, job));
  if (job->train.context == 0) job->train.context = job->model.context;
  if (!given(document, "train.min_lr")) job->train.min_lr = job->train.lr / 10.0f;
  return TRI_OK;
}

static tri_status check_name(const job_document *document, const tri_job *job)
{
  const char *name = job->name;
  const bool usable = name[0] != '\0' && strlen(name) < NAME_BYTES - 1 &&
                      strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
                      strcmp(name, "..") != 0;
  RULE("name", usable,
       "name '%.150s' cannot name a folder: give a word without '/' of at most %d "
       "bytes",
       name, NAME_BYTES - 2);
  return TRI_OK;
}

static tri_status check_model(const job_document *document, const tri_job *job)
{
  const tri_job_model *model = &job->model;
  RULE("model.heads", model->width % model->heads == 0,
       "model.heads %d does not divide model.width %d: the heads share the width evenly",
       model->heads, model->width);
  RULE("train.context", job->train.context <= model->context,
       "train.context %d is more than the %d positions of model.context", job->train.context,
       model->context);
  return TRI_OK;
}

static tri_status check_batch(const job_document *document, const tri_job *job)
{
  const tri_job_train *train = &job->train;
  RULE("train.microbatch", train->global_batch % train->microbatch == 0,
       "train.microbatch %d does not divide train.global_batch %d: a step is a whole number of "
       "micro-batches",
       train->microbatch, train->global_batch);
  RULE("train.microbatch", (int64_t)train->microbatch * train->context <= INT_MAX,
       "train.microbatch %d with train.context %d makes more than 2^31 - 1 tokens",
       train->microbatch, train->context);
  return TRI_OK;
}

static tri_status check_rate(const job_document *document, const tri_job *job)
{
  const tri_job_train *train = &job->train;
  RULE("train.warmup_steps", train->warmup_steps <= train->steps,
       "train.warmup_steps %lld is more than train.steps %lld", (long long)train->warmup_steps,
       (long long)train->steps);
  RULE("train.min_lr", train->schedule == TRI_SCHEDULE_CONSTANT || train->min_lr <= train->lr,
       "train.min_lr %g is more than train.lr %g", (double)train->min_lr, (double)train->lr);
  return TRI_OK;
}

static tri_status check_data(const job_document *document, const tri_job *job)
{
  RULE("data.text_command", job->data.text_count == 0 || job->data.text_command_count == 0,
       "data.text and data.text_command both say where the text comes from: give one");
  return TRI_OK;
}

static tri_status check_graph(const job_document *document, const tri_job *job)
{
  if (!job->cuda.graph) return TRI_OK;
  RULE("cuda.graph", job->device == TRI_JOB_DEVICE_CUDA,
       "cuda.graph is true, but device is cpu, which records no graphs: leave it out");
  RULE("cuda.graph", job->model.dropout == 0.0f,
       "cuda.graph is true, but model.dropout is %g: dropout is another one in each step, and a "
       "graph is the same",
       (double)job->model.dropout);
  const tri_job_parallel *parallel = &job->parallel;
  RULE("cuda.graph",
       parallel->pipeline == 1 && parallel->virtual_stages == 1 && parallel->tensor == 1,
       "cuda.graph is true, but the model is split (parallel.tensor %d, pipeline %d, "
       "virtual_stages %d): a graph has no messages between ranks",
       parallel->tensor, parallel->pipeline, parallel->virtual_stages);
  RULE("cuda.graph", parallel->zero < 2,
       "cuda.graph is true, but with parallel.zero %d each block sends its gradient to others: a "
       "graph has no messages between ranks; take zero 0 or 1",
       parallel->zero);
  return TRI_OK;
}

static tri_status check_parallel(const job_document *document, const tri_job *job)
{
  const tri_job_parallel *parallel = &job->parallel;
  if (parallel->reduce != TRI_JOB_REDUCE_FAST) return TRI_OK;
  RULE("parallel.zero", parallel->zero == 0,
       "parallel.zero %d gives each rank the sums that it owns, and parallel.reduce fast gives all "
       "of them to all: take exact, or zero 0",
       parallel->zero);
  RULE("parallel.reduce", job->device == TRI_JOB_DEVICE_CUDA,
       "parallel.reduce fast is NCCL's all-reduce, which needs device cuda: take exact");
  RULE("parallel.reduce",
       strcmp(parallel->transport, "auto") == 0 || strcmp(parallel->transport, "nccl") == 0,
       "parallel.reduce fast is NCCL's all-reduce, but parallel.transport is %s: take exact, or "
       "transport nccl",
       parallel->transport);
  return TRI_OK;
}

tri_status tri_job_check_rules(const job_document *document, const tri_job *job)
{
  TRI_CALL(check_name(document, job));
  TRI_CALL(check_model(document, job));
  TRI_CALL(check_batch(document, job));
  TRI_CALL(check_rate(document, job));
  TRI_CALL(check_data(document, job));
  TRI_CALL(check_graph(document, job));
  TRI_CALL(check_parallel(document, job));
  return TRI_OK;
}
