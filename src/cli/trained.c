#include "cli/trained.h"

#include <stdio.h>
#include <string.h>

#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/ckpt/ckpt.h"

// --- where things are

// True when folder/name is there.
static tri_status holds(const char *folder, const char *name, bool *found)
{
  char path[4096];
  TRI_CALL(tri_path_join(path, sizeof path, folder, name));
  *found = tri_file_exists(path);
  return TRI_OK;
}

// The run folder of `path`, and whether path is a checkpoint itself.
static tri_status find_run(const char *path, char *run, size_t size, bool *is_checkpoint)
{
  bool has_job = false;
  TRI_CHECK(tri_file_exists(path), TRI_ERR_IO, "%s: there is no such folder", path);
  TRI_CALL(holds(path, "manifest.json", is_checkpoint));
  const char *const up = *is_checkpoint ? "/../.." : "";
  TRI_CHECK((size_t)snprintf(run, size, "%s%s", path, up) < size, TRI_ERR_USAGE,
            "a path of %zu bytes is too long", strlen(path));
  TRI_CALL(holds(run, "job.yaml", &has_job));
  TRI_CHECK(has_job, TRI_ERR_CONFIG,
            *is_checkpoint ? "%s is a checkpoint, but two levels above it is no job.yaml: give the "
                             "run folder instead"
                           : "%s holds neither job.yaml, as a run folder does, nor manifest.json, "
                             "as a checkpoint does",
            path);
  return TRI_OK;
}

// The newest checkpoint of a run that opens: in its own folder, which may have been moved since, or
// where the job file says. A damaged one is passed over with a warning and stays as it is.
static tri_status open_newest(tri_comm *comm, const char *run, const tri_job *job, tri_ckpt **out)
{
  char own[4096];
  TRI_CALL(tri_path_join(own, sizeof own, run, "checkpoints"));
  TRI_CALL(tri_ckpt_open_newest(comm, own, out));
  if (*out == NULL) TRI_CALL(tri_ckpt_open_newest(comm, job->checkpoint.dir, out));
  TRI_CHECK(*out != NULL, TRI_ERR_CONFIG,
            "%s: no checkpoint there nor in %s: the run has not saved one yet", own,
            job->checkpoint.dir);
  return TRI_OK;
}

// --- what is opened

static tri_status open_job(const char *run, tri_cli_trained *trained)
{
  char path[4096];
  TRI_CALL(tri_path_join(path, sizeof path, run, "job.yaml"));
  TRI_CALL(tri_job_load(path, NULL, 0, &trained->job));
  TRI_CALL(tri_path_join(path, sizeof path, run, "tokenizer.json"));
  TRI_CALL(tri_tokenizer_open(path, &trained->tokenizer));
  return TRI_OK;
}

static tri_status open_device(tri_runtime *runtime, tri_cli_trained *trained)
{
  const tri_job *job = trained->job;
  const tri_device_options options = {
      .isa = job->cpu.isa,
      .kernels = job->cpu.kernels,
      .n_threads = tri_runtime_threads(runtime, job->cpu.threads),
  };
  char name[32];
  TRI_CALL(tri_runtime_device(runtime, job->device == TRI_JOB_DEVICE_CUDA ? "cuda" : "cpu",
                              job->cuda.share, name, sizeof name));
  TRI_CALL(tri_device_open(name, &options, &trained->device));
  TRI_CALL(tri_stream_create(trained->device, &trained->stream));
  return TRI_OK;
}

static tri_status open_model(tri_cli_trained *trained)
{
  const tri_job_model *shape = &trained->job->model;
  const int vocab =
      shape->vocab_size > 0 ? shape->vocab_size : tri_tokenizer_vocab_size(trained->tokenizer);
  const tri_gpt_config config = {
      .n_layers = shape->layers,
      .n_heads = shape->heads,
      .width = shape->width,
      .context = shape->context,
      .vocab_size = vocab,
      .vocab_multiple = shape->vocab_multiple,
      .dtype = trained->job->train.precision,
  };
  TRI_CALL(tri_gpt_create(&config, shape->name, &trained->model));
  return TRI_OK;
}

// --- parameters

// Arrays of the checkpoint that are read: every parameter, whole.
typedef struct parameter_arrays {
  const tri_parameters *parameters;
  tri_ckpt_array *arrays;
  float *flat; // host
} parameter_arrays;

static tri_status store_part(void *user, int index, const tri_box *part, const void *host_in)
{
  const parameter_arrays *to = user;
  const tri_parameter *p = &to->parameters->list[index];
  tri_box_copy(to->flat + p->offset, &p->box, host_in, part, part, sizeof(float));
  return TRI_OK;
}

static void list_arrays(parameter_arrays *to)
{
  for (int i = 0; i < to->parameters->n; i++) {
    const tri_parameter *p = &to->parameters->list[i];
    tri_ckpt_array *array = &to->arrays[i];
    snprintf(array->name, sizeof array->name, "parameter/%s", p->name);
    array->dtype = TRI_DTYPE_F32;
    array->shape = p->shape;
    array->box = p->box;
    array->n_replicas = 1;
  }
}

// Host f32 to the model's type on the device.
static tri_status upload(tri_cli_trained *trained, const float *flat)
{
  const int64_t n = trained->model->parameters.flat_count;
  const tri_dtype dtype = trained->model->dtype;
  const tri_kernels *k = tri_device_kernels(trained->device);
  void *rounded_from = NULL;
  tri_status status = TRI_OK;
  TRI_CALL(tri_device_alloc(trained->device, (size_t)n * tri_dtype_size(dtype), &trained->weights));
  void *to = trained->weights;
  if (dtype != TRI_DTYPE_F32) {
    TRI_CALL(tri_device_alloc(trained->device, (size_t)n * sizeof(float), &rounded_from));
    to = rounded_from;
  }
  TRI_CALL_GOTO(done,
                tri_stream_copy_to_device(trained->stream, to, flat, (size_t)n * sizeof(float)));
  if (dtype != TRI_DTYPE_F32)
    TRI_CALL_GOTO(
        done, k->convert(trained->stream, trained->weights, dtype, rounded_from, TRI_DTYPE_F32, n));
  TRI_CALL_GOTO(done, tri_stream_synchronize(trained->stream));

done:
  if (rounded_from != NULL) tri_device_free(trained->device, &rounded_from);
  return status;
}

static tri_status load_weights(tri_comm *comm, tri_ckpt *ckpt, tri_cli_trained *trained)
{
  parameter_arrays to = {.parameters = &trained->model->parameters};
  tri_ckpt_state state = {.n_arrays = to.parameters->n, .store = store_part, .user = &to};
  tri_status status = TRI_OK;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CLI, to.parameters->n, &to.arrays));
  TRI_CALL_GOTO(done, tri_device_alloc_host(trained->device,
                                            (size_t)to.parameters->flat_count * sizeof(float),
                                            (void **)&to.flat));
  memset(to.flat, 0, (size_t)to.parameters->flat_count * sizeof(float));
  list_arrays(&to);
  state.arrays = to.arrays;
  TRI_CALL_GOTO(done, tri_ckpt_load(ckpt, comm, &state));
  TRI_CALL_GOTO(done, upload(trained, to.flat));

done:
  tri_device_free_host(trained->device, (void **)&to.flat);
  TRI_FREE(&to.arrays);
  return status;
}

tri_status tri_cli_trained_open(tri_runtime *runtime, const char *path, tri_cli_trained *trained)
{
  char run[4096];
  bool is_checkpoint = false;
  tri_comm *comm = tri_runtime_world(runtime);
  tri_ckpt *ckpt = NULL;
  tri_status status = TRI_OK;
  TRI_CALL(find_run(path, run, sizeof run, &is_checkpoint));
  TRI_CALL(open_job(run, trained));
  if (is_checkpoint) {
    TRI_CALL(tri_ckpt_open(comm, path, &ckpt));
  } else {
    TRI_CALL(open_newest(comm, run, trained->job, &ckpt));
  }
  TRI_CALL_GOTO(done, open_device(runtime, trained));
  TRI_CALL_GOTO(done, open_model(trained));
  TRI_CALL_GOTO(done, load_weights(comm, ckpt, trained));

done:
  tri_ckpt_close(&ckpt);
  return status;
}

void tri_cli_trained_close(tri_cli_trained *trained)
{
  if (trained->weights != NULL) tri_device_free(trained->device, &trained->weights);
  tri_model_destroy(&trained->model);
  if (trained->stream != NULL) tri_stream_destroy(&trained->stream);
  if (trained->device != NULL) tri_device_close(&trained->device);
  if (trained->tokenizer != NULL) tri_tokenizer_close(&trained->tokenizer);
  if (trained->job != NULL) tri_job_free(&trained->job);
}
