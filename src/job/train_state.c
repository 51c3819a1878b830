#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "job/train_run.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"

// The logical state is three arrays for each parameter, in this order.
enum { ARRAY_KINDS = 3 };
static const char *const array_kinds[ARRAY_KINDS] = {"parameter", "moment1", "moment2"};

bool tri_train_has_whole_parameters(const tri_train *train)
{
  return train->model->dtype == TRI_DTYPE_F32 && train->block_weights == NULL;
}

static float *data_of_kind(const tri_train *train, int kind)
{
  float *const kinds[ARRAY_KINDS] = {train->parameters, train->moment1, train->moment2};
  return kinds[kind];
}

// Adds one box of an array of a parameter, or only counts it. Ranks of the data axis hold the same
// where each holds all of it, those of the tensor axis what is not split.
static void list_box(tri_train *train, const tri_parameter *parameter, int kind, bool owned,
                     const tri_box *box, float *data)
{
  const int data_rank = owned ? 0 : train->at[TRI_GRID_DATA];
  const int n_data = owned ? 1 : train->grid.size[TRI_GRID_DATA];
  const int n_shares = parameter->split ? 1 : train->grid.size[TRI_GRID_TENSOR];
  const int n = train->n_arrays++;
  if (train->arrays == NULL) return;
  tri_ckpt_array *array = &train->arrays[n];
  snprintf(array->name, sizeof array->name, "%s/%s", array_kinds[kind], parameter->name);
  array->dtype = TRI_DTYPE_F32;
  array->shape = parameter->shape;
  array->box = *box;
  array->replica = n_shares == 1 ? data_rank : data_rank * n_shares + train->at[TRI_GRID_TENSOR];
  array->n_replicas = n_data * n_shares;
  train->array_data[n] = data;
}

// What this rank owns of the k-th box, cut into boxes.
static void list_owned(tri_train *train, const tri_parameter *parameter, int kind, int k)
{
  const tri_box box = tri_parameter_box(parameter, k);
  const int64_t elements = tri_box_elements(&box), begin = parameter->offset + k * elements;
  for (int i = 0; i < train->n_owned; i++) {
    const tri_owned_range *range = &train->owned[i];
    const int64_t first = range->first > begin ? range->first : begin;
    const int64_t end = range->end < begin + elements ? range->end : begin + elements;
    tri_box pieces[TRI_RANGE_BOXES];
    if (first >= end) continue;
    float *data = data_of_kind(train, kind) + range->at + (first - range->first);
    const int n = tri_box_cut_range(&box, first - begin, end - first, pieces);
    for (int p = 0; p < n; p++) {
      list_box(train, parameter, kind, true, &pieces[p], data);
      data += tri_box_elements(&pieces[p]);
    }
  }
}

static void list_all(tri_train *train)
{
  const tri_parameters *parameters = &train->model->parameters;
  train->n_arrays = 0;
  for (int i = 0; i < parameters->n * ARRAY_KINDS; i++) {
    const tri_parameter *parameter = &parameters->list[i / ARRAY_KINDS];
    const int kind = i % ARRAY_KINDS;
    const bool owned = train->sharded && (kind > 0 || !tri_train_has_whole_parameters(train));
    for (int k = 0; k < parameter->n_boxes; k++) {
      const tri_box box = tri_parameter_box(parameter, k);
      if (owned)
        list_owned(train, parameter, kind, k);
      else
        list_box(train, parameter, kind, false, &box,
                 data_of_kind(train, kind) + parameter->offset + k * tri_box_elements(&box));
    }
  }
}

tri_status tri_train_list_arrays(tri_train *train)
{
  list_all(train); // counts
  const int n = train->n_arrays;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n + 1, &train->array_data));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n + 1, &train->arrays));
  list_all(train);
  return TRI_OK;
}

// Walks the contiguous runs of `part` inside the array's box: device offset, host offset and length
// in elements.
typedef struct run_walk {
  int64_t device_offset, host_offset, length;
} run_walk;

static bool next_run(const tri_box *box, const tri_box *part, int64_t index, run_walk *run)
{
  const int last = part->n_axes - 1;
  run->length = last < 0 ? 1 : part->count[last];
  const int64_t n_runs = run->length == 0 ? 0 : tri_box_elements(part) / run->length;
  if (index >= n_runs) return false;
  int64_t offset = last < 0 ? 0 : part->start[last] - box->start[last];
  int64_t stride = last < 0 ? 1 : box->count[last];
  int64_t rest = index;
  for (int axis = last - 1; axis >= 0; axis--) {
    const int64_t position = part->start[axis] - box->start[axis] + rest % part->count[axis];
    rest /= part->count[axis];
    offset += position * stride;
    stride *= box->count[axis];
  }
  run->device_offset = offset;
  run->host_offset = index * run->length;
  return true;
}

// One run when the part spans whole rows, which is how replicas share an array.
static tri_box joined(const tri_box *box, const tri_box *part, tri_box *joined_box)
{
  *joined_box = *box;
  tri_box rows = *part;
  while (rows.n_axes > 1 && rows.count[rows.n_axes - 1] == joined_box->count[rows.n_axes - 1]) {
    const int64_t width = rows.count[rows.n_axes - 1];
    rows.n_axes--;
    joined_box->n_axes--;
    rows.start[rows.n_axes - 1] *= width;
    rows.count[rows.n_axes - 1] *= width;
    joined_box->start[rows.n_axes - 1] *= width;
    joined_box->count[rows.n_axes - 1] *= width;
  }
  return rows;
}

// Copies go by the staging memory, which a device copies from and to without blocking; it has room
// for the largest array.
static tri_status fetch_part(void *user, int index, const tri_box *part, void *host_out)
{
  const tri_train *train = user;
  tri_box box;
  const tri_box rows = joined(&train->arrays[index].box, part, &box);
  const float *data = train->array_data[index];
  run_walk run;
  TRI_CALL(tri_event_record(train->handed_over, train->stream));
  TRI_CALL(tri_event_wait(train->handed_over, train->copies));
  for (int64_t i = 0; next_run(&box, &rows, i, &run); i++) {
    TRI_CALL(tri_stream_copy_to_host(train->copies, train->staging + run.host_offset,
                                     data + run.device_offset, (size_t)run.length * sizeof(float)));
  }
  TRI_CALL(tri_stream_synchronize(train->copies));
  memcpy(host_out, train->staging, (size_t)tri_box_elements(part) * sizeof(float));
  return TRI_OK;
}

static tri_status store_part(void *user, int index, const tri_box *part, const void *host_in)
{
  const tri_train *train = user;
  tri_box box;
  const tri_box rows = joined(&train->arrays[index].box, part, &box);
  float *data = train->array_data[index];
  run_walk run;
  memcpy(train->staging, host_in, (size_t)tri_box_elements(part) * sizeof(float));
  for (int64_t i = 0; next_run(&box, &rows, i, &run); i++) {
    TRI_CALL(tri_stream_copy_to_device(train->stream, data + run.device_offset,
                                       train->staging + run.host_offset,
                                       (size_t)run.length * sizeof(float)));
  }
  return tri_stream_synchronize(train->stream);
}

static tri_ckpt_state state_of(tri_train *train)
{
  return (tri_ckpt_state){train->arrays, train->n_arrays, fetch_part, store_part, train};
}

// --- fresh state

// Elements [first, end) of the flat space, from `values`, that of element `first`.
static tri_status store_values(tri_train *train, int64_t first, int64_t end, const float *values)
{
  if (tri_train_has_whole_parameters(train))
    return tri_stream_copy_to_device(train->stream, train->parameters + first, values,
                                     (size_t)(end - first) * sizeof(float));
  for (int i = 0; i < train->n_owned; i++) {
    const tri_owned_range *range = &train->owned[i];
    const int64_t from = range->first > first ? range->first : first;
    const int64_t to = range->end < end ? range->end : end;
    if (from >= to) continue;
    TRI_CALL(tri_stream_copy_to_device(
        train->stream, train->parameters + range->at + (from - range->first),
        values + (from - first), (size_t)(to - from) * sizeof(float)));
  }
  return TRI_OK;
}

static tri_status initialize_one(tri_train *train, const tri_parameter *parameter)
{
  tri_parameter_initialize(parameter, train->job->seed, train->staging);
  TRI_CALL(
      store_values(train, parameter->offset, parameter->offset + parameter->count, train->staging));
  return tri_stream_synchronize(train->stream);
}

static tri_status clear_state(tri_train *train)
{
  const bool whole = tri_train_has_whole_parameters(train);
  const int64_t n = train->owned_count;
  // Padding between parameters is state that nobody names: zero, so that it stays out of every norm
  // and update.
  TRI_CALL(train->kernels->fill(train->stream, train->parameters, 0.0f,
                                whole ? train->model->parameters.flat_count : n));
  TRI_CALL(train->kernels->fill(train->stream, train->moment1, 0.0f, n));
  return train->kernels->fill(train->stream, train->moment2, 0.0f, n);
}

tri_status tri_train_initialize(tri_train *train)
{
  const tri_parameters *parameters = &train->model->parameters;
  TRI_CALL(clear_state(train));
  for (int i = 0; i < parameters->n; i++) {
    TRI_CALL(initialize_one(train, &parameters->list[i]));
  }
  train->step = 0;
  train->samples = 0;
  return TRI_OK;
}

tri_bf16 *tri_train_rounded(const tri_train *train, const tri_owned_range *range)
{
  if (train->model->dtype == TRI_DTYPE_F32) return NULL;
  return (tri_bf16 *)train->weights + (train->block_weights == NULL ? range->first : range->at);
}

// The first stage's array, gathered where no rank has all of it.
static tri_status tied_array(tri_train *train, void **array)
{
  const tri_parameters *parameters = &train->model->parameters;
  const void *weights, *none;
  *array = train->tied_copy;
  if (train->block_weights == NULL || parameters->tied < 0) return TRI_OK;
  const tri_parameter *tied = &parameters->list[parameters->tied];
  const int64_t offset = tied->offset - parameters->offsets[tied->block];
  TRI_CALL(tri_block_weights_take(train->block_weights, tied->block, -1, &weights, &none));
  *array = (char *)weights + (size_t)offset * tri_dtype_size(train->model->dtype);
  return TRI_OK;
}

tri_status tri_train_share_weights(tri_train *train)
{
  void *array;
  if (train->block_weights != NULL)
    tri_block_weights_renew(train->block_weights, train->weights);
  else
    TRI_CALL(tri_data_parallel_gather_weights(train->dp, train->weights, train->model->dtype));
  if (train->tied == NULL) return TRI_OK;
  TRI_CALL(tied_array(train, &array));
  return tri_tied_copy_weights(train->tied, array);
}

tri_status tri_train_round_weights(tri_train *train)
{
  for (int i = 0; i < train->n_owned; i++) {
    const tri_owned_range *range = &train->owned[i];
    tri_bf16 *rounded = tri_train_rounded(train, range);
    if (rounded == NULL) continue;
    TRI_CALL(train->kernels->convert(train->stream, rounded, TRI_DTYPE_BF16,
                                     train->parameters + range->at, TRI_DTYPE_F32,
                                     range->end - range->first));
  }
  return tri_train_share_weights(train);
}

// --- attributes: the state that is not arrays

// Keys are written in a fixed order, so that equal states give equal texts.
static tri_status write_attributes(const tri_train *train, char *text, size_t size)
{
  char tokenizer[TRI_DIGEST_HEX_BYTES];
  tri_digest_hex(&train->corpus_facts.tokenizer_digest, tokenizer);
  const int n =
      snprintf(text, size,
               "{\"kind\": \"train\", \"step\": %lld, \"samples\": %llu, \"rng\": "
               "\"philox4x32-10\", \"seed\": %llu, \"context\": %d, \"tokenizer\": \"%s\"}",
               (long long)train->step, (unsigned long long)train->samples,
               (unsigned long long)train->job->seed, train->T, tokenizer);
  TRI_CHECK(n > 0 && (size_t)n < size, TRI_ERR_INTERNAL, "attributes do not fit");
  return TRI_OK;
}

static tri_status check_attribute(const json_t *root, const char *key, uint64_t wanted)
{
  const uint64_t found = (uint64_t)json_integer_value(json_object_get(root, key));
  TRI_CHECK(found == wanted, TRI_ERR_CONFIG,
            "the checkpoint was made with %s %llu, the job file says %llu: set it back, or start a "
            "new run "
            "with another run.dir",
            key, (unsigned long long)found, (unsigned long long)wanted);
  return TRI_OK;
}

static tri_status read_attributes(tri_train *train, const char *text)
{
  tri_status status = TRI_OK;
  json_error_t error;
  json_t *root = json_loads(text, 0, &error);
  char tokenizer[TRI_DIGEST_HEX_BYTES];
  tri_digest_hex(&train->corpus_facts.tokenizer_digest, tokenizer);
  TRI_CHECK(root != NULL, TRI_ERR_FORMAT, "checkpoint attributes: %s", error.text);
  TRI_CALL_GOTO(done, check_attribute(root, "seed", train->job->seed));
  TRI_CALL_GOTO(done, check_attribute(root, "context", (uint64_t)train->T));
  const char *found = json_string_value(json_object_get(root, "tokenizer"));
  TRI_CHECK_GOTO(done, found != NULL && strcmp(found, tokenizer) == 0, TRI_ERR_CONFIG,
                 "the checkpoint was trained with another tokenizer than that of %s",
                 train->job->data.corpus);
  train->step = json_integer_value(json_object_get(root, "step"));
  train->samples = (uint64_t)json_integer_value(json_object_get(root, "samples"));
  TRI_CHECK_GOTO(
      done, train->samples == (uint64_t)train->step * (uint64_t)train->job->train.global_batch,
      TRI_ERR_CONFIG,
      "the checkpoint has seen %llu samples in %lld steps, which is not train.global_batch %d a "
      "step",
      (unsigned long long)train->samples, (long long)train->step, train->job->train.global_batch);

done:
  json_decref(root);
  return status;
}

// --- save, resume, digest

tri_status tri_train_save(tri_train *train)
{
  char attributes[512];
  if (train->last_saved_step == train->step) return TRI_OK;
  const tri_ckpt_state state = state_of(train);
  TRI_CALL(write_attributes(train, attributes, sizeof attributes));
  TRI_CALL(tri_ckpt_save(train->comm, train->checkpoint_dir, train->step, &state, attributes));
  train->last_saved_step = train->step;
  return tri_ckpt_prune(train->comm, train->checkpoint_dir, train->job->checkpoint.keep);
}

static tri_status load_checkpoint(tri_train *train, tri_ckpt *ckpt)
{
  const tri_ckpt_state state = state_of(train);
  TRI_CALL(tri_comm_agree(train->comm, "checkpoint attributes",
                          read_attributes(train, tri_ckpt_attributes(ckpt))));
  TRI_CALL(clear_state(train));
  TRI_CALL(tri_ckpt_load(ckpt, train->comm, &state));
  tri_log(TRI_LOG_INFO, "resumed from %s at step %lld", tri_ckpt_path(ckpt),
          (long long)train->step);
  return TRI_OK;
}

tri_status tri_train_resume(tri_train *train, bool *resumed)
{
  const char *resume = train->job->checkpoint.resume;
  *resumed = false;
  if (strcmp(resume, "never") == 0) return TRI_OK;
  tri_ckpt *ckpt = NULL;
  tri_status status = TRI_OK;
  if (strcmp(resume, "auto") == 0) {
    TRI_CALL(tri_ckpt_open_newest(train->comm, train->checkpoint_dir, &ckpt));
    if (ckpt == NULL) return TRI_OK;
    status = tri_ckpt_set_aside(train->comm, train->checkpoint_dir, tri_ckpt_step(ckpt));
  } else {
    TRI_CALL(tri_ckpt_open(train->comm, resume, &ckpt));
  }
  if (status == TRI_OK) status = load_checkpoint(train, ckpt);
  tri_ckpt_close(&ckpt);
  TRI_CALL(status);
  train->last_saved_step = train->step;
  *resumed = true;
  return TRI_OK;
}

tri_status tri_train_digest(tri_train *train, tri_digest *out)
{
  char attributes[512];
  const tri_ckpt_state state = state_of(train);
  TRI_CALL(write_attributes(train, attributes, sizeof attributes));
  return tri_ckpt_digest(train->comm, &state, attributes, out);
}
