// All memory of steps, planned in arenas of one kind each and allocated once.
#include "job/train_run.h"
#include "trireme/base/memory.h"

// Offsets of the pieces of the three arenas, between planning and commit.
typedef struct memory_plan {
  size_t parameters, weights, tied_copy, moment1, moment2;
  size_t **hidden, **saved, **kept; // of each chunk, as its arrays
  size_t d_hidden, scratch, losses, sums;
  size_t *tokens, *targets; // of each slot
} memory_plan;

static int chunk_pieces(const tri_train_chunk *chunk)
{
  return chunk->n_slots * (chunk->end - chunk->first);
}

static int kept_pieces(const tri_train_chunk *chunk)
{
  return chunk->n_weight_slots * (chunk->end - chunk->first);
}

// --- lists

static tri_status make_lists(tri_train *train, memory_plan *plan)
{
  const int n = train->grid.n_virtual;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n, &plan->hidden));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n, &plan->saved));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n, &plan->kept));
  for (int c = 0; c < n; c++) {
    tri_train_chunk *chunk = &train->chunks[c];
    TRI_CALL(TRI_NEW(TRI_MODULE_JOB, chunk_pieces(chunk), &plan->hidden[c]));
    TRI_CALL(TRI_NEW(TRI_MODULE_JOB, chunk_pieces(chunk), &plan->saved[c]));
    TRI_CALL(TRI_NEW(TRI_MODULE_JOB, chunk_pieces(chunk), &chunk->hidden));
    TRI_CALL(TRI_NEW(TRI_MODULE_JOB, chunk_pieces(chunk), &chunk->saved));
    TRI_CALL(TRI_NEW(TRI_MODULE_JOB, kept_pieces(chunk), &plan->kept[c]));
    TRI_CALL(TRI_NEW(TRI_MODULE_JOB, kept_pieces(chunk), &chunk->kept));
  }
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, train->n_slots, &plan->tokens));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, train->n_slots, &plan->targets));
  return TRI_NEW(TRI_MODULE_JOB, train->n_slots, &train->slots);
}

static void free_plan(const tri_train *train, memory_plan *plan)
{
  for (int c = 0; c < train->grid.n_virtual; c++) {
    if (plan->hidden != NULL) TRI_FREE(&plan->hidden[c]);
    if (plan->saved != NULL) TRI_FREE(&plan->saved[c]);
    if (plan->kept != NULL) TRI_FREE(&plan->kept[c]);
  }
  TRI_FREE(&plan->kept);
  TRI_FREE(&plan->hidden);
  TRI_FREE(&plan->saved);
  TRI_FREE(&plan->tokens);
  TRI_FREE(&plan->targets);
}

// --- planning

static void plan_state(tri_train *train, memory_plan *plan)
{
  const tri_parameters *parameters = &train->model->parameters;
  const size_t n = (size_t)train->owned_count;
  const size_t n_weights = (size_t)tri_parameters_weight_count(parameters);
  const size_t size = tri_dtype_size(train->model->dtype);
  const bool sliced = train->block_weights != NULL, whole = tri_train_has_whole_parameters(train);
  tri_arena_begin(&train->parameter_arena, train->device, "parameters");
  tri_arena_begin(&train->optimizer_arena, train->device, "optimizer state");
  plan->parameters =
      tri_arena_reserve(&train->parameter_arena, (whole ? n_weights : n) * sizeof(float));
  plan->weights = plan->parameters;
  if (sliced ? train->model->dtype != TRI_DTYPE_F32 : !whole)
    plan->weights = tri_arena_reserve(&train->parameter_arena, (sliced ? n : n_weights) * size);
  plan->tied_copy = plan->weights + (size_t)tri_parameters_tied_offset(parameters) * size;
  if (sliced)
    plan->tied_copy = tri_arena_reserve(
        &train->parameter_arena, parameters->tied < 0 ? (size_t)parameters->tied_count * size : 0);
  plan->moment1 = tri_arena_reserve(&train->optimizer_arena, n * sizeof(float));
  plan->moment2 = tri_arena_reserve(&train->optimizer_arena, n * sizeof(float));
}

// What the head keeps is used up within one backward: all slots share it.
static void plan_chunk(tri_train *train, const tri_train_chunk *chunk, size_t hidden_bytes,
                       size_t *hidden, size_t *saved)
{
  const tri_model *model = train->model;
  const int n = chunk->end - chunk->first;
  tri_arena *arena = &train->activation_arena;
  for (int slot = 0; slot < chunk->n_slots; slot++) {
    for (int i = 0; i < n; i++) {
      const int block = chunk->first + i;
      const bool shared = block == model->n_blocks - 1 && slot > 0;
      if (i > 0) hidden[slot * n + i] = tri_arena_reserve(arena, hidden_bytes);
      saved[slot * n + i] =
          shared ? saved[i]
                 : tri_arena_reserve(
                       arena, model->operations->saved_bytes(model, block, train->B, train->T));
    }
  }
}

static void plan_kept(tri_train *train, const tri_train_chunk *chunk, size_t *kept)
{
  const tri_model *model = train->model;
  const int n = chunk->end - chunk->first;
  for (int i = 0; i < kept_pieces(chunk); i++) {
    const int block = chunk->first + i % n;
    kept[i] = tri_arena_reserve(&train->activation_arena,
                                model->operations->kept_bytes(model, block, train->B, train->T));
  }
}

static void plan_activations(tri_train *train, memory_plan *plan)
{
  const tri_model *model = train->model;
  const size_t BT = (size_t)train->B * (size_t)train->T;
  const size_t hidden_bytes = tri_train_hidden_bytes(train);
  tri_arena *arena = &train->activation_arena;
  tri_arena_begin(arena, train->device, "activations");
  for (int c = 0; c < train->grid.n_virtual; c++) {
    plan_chunk(train, &train->chunks[c], hidden_bytes, plan->hidden[c], plan->saved[c]);
    plan_kept(train, &train->chunks[c], plan->kept[c]);
  }
  if (train->pipeline == NULL) plan->d_hidden = tri_arena_reserve(arena, hidden_bytes);
  plan->scratch =
      tri_arena_reserve(arena, model->operations->scratch_bytes(model, train->B, train->T));
  plan->losses = tri_arena_reserve(arena, BT * sizeof(float));
  for (int s = 0; s < train->n_slots; s++) {
    plan->tokens[s] = tri_arena_reserve(arena, BT * sizeof(int32_t));
    plan->targets[s] = tri_arena_reserve(arena, BT * sizeof(int32_t));
  }
  plan->sums = tri_arena_reserve(arena, (size_t)train->n_sums * sizeof(double));
}

// --- allocation

static void place_chunk(const tri_train *train, tri_train_chunk *chunk, const size_t *hidden,
                        const size_t *saved, const size_t *kept)
{
  const int n = chunk->end - chunk->first;
  for (int i = 0; i < chunk_pieces(chunk); i++) {
    if (i % n > 0) chunk->hidden[i] = tri_arena_at(&train->activation_arena, hidden[i]);
    chunk->saved[i] = tri_arena_at(&train->activation_arena, saved[i]);
  }
  for (int i = 0; i < kept_pieces(chunk); i++)
    chunk->kept[i] = tri_arena_at(&train->activation_arena, kept[i]);
}

static tri_status commit_memory(tri_train *train, const memory_plan *plan)
{
  TRI_CALL(tri_arena_commit(&train->parameter_arena));
  TRI_CALL(tri_arena_commit(&train->optimizer_arena));
  TRI_CALL(tri_arena_commit(&train->activation_arena));
  train->parameters = tri_arena_at(&train->parameter_arena, plan->parameters);
  train->weights = tri_arena_at(&train->parameter_arena, plan->weights);
  train->tied_copy = tri_arena_at(&train->parameter_arena, plan->tied_copy);
  train->moment1 = tri_arena_at(&train->optimizer_arena, plan->moment1);
  train->moment2 = tri_arena_at(&train->optimizer_arena, plan->moment2);
  const tri_arena *arena = &train->activation_arena;
  for (int c = 0; c < train->grid.n_virtual; c++)
    place_chunk(train, &train->chunks[c], plan->hidden[c], plan->saved[c], plan->kept[c]);
  if (train->pipeline == NULL) train->d_hidden = tri_arena_at(arena, plan->d_hidden);
  train->scratch = tri_arena_at(arena, plan->scratch);
  train->losses = tri_arena_at(arena, plan->losses);
  for (int s = 0; s < train->n_slots; s++) {
    train->slots[s].tokens = tri_arena_at(arena, plan->tokens[s]);
    train->slots[s].targets = tri_arena_at(arena, plan->targets[s]);
  }
  train->sums = tri_arena_at(arena, plan->sums);
  return TRI_OK;
}

static tri_status open_host_memory(tri_train *train)
{
  const tri_parameters *parameters = &train->model->parameters;
  const int64_t whole = parameters->whole_offsets[parameters->n_blocks] / TRI_NORM_CHUNK;
  const int64_t n_stages = train->grid.size[TRI_GRID_PIPELINE];
  int64_t largest = 0;
  for (int i = 0; i < parameters->n; i++) {
    if (parameters->list[i].count > largest) largest = parameters->list[i].count;
  }
  TRI_CALL(tri_device_alloc_host(train->device, (size_t)train->n_sums * sizeof(double),
                                 (void **)&train->host_sums));
  TRI_CALL(tri_device_alloc_host(train->device, (size_t)largest * sizeof(float),
                                 (void **)&train->staging));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, whole, &train->whole_norm));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, train->grid.size[TRI_GRID_DATA] * train->widest_norm,
                   &train->data_norms));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, train->grid.size[TRI_GRID_TENSOR] * whole, &train->share_norms));
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n_stages * train->widest_norm, &train->stage_norms));
  TRI_CALL(tri_event_create(train->device, &train->handed_over));
  return tri_train_batch_open(train);
}

// Chunks of the norm of a stage.
static int64_t norm_of_stage(const tri_train *train, int stage)
{
  const int n_stages = train->grid.size[TRI_GRID_PIPELINE];
  const int64_t *offsets = train->model->parameters.whole_offsets;
  int64_t elements = 0;
  for (int j = stage; j < n_stages * train->grid.n_virtual; j += n_stages)
    elements += offsets[train->first_blocks[j + 1]] - offsets[train->first_blocks[j]];
  return elements / TRI_NORM_CHUNK;
}

// Room for the norm's chunks and the losses of a step or of a validation.
static void count_sums(tri_train *train)
{
  const int64_t n_data = train->grid.size[TRI_GRID_DATA];
  const int64_t share = train->n_microbatches / n_data + 1;
  const int64_t validation =
      train->validation == NULL ? 0 : tri_loader_samples(train->validation) / n_data + 2;
  for (int s = 0; s < train->grid.size[TRI_GRID_PIPELINE]; s++) {
    const int64_t n = norm_of_stage(train, s);
    if (n > train->widest_norm) train->widest_norm = n;
  }
  train->n_norm = norm_of_stage(train, train->at[TRI_GRID_PIPELINE]);
  // Ranks gather as many chunks as the fullest stage has.
  train->n_sums = train->widest_norm + (share > validation ? share : validation);
}

// The first stage needs its tokens again in backward: as many slots as its activations have.
static void count_slots(tri_train *train)
{
  const int held = train->is_first ? train->chunks[0].n_slots + 1 : 0;
  train->n_slots = held > TRI_TRAIN_SLOTS ? held : TRI_TRAIN_SLOTS;
}

tri_status tri_train_open_memory(tri_train *train)
{
  memory_plan plan = {0};
  tri_status status = TRI_OK;
  count_sums(train);
  count_slots(train);
  TRI_CALL_GOTO(done, make_lists(train, &plan));
  plan_state(train, &plan);
  plan_activations(train, &plan);
  TRI_CALL_GOTO(done, commit_memory(train, &plan));
  TRI_CALL_GOTO(done, open_host_memory(train));
  TRI_CALL_GOTO(done,
                train->model->operations->prepare(train->model, train->stream, train->B, train->T));

done:
  free_plan(train, &plan);
  return status;
}

void tri_train_close_memory(tri_train *train)
{
  if (train->device != NULL) {
    tri_train_batch_close(train);
    tri_event_destroy(&train->handed_over);
    tri_device_free_host(train->device, (void **)&train->host_sums);
    tri_device_free_host(train->device, (void **)&train->staging);
  }
  tri_arena_end(&train->parameter_arena);
  tri_arena_end(&train->optimizer_arena);
  tri_arena_end(&train->activation_arena);
  for (int c = 0; train->chunks != NULL && c < train->grid.n_virtual; c++) {
    TRI_FREE(&train->chunks[c].hidden);
    TRI_FREE(&train->chunks[c].saved);
    TRI_FREE(&train->chunks[c].kept);
  }
  TRI_FREE(&train->chunks);
  TRI_FREE(&train->slots);
  TRI_FREE(&train->whole_norm);
  TRI_FREE(&train->stage_norms);
  TRI_FREE(&train->share_norms);
  TRI_FREE(&train->data_norms);
}
