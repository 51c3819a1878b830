// The GPT model as a whole: initial loss, gradients against central differences with and without
// dropout, micro-batches, bf16 against f32, padding, memory.
#include <math.h>

#include "nn/gpt_rig.h"

enum { B = 2, T = 17, V = 65 };

static const tri_gpt_config tiny = {.n_layers = 2,
                                    .n_heads = 4,
                                    .width = 32,
                                    .context = 20,
                                    .vocab_size = V,
                                    .vocab_multiple = 128,
                                    .seed = 3,
                                    .dtype = TRI_DTYPE_F32};

static void random_batch(gpt_rig *rig, uint64_t key)
{
  const int N = rig->B * rig->T;
  int32_t *tokens = calloc((size_t)N, sizeof *tokens),
          *targets = calloc((size_t)N, sizeof *targets);
  for (int i = 0; i < N; i++) {
    tokens[i] = (int32_t)(tri_random_u64(key, (uint64_t)i) % (uint64_t)rig->model->vocab_size);
    targets[i] = (int32_t)(tri_random_u64(key + 1, (uint64_t)i) % (uint64_t)rig->model->vocab_size);
  }
  rig_set_batch(rig, tokens, targets);
  free(tokens);
  free(targets);
}

// Weights large enough for every path of the model to count: matrices of std 0.2, biases 0.1, gains
// 1 +- 0.1.
static float *lively_weights(const tri_model *model)
{
  float *flat = calloc((size_t)model->parameters.flat_count, sizeof *flat);
  for (int i = 0; i < model->parameters.n; i++) {
    const tri_parameter *p = &model->parameters.list[i];
    const bool matrix = p->shape.n_axes == 2;
    tri_random_normal(tri_random_key(1, p->name), 0, tri_shape_elements(&p->shape),
                      p->init == TRI_INIT_ONE ? 1.0f : 0.0f, matrix ? 0.2f : 0.1f,
                      flat + p->offset);
  }
  return flat;
}

// With a tied embedding of std 0.02 and a normalized last state, logits have variance C 0.02^2, so
// the loss is near ln V + C 0.02^2 / 2.
static void initial_loss_is_near_formula(const tri_gpt_config *config, const char *kernels, int b,
                                         int t)
{
  gpt_rig rig;
  rig_open(&rig, config, kernels, b, t);
  float *weights = rig_initial_weights(rig.model, 1);
  rig_set_weights(&rig, weights);
  random_batch(&rig, 77);
  const double loss = rig_run(&rig, false, 0, 0.0f) / (b * t);
  const double C = config->width;
  EXPECT_NEAR(loss, log(config->vocab_size) + C * 0.02 * 0.02 / 2, 0.12);
  free(weights);
  rig_close(&rig);
}

TEST(initial_loss_is_in_its_band)
{
  const tri_gpt_config small = {.n_layers = 2,
                                .n_heads = 2,
                                .width = 64,
                                .context = 64,
                                .vocab_size = 256,
                                .vocab_multiple = 1};
  initial_loss_is_near_formula(&small, "reference", 2, 64);
  initial_loss_is_near_formula(&small, "tuned", 2, 64);
  const tri_gpt_config middle = {.n_layers = 6,
                                 .n_heads = 6,
                                 .width = 384,
                                 .context = 128,
                                 .vocab_size = 4000,
                                 .vocab_multiple = 128};
  initial_loss_is_near_formula(&middle, "tuned", 1, 96);
}

TEST(zero_weights_give_exactly_ln_v)
{
  gpt_rig rig;
  rig_open(&rig, &tiny, "tuned", B, T);
  float *zero = calloc((size_t)rig.model->parameters.flat_count, sizeof *zero);
  rig_set_weights(&rig, zero);
  random_batch(&rig, 5);
  (void)rig_run(&rig, false, 0, 0.0f);
  for (int i = 0; i < B * T; i++)
    EXPECT_NEAR(rig.host_losses[i], log(V), log(V) * 0x1p-23);
  free(zero);
  rig_close(&rig);
}

// --- gradients

// The mean loss at weights + step * direction (elements of one parameter).
static double loss_along(gpt_rig *rig, const float *weights, const tri_parameter *p,
                         const float *direction, double step)
{
  float *moved = malloc((size_t)rig->model->parameters.flat_count * sizeof *moved);
  memcpy(moved, weights, (size_t)rig->model->parameters.flat_count * sizeof *moved);
  for (int64_t e = 0; e < tri_shape_elements(&p->shape); e++)
    moved[p->offset + e] += (float)(step * direction[e]);
  rig_set_weights(rig, moved);
  free(moved);
  // In training mode, for its dropout.
  const tri_batch batch = rig_batch(rig, 40, 0.0f);
  return rig_forward(rig, &batch, true) / (rig->B * rig->T);
}

// One parameter along one random direction of unit length. A fourth-order difference with step h
// errs by the rounding of the losses, 1.5 noise / h, and by O(h^4), for which the distance to the
// second-order difference, O(h^2), is a generous bound.
static void check_direction(gpt_rig *rig, const float *weights, const float *gradients,
                            const tri_parameter *p, uint64_t key)
{
  const int64_t n = tri_shape_elements(&p->shape);
  float *direction = malloc((size_t)n * sizeof *direction);
  tri_random_normal(key, 0, n, 0.0f, 1.0f / sqrtf((float)n), direction);
  double slope = 0.0, length = 0.0;
  for (int64_t e = 0; e < n; e++) {
    slope += (double)direction[e] * gradients[p->offset + e];
    length += (double)gradients[p->offset + e] * gradients[p->offset + e];
  }
  const double h = 0.02;
  const double near =
      loss_along(rig, weights, p, direction, h) - loss_along(rig, weights, p, direction, -h);
  const double far = loss_along(rig, weights, p, direction, 2 * h) -
                     loss_along(rig, weights, p, direction, -2 * h);
  const double second = near / (2 * h), fourth = (8 * near - far) / (12 * h);
  // f32 activations leave a mean of losses with a relative error of about 2^-24.
  const double noise = 0x1p-24 * log(V);
  const double tolerance = 1.5 * noise / h + 0.1 * fabs(fourth - second);
  EXPECT_NEAR(slope, fourth, tolerance);
  // A typical slope along a random direction is far above the tolerance.
  EXPECT(tolerance < 0.01 * sqrt(length / (double)n));
  free(direction);
}

static void gradients_match_differences(const tri_gpt_config *config, const char *kernels)
{
  gpt_rig rig;
  rig_open(&rig, config, kernels, B, T);
  float *weights = lively_weights(rig.model);
  rig_set_weights(&rig, weights);
  random_batch(&rig, 11);
  rig_zero_gradients(&rig);
  (void)rig_run(&rig, true, 40, 1.0f / (B * T));
  float *gradients = rig_fetch(&rig, rig.gradients);
  for (int i = 0; i < rig.model->parameters.n; i++) {
    for (uint64_t d = 0; d < 2; d++)
      check_direction(&rig, weights, gradients, &rig.model->parameters.list[i],
                      tri_random_key(d, rig.model->parameters.list[i].name) ^ 1);
  }
  free(gradients);
  free(weights);
  rig_close(&rig);
}

TEST(gradients_match_central_differences)
{
  gradients_match_differences(&tiny, "reference");
}

TEST(gradients_match_central_differences_with_dropout)
{
  tri_gpt_config dropping = tiny;
  dropping.dropout = 0.2f;
  gradients_match_differences(&dropping, "reference");
}
// The gradients of two kinds of kernels, with dropout: the masks are the same numbers.
TEST(tuned_kernels_agree_with_reference_kernels)
{
  tri_gpt_config dropping = tiny;
  dropping.dropout = 0.2f;
  static const char *const kernels[2] = {"reference", "tuned"};
  float *gradients[2];
  double loss[2];
  tri_parameters parameters;
  for (int i = 0; i < 2; i++) {
    gpt_rig rig;
    rig_open(&rig, &dropping, kernels[i], B, T);
    float *weights = lively_weights(rig.model);
    rig_set_weights(&rig, weights);
    random_batch(&rig, 12);
    rig_zero_gradients(&rig);
    loss[i] = rig_run(&rig, true, 40, 1.0f / (B * T));
    gradients[i] = rig_fetch(&rig, rig.gradients);
    parameters = rig.model->parameters;
    free(weights);
    rig_close(&rig);
  }
  // Sums of up to 128 products, a few of them one after another: 2^-24 sqrt(128) each.
  const double tolerance = 8 * sqrt(128.0) * 0x1p-24;
  EXPECT_NEAR(loss[1], loss[0], tolerance * loss[0]);
  EXPECT(relative_distance(gradients[1], gradients[0], parameters.flat_count) < tolerance);
  free(gradients[0]);
  free(gradients[1]);
}

// --- micro-batches

// 30 samples of 35 tokens are more rows than the head takes at a time; two halves of them are not.
// Dropout follows the samples, so sums of losses and gradients are the same but for the order of
// additions.
TEST(two_micro_batches_are_one_batch)
{
  enum { SAMPLES = 30, TOKENS = 35 };
  tri_gpt_config config = tiny;
  config.context = TOKENS;
  config.dropout = 0.1f;
  gpt_rig rig;
  rig_open(&rig, &config, "tuned", SAMPLES, TOKENS);
  const int64_t flat = rig.model->parameters.flat_count;
  float *weights = lively_weights(rig.model);
  rig_set_weights(&rig, weights);
  random_batch(&rig, 13);
  rig_zero_gradients(&rig);
  const tri_batch whole = rig_batch(&rig, 1000, 1.0f / (SAMPLES * TOKENS));
  const double loss = rig_forward(&rig, &whole, true);
  rig_backward(&rig, &whole);
  float *gradients = rig_fetch(&rig, rig.gradients);

  rig_zero_gradients(&rig);
  double loss_of_parts = 0.0;
  for (int half = 0; half < 2; half++) {
    tri_batch part = whole;
    part.B = SAMPLES / 2;
    part.tokens += half * part.B * TOKENS;
    part.targets += half * part.B * TOKENS;
    part.first_sample += (uint64_t)(half * part.B);
    loss_of_parts += rig_forward(&rig, &part, true);
    rig_backward(&rig, &part);
  }
  float *gradients_of_parts = rig_fetch(&rig, rig.gradients);
  // Sums over 1,050 rows in another order: 2^-24 sqrt(1050), and room for its way down the chain.
  const double tolerance = 4 * sqrt(SAMPLES * TOKENS) * 0x1p-24;
  EXPECT_NEAR(loss_of_parts, loss, tolerance * loss);
  EXPECT(relative_distance(gradients_of_parts, gradients, flat) < tolerance);
  free(gradients);
  free(gradients_of_parts);
  free(weights);
  rig_close(&rig);
}

// Losses before position t know nothing of the token at t, nor of other samples; dropout masks do
// not depend on the place in the micro-batch.
TEST(losses_are_causal_and_samples_independent)
{
  gpt_rig rig;
  rig_open(&rig, &tiny, "tuned", B, T);
  float *weights = lively_weights(rig.model);
  rig_set_weights(&rig, weights);
  int32_t tokens[B * T], targets[B * T];
  float before[B * T];
  for (int i = 0; i < B * T; i++) {
    tokens[i] = i % V;
    targets[i] = (i * 5 + 1) % V;
  }
  rig_set_batch(&rig, tokens, targets);
  (void)rig_run(&rig, false, 0, 0.0f);
  memcpy(before, rig.host_losses, sizeof before);
  const int changed = T + 9;
  tokens[changed] = 60;
  rig_set_batch(&rig, tokens, targets);
  (void)rig_run(&rig, false, 0, 0.0f);
  for (int i = 0; i < B * T; i++)
    EXPECT((rig.host_losses[i] != before[i]) == (i >= changed));
  free(weights);
  rig_close(&rig);
}

// A sample whose targets are all ignored has no loss and adds nothing.
TEST(ignored_targets_leave_no_trace)
{
  gpt_rig rig;
  rig_open(&rig, &tiny, "tuned", B, T);
  float *weights = lively_weights(rig.model);
  rig_set_weights(&rig, weights);
  int32_t tokens[B * T], targets[B * T];
  for (int i = 0; i < B * T; i++) {
    tokens[i] = i % V;
    targets[i] = i < T ? i * 3 % V : -1;
  }
  rig_set_batch(&rig, tokens, targets);
  rig_zero_gradients(&rig);
  const double loss = rig_run(&rig, true, 0, 1.0f);
  float *gradients = rig_fetch(&rig, rig.gradients);
  for (int i = T; i < 2 * T; i++)
    EXPECT(rig.host_losses[i] == 0.0f);
  // Alone, in memory laid out for more.
  rig_zero_gradients(&rig);
  tri_batch alone = rig_batch(&rig, 0, 1.0f);
  alone.B = 1;
  EXPECT_NEAR(rig_forward(&rig, &alone, true), loss, loss * 0x1p-22);
  rig_backward(&rig, &alone);
  float *gradients_alone = rig_fetch(&rig, rig.gradients);
  EXPECT(relative_distance(gradients, gradients_alone, rig.model->parameters.flat_count) < 0x1p-20);
  free(gradients);
  free(gradients_alone);
  free(weights);
  rig_close(&rig);
}

// --- padding, memory, types

TEST(padding_gets_no_gradient)
{
  gpt_rig rig;
  rig_open(&rig, &tiny, "tuned", B, T);
  float *weights = lively_weights(rig.model);
  rig_set_weights(&rig, weights);
  random_batch(&rig, 14);
  rig_zero_gradients(&rig);
  (void)rig_run(&rig, true, 0, 1.0f);
  float *gradients = rig_fetch(&rig, rig.gradients);
  int64_t at = 0;
  for (int i = 0; i < rig.model->parameters.n; i++) {
    const tri_parameter *p = &rig.model->parameters.list[i];
    for (; at < p->offset; at++)
      EXPECT(gradients[at] == 0.0f);
    at += tri_shape_elements(&p->shape);
  }
  for (; at < rig.model->parameters.flat_count; at++)
    EXPECT(gradients[at] == 0.0f);
  free(gradients);
  free(weights);
  rig_close(&rig);
}

TEST(a_step_allocates_nothing_and_repeats_its_bits)
{
  tri_gpt_config dropping = tiny;
  dropping.dropout = 0.1f;
  static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16};
  for (int i = 0; i < 2; i++) {
    dropping.dtype = dtypes[i];
    gpt_rig rig;
    rig_open(&rig, &dropping, "tuned", B, T);
    float *weights = lively_weights(rig.model), *gradients[2];
    rig_set_weights(&rig, weights);
    random_batch(&rig, 15);
    for (int repeat = 0; repeat < 2; repeat++) {
      const int64_t allocations = tri_memory_allocations();
      rig_zero_gradients(&rig);
      (void)rig_run(&rig, true, 0, 1.0f);
      EXPECT(tri_memory_allocations() == allocations);
      gradients[repeat] = rig_fetch(&rig, rig.gradients);
    }
    EXPECT(memcmp(gradients[0], gradients[1],
                  (size_t)rig.model->parameters.flat_count * sizeof(float)) == 0);
    free(gradients[0]);
    free(gradients[1]);
    free(weights);
    rig_close(&rig);
  }
}

// bf16 stores with a relative error of u = 2^-9 at most. On the way to a logit lie R = 8 L + 4
// stores (eight of each block; embedding, final norm, weights and logits themselves), none of which
// weighs more than the whole, and they are independent, so a logit errs by sqrt(R) u times its
// standard deviation 0.02 sqrt(C), and a loss by up to twice that; five of them are the bound. A
// gradient passes as many stores again on its way back.
TEST(bf16_is_within_its_bound_of_f32)
{
  static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16};
  static const char *const kernels[] = {"reference", "tuned"};
  for (int k = 0; k < 2; k++) {
    double loss[2];
    float *gradients[2];
    int64_t flat = 0;
    for (int i = 0; i < 2; i++) {
      tri_gpt_config config = tiny;
      config.dtype = dtypes[i];
      gpt_rig rig;
      rig_open(&rig, &config, kernels[k], B, T);
      float *weights = rig_initial_weights(rig.model, 2);
      rig_set_weights(&rig, weights);
      random_batch(&rig, 16);
      rig_zero_gradients(&rig);
      loss[i] = rig_run(&rig, true, 0, 1.0f / (B * T)) / (B * T);
      gradients[i] = rig_fetch(&rig, rig.gradients);
      flat = rig.model->parameters.flat_count;
      free(weights);
      rig_close(&rig);
    }
    const double u = 0x1p-9, R = 8 * tiny.n_layers + 4;
    EXPECT_NEAR(loss[1], loss[0], 5 * 2 * sqrt(R) * u * 0.02 * sqrt(tiny.width));
    EXPECT(relative_distance(gradients[1], gradients[0], flat) < 5 * sqrt(2 * R) * u);
    EXPECT(memcmp(gradients[0], gradients[1], (size_t)flat * sizeof(float)) != 0);
    printf("# %s: bf16 - f32 loss %.2g, gradient %.2g relative\n", kernels[k], loss[1] - loss[0],
           relative_distance(gradients[1], gradients[0], flat));
    free(gradients[0]);
    free(gradients[1]);
  }
}

static void poison(gpt_rig *rig, void *memory, size_t size_bytes)
{
  char *host = malloc(size_bytes + 1);
  memset(host, RIG_POISON, size_bytes);
  EXPECT_OK(tri_stream_copy_to_device(rig->stream, memory, host, size_bytes));
  EXPECT_OK(tri_stream_synchronize(rig->stream));
  free(host);
}

// Backward in halves: the gradients of all inputs first, all others after; what lay in d_hidden and
// in scratch between is lost.
static void run_halves(gpt_rig *rig, uint64_t first_sample)
{
  const tri_model *m = rig->model;
  const tri_batch batch = rig_batch(rig, first_sample, 1.0f / (B * T));
  void *kept[8];
  (void)rig_forward(rig, &batch, true);
  for (int b = m->n_blocks - 1; b >= 0; b--) {
    kept[b] = rig_alloc(rig, m->operations->kept_bytes(m, b, B, T) + 1);
    tri_pass pass = rig_pass(rig, &batch, b, true);
    pass.part = TRI_BACKWARD_INPUT;
    pass.kept = kept[b];
    if (b < m->n_blocks - 1) pass.gradients = NULL;
    EXPECT_OK(m->operations->backward(m, b, &pass));
  }
  poison(rig, rig->d_hidden, rig->hidden_bytes);
  poison(rig, rig->scratch, rig->scratch_bytes);
  for (int b = m->n_blocks - 1; b >= 0; b--) {
    tri_pass pass = rig_pass(rig, &batch, b, true);
    pass.part = TRI_BACKWARD_WEIGHT;
    pass.kept = kept[b];
    pass.d_hidden = NULL;
    EXPECT_OK(m->operations->backward(m, b, &pass));
    EXPECT_OK(tri_stream_synchronize(rig->stream));
    tri_device_free(rig->device, &kept[b]);
  }
  rig_sum_tied(rig);
}

static void expect_halves(const char *kernels, float dropout, tri_dtype dtype)
{
  tri_gpt_config config = tiny;
  config.dropout = dropout;
  config.dtype = dtype;
  gpt_rig rig;
  rig_open(&rig, &config, kernels, B, T);
  float *weights = lively_weights(rig.model), *gradients[2];
  rig_set_weights(&rig, weights);
  random_batch(&rig, 5);
  for (int i = 0; i < 2; i++) {
    rig_zero_gradients(&rig);
    // Twice, so that the second adds to sums that are there.
    for (int repeat = 0; repeat < 2; repeat++) {
      if (i == 0)
        (void)rig_run(&rig, true, (uint64_t)repeat, 1.0f / (B * T));
      else
        run_halves(&rig, (uint64_t)repeat);
    }
    gradients[i] = rig_fetch(&rig, rig.gradients);
  }
  EXPECT(memcmp(gradients[0], gradients[1],
                (size_t)rig.model->parameters.flat_count * sizeof(float)) == 0);
  free(gradients[0]);
  free(gradients[1]);
  free(weights);
  rig_close(&rig);
}

TEST(halves_of_a_backward_have_the_bits_of_the_whole)
{
  const char *kernels[] = {"reference", "tuned"};
  for (int k = 0; k < 2; k++) {
    expect_halves(kernels[k], 0.0f, TRI_DTYPE_F32);
    expect_halves(kernels[k], 0.3f, TRI_DTYPE_F32);
    expect_halves(kernels[k], 0.3f, TRI_DTYPE_BF16);
  }
}

TEST(passes_out_of_range_are_refused)
{
  gpt_rig rig;
  rig_open(&rig, &tiny, "tuned", B, T);
  tri_batch batch = rig_batch(&rig, 0, 1.0f);
  tri_pass pass = rig_pass(&rig, &batch, 0, false);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "block 4 of a chain of 4",
               rig.model->operations->forward(rig.model, 4, &pass));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "block -1", rig.model->operations->backward(rig.model, -1, &pass));
  batch.T = 21;
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "21 tokens, the context is 20",
               rig.model->operations->forward(rig.model, 0, &pass));
  batch.B = 0;
  batch.T = T;
  EXPECT(rig_forward(&rig, &batch, true) == 0.0);
  rig_close(&rig);
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  TEST_RUN(initial_loss_is_in_its_band);
  TEST_RUN(zero_weights_give_exactly_ln_v);
  TEST_RUN(gradients_match_central_differences);
  TEST_RUN(gradients_match_central_differences_with_dropout);
  TEST_RUN(tuned_kernels_agree_with_reference_kernels);
  TEST_RUN(two_micro_batches_are_one_batch);
  TEST_RUN(losses_are_causal_and_samples_independent);
  TEST_RUN(ignored_targets_leave_no_trace);
  TEST_RUN(padding_gets_no_gradient);
  TEST_RUN(a_step_allocates_nothing_and_repeats_its_bits);
  TEST_RUN(bf16_is_within_its_bound_of_f32);
  TEST_RUN(halves_of_a_backward_have_the_bits_of_the_whole);
  TEST_RUN(passes_out_of_range_are_refused);
  return test_end();
}
