// A model on a device with all memory that a micro-batch needs: what the train loop does, in the
// plainest form, for the tests of nn and optim.
#pragma once

#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"
#include "trireme/nn/gpt.h"

// Anything but zero, and finite in f32 and bf16.
enum { RIG_POISON = 0x42 };

typedef struct gpt_rig {
  tri_device *device;
  tri_stream *stream;
  const tri_kernels *k;
  tri_model *model;
  int B, T;
  size_t hidden_bytes, scratch_bytes;
  void *weights; // model dtype
  float *weights_f32, *gradients, *losses;
  int32_t *tokens, *targets;
  void **hidden, **saved; // one per block
  void *d_hidden, *scratch;
  float *host_losses;
} gpt_rig;

__attribute__((unused)) static void *rig_alloc(gpt_rig *rig, size_t size_bytes)
{
  void *memory = NULL;
  EXPECT_OK(tri_device_alloc(rig->device, size_bytes, &memory));
  char *poison = malloc(size_bytes + 1);
  memset(poison, RIG_POISON, size_bytes);
  EXPECT_OK(tri_stream_copy_to_device(rig->stream, memory, poison, size_bytes));
  EXPECT_OK(tri_stream_synchronize(rig->stream));
  free(poison);
  return memory;
}

// kernels: "tuned" or "reference".
__attribute__((unused)) static void rig_open(gpt_rig *rig, const tri_gpt_config *config,
                                             const char *kernels, int B, int T)
{
  *rig = (gpt_rig){.B = B, .T = T};
  const tri_device_options options = {.kernels = kernels, .n_threads = 1};
  EXPECT_OK(tri_device_open("cpu", &options, &rig->device));
  EXPECT_OK(tri_stream_create(rig->device, &rig->stream));
  rig->k = tri_device_kernels(rig->device);
  EXPECT_OK(tri_gpt_create(config, "test", &rig->model));
  const tri_model *m = rig->model;
  const size_t element = tri_dtype_size(m->dtype), flat = (size_t)m->parameters.flat_count;
  const size_t N = (size_t)B * (size_t)T;
  rig->hidden_bytes = N * (size_t)m->width * element;
  rig->scratch_bytes = m->operations->scratch_bytes(m, B, T);
  rig->weights = rig_alloc(rig, flat * element);
  rig->weights_f32 = rig_alloc(rig, flat * sizeof(float));
  rig->gradients =
      rig_alloc(rig, (size_t)tri_parameters_gradient_count(&m->parameters) * sizeof(float));
  rig->losses = rig_alloc(rig, N * sizeof(float));
  rig->tokens = rig_alloc(rig, N * sizeof(int32_t));
  rig->targets = rig_alloc(rig, N * sizeof(int32_t));
  rig->d_hidden = rig_alloc(rig, rig->hidden_bytes);
  rig->scratch = rig_alloc(rig, rig->scratch_bytes);
  rig->hidden = calloc((size_t)m->n_blocks, sizeof *rig->hidden);
  rig->saved = calloc((size_t)m->n_blocks, sizeof *rig->saved);
  for (int b = 0; b < m->n_blocks; b++) {
    rig->hidden[b] = rig_alloc(rig, rig->hidden_bytes);
    rig->saved[b] = rig_alloc(rig, m->operations->saved_bytes(m, b, B, T));
  }
  rig->host_losses = calloc(N + 1, sizeof *rig->host_losses);
  EXPECT_OK(m->operations->prepare(m, rig->stream, B, T));
}

__attribute__((unused)) static void rig_close(gpt_rig *rig)
{
  for (int b = 0; b < rig->model->n_blocks; b++) {
    tri_device_free(rig->device, &rig->hidden[b]);
    tri_device_free(rig->device, &rig->saved[b]);
  }
  void *all[] = {rig->weights, rig->weights_f32, rig->gradients, rig->losses,
                 rig->tokens,  rig->targets,     rig->d_hidden,  rig->scratch};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    tri_device_free(rig->device, &all[i]);
  free(rig->hidden);
  free(rig->saved);
  free(rig->host_losses);
  tri_model_destroy(&rig->model);
  tri_stream_destroy(&rig->stream);
  tri_device_close(&rig->device);
}

// Weights from f32 host values, flat_count of them, rounded to the model's type on the device.
__attribute__((unused)) static void rig_set_weights(gpt_rig *rig, const float *host)
{
  const int64_t flat = rig->model->parameters.flat_count;
  EXPECT_OK(
      tri_stream_copy_to_device(rig->stream, rig->weights_f32, host, (size_t)flat * sizeof(float)));
  EXPECT_OK(rig->k->convert(rig->stream, rig->weights, rig->model->dtype, rig->weights_f32,
                            TRI_DTYPE_F32, flat));
  EXPECT_OK(tri_stream_synchronize(rig->stream));
}

// Tokens and targets of the whole micro-batch, B * T each, on the host.
__attribute__((unused)) static void rig_set_batch(gpt_rig *rig, const int32_t *tokens,
                                                  const int32_t *targets)
{
  const size_t size = (size_t)rig->B * (size_t)rig->T * sizeof(int32_t);
  EXPECT_OK(tri_stream_copy_to_device(rig->stream, rig->tokens, tokens, size));
  EXPECT_OK(tri_stream_copy_to_device(rig->stream, rig->targets, targets, size));
  EXPECT_OK(tri_stream_synchronize(rig->stream));
}

__attribute__((unused)) static void rig_zero_gradients(gpt_rig *rig)
{
  const int64_t count = tri_parameters_gradient_count(&rig->model->parameters);
  EXPECT_OK(rig->k->fill(rig->stream, rig->gradients, 0.0f, count));
}

__attribute__((unused)) static tri_pass rig_pass(gpt_rig *rig, const tri_batch *batch, int block,
                                                 bool training)
{
  const bool last = block == rig->model->n_blocks - 1;
  tri_pass pass = {
      .stream = rig->stream,
      .batch = batch,
      .training = training,
      .hidden_in = block == 0 ? NULL : rig->hidden[block],
      .hidden_out = last ? NULL : rig->hidden[block + 1],
      .saved = rig->saved[block],
      .d_hidden = rig->d_hidden,
      .scratch = rig->scratch,
      .losses = rig->losses,
  };
  tri_pass_set_arrays(&pass, rig->model, block, rig->weights, rig->gradients);
  return pass;
}

// Forward of all blocks. Returns the sum of losses, left one by one in host_losses.
__attribute__((unused)) static double rig_forward(gpt_rig *rig, const tri_batch *batch,
                                                  bool training)
{
  const tri_model *m = rig->model;
  for (int b = 0; b < m->n_blocks; b++) {
    const tri_pass pass = rig_pass(rig, batch, b, training);
    EXPECT_OK(m->operations->forward(m, b, &pass));
  }
  const int N = batch->B * batch->T;
  EXPECT_OK(tri_stream_copy_to_host(rig->stream, rig->host_losses, rig->losses,
                                    (size_t)N * sizeof(float)));
  EXPECT_OK(tri_stream_synchronize(rig->stream));
  double sum = 0.0;
  for (int i = 0; i < N; i++)
    sum += rig->host_losses[i];
  return sum;
}

// Moves the gradient of the tied array's second use to its owner.
__attribute__((unused)) static void rig_sum_tied(gpt_rig *rig)
{
  const tri_parameters *parameters = &rig->model->parameters;
  float *owner = rig->gradients + parameters->list[parameters->tied].offset;
  float *second = rig->gradients + parameters->flat_count;
  EXPECT_OK(rig->k->add(rig->stream, owner, owner, second, parameters->tied_count));
  EXPECT_OK(rig->k->fill(rig->stream, second, 0.0f, parameters->tied_count));
}

__attribute__((unused)) static void rig_backward(gpt_rig *rig, const tri_batch *batch)
{
  const tri_model *m = rig->model;
  for (int b = m->n_blocks - 1; b >= 0; b--) {
    const tri_pass pass = rig_pass(rig, batch, b, true);
    EXPECT_OK(m->operations->backward(m, b, &pass));
  }
  rig_sum_tied(rig);
  EXPECT_OK(tri_stream_synchronize(rig->stream));
}

// The batch that rig_set_batch put there.
__attribute__((unused)) static tri_batch rig_batch(const gpt_rig *rig, uint64_t first_sample,
                                                   float loss_scale)
{
  return (tri_batch){.tokens = rig->tokens,
                     .targets = rig->targets,
                     .B = rig->B,
                     .T = rig->T,
                     .first_sample = first_sample,
                     .loss_scale = loss_scale};
}

// Forward, and backward in training; adds to the gradients. Returns the sum of losses.
__attribute__((unused)) static double rig_run(gpt_rig *rig, bool training, uint64_t first_sample,
                                              float loss_scale)
{
  const tri_batch batch = rig_batch(rig, first_sample, loss_scale);
  const double sum = rig_forward(rig, &batch, training);
  if (training) rig_backward(rig, &batch);
  return sum;
}

// A flat f32 array of the device as a host copy, free() it.
__attribute__((unused)) static float *rig_fetch(gpt_rig *rig, const float *device_array)
{
  const size_t size = (size_t)rig->model->parameters.flat_count * sizeof(float);
  float *host = malloc(size);
  EXPECT_OK(tri_stream_copy_to_host(rig->stream, host, device_array, size));
  EXPECT_OK(tri_stream_synchronize(rig->stream));
  return host;
}

// The published initialization as one flat host array, free() it.
__attribute__((unused)) static float *rig_initial_weights(const tri_model *model, uint64_t seed)
{
  const tri_parameters *parameters = &model->parameters;
  float *flat = calloc((size_t)parameters->flat_count, sizeof *flat);
  for (int i = 0; i < parameters->n; i++)
    tri_parameter_initialize(&parameters->list[i], seed, flat + parameters->list[i].offset);
  return flat;
}

// || a - b || / || b || in double; || a || where b is zero.
__attribute__((unused)) static double relative_distance(const float *a, const float *b, int64_t n)
{
  double difference = 0.0, norm = 0.0;
  for (int64_t i = 0; i < n; i++) {
    difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    norm += (double)b[i] * b[i];
  }
  return __builtin_sqrt(norm > 0.0 ? difference / norm : difference);
}
