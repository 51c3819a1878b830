// Generation: the decoder's logits are those of the forward pass, and tokens are drawn as told.
#include <math.h>

#include "nn/gpt_rig.h"

enum { T = 17, V = 65 };

// The forward pass tells losses, not logits: those of every target v give log-sum-exp - logit[v].
static void all_losses(gpt_rig *rig, const int32_t *tokens, float *losses /* (V, T) */)
{
  for (int v = 0; v < V; v++) {
    int32_t targets[T];
    for (int t = 0; t < T; t++)
      targets[t] = v;
    rig_set_batch(rig, tokens, targets);
    (void)rig_run(rig, false, 0, 0.0f);
    memcpy(losses + v * T, rig->host_losses, T * sizeof *losses);
  }
}

static double log_sum_exp(const float *logits, int n)
{
  double sum = 0.0;
  for (int i = 0; i < n; i++)
    sum += exp(logits[i]);
  return log(sum);
}

static void decoder_follows_forward(const char *kernels, tri_dtype dtype, double tolerance)
{
  const tri_gpt_config config = {.n_layers = 2,
                                 .n_heads = 4,
                                 .width = 32,
                                 .context = T,
                                 .vocab_size = V,
                                 .vocab_multiple = 64,
                                 .dropout = 0.3f,
                                 .dtype = dtype};
  gpt_rig rig;
  rig_open(&rig, &config, kernels, 1, T);
  float *weights = rig_initial_weights(rig.model, 4);
  for (int64_t i = 0; i < rig.model->parameters.flat_count; i++)
    weights[i] *= 5.0f;
  rig_set_weights(&rig, weights);
  int32_t tokens[T];
  for (int t = 0; t < T; t++)
    tokens[t] = (t * t * 7 + 3) % V;
  float losses[V * T], logits[V + 1];
  all_losses(&rig, tokens, losses);

  tri_gpt_decoder *decoder = NULL;
  EXPECT_OK(tri_gpt_decoder_create(rig.model, rig.stream, rig.weights, &decoder));
  for (int round = 0; decoder != NULL && round < 2; round++) {
    const int64_t allocations = tri_memory_allocations();
    for (int t = 0; t < T; t++) {
      EXPECT(tri_gpt_decoder_position(decoder) == t);
      memset(logits, 0x42, sizeof logits);
      const float guard = logits[V];
      EXPECT_OK(tri_gpt_decoder_step(decoder, tokens[t], logits));
      EXPECT(logits[V] == guard);
      const double lse = log_sum_exp(logits, V);
      for (int v = 0; v < V; v++)
        EXPECT_NEAR(lse - logits[v], losses[v * T + t], tolerance);
    }
    EXPECT(tri_memory_allocations() == allocations);
    EXPECT_ERROR(TRI_ERR_ARGUMENT, "the context of 17 tokens is full",
                 tri_gpt_decoder_step(decoder, 0, logits));
    tri_gpt_decoder_restart(decoder);
    EXPECT_ERROR(TRI_ERR_ARGUMENT, "token 65 is not in the vocabulary of 65",
                 tri_gpt_decoder_step(decoder, V, logits));
  }
  tri_gpt_decoder_destroy(&decoder);
  EXPECT(decoder == NULL);
  tri_gpt_decoder_destroy(&decoder);
  free(weights);
  rig_close(&rig);
  EXPECT_OK(tri_memory_check_balance());
}

// f32: eight linear layers, each with sums of up to 128 products, so some sqrt(128) roundings that
// add up at random, of logits up to 2^4: 256 units of 2^-24 leave a factor of 4. bf16: both paths
// round the same values, and where a last bit falls the other way it is 2^-8 of a value of a few
// units.
TEST(decoder_logits_are_the_forward_logits)
{
  decoder_follows_forward("reference", TRI_DTYPE_F32, 256 * 0x1p-24);
  decoder_follows_forward("tuned", TRI_DTYPE_F32, 256 * 0x1p-24);
  decoder_follows_forward("reference", TRI_DTYPE_BF16, 8 * 0x1p-8);
  decoder_follows_forward("tuned", TRI_DTYPE_BF16, 8 * 0x1p-8);
}

TEST(temperature_zero_takes_the_largest)
{
  const float logits[6] = {-3.0f, 2.0f, 5.0f, 5.0f, -INFINITY, 0.0f};
  EXPECT(tri_sample_token(logits, 6, 0.0f, 0, 0.999) == 2);
  EXPECT(tri_sample_token(logits, 6, 0.0f, 3, 0.0) == 2);
  EXPECT(tri_sample_token(logits, 1, 0.0f, 0, 0.5) == 0);
  EXPECT(tri_sample_token(logits, 1, 1.0f, 0, 0.999) == 0);
}

// Drawn with uniform numbers on a fine grid, each token comes as often as its probability says, to
// one grid point at either border.
static void frequencies_are_probabilities(const float *logits, int n, float temperature, int top_k,
                                          const bool *kept)
{
  enum { GRID = 20000 };
  int counts[64] = {0};
  double total = 0.0;
  for (int i = 0; i < n; i++)
    total += kept[i] ? exp(logits[i] / (double)temperature) : 0.0;
  for (int g = 0; g < GRID; g++)
    counts[tri_sample_token(logits, n, temperature, top_k, (double)g / GRID)]++;
  for (int i = 0; i < n; i++) {
    const double share = kept[i] ? exp(logits[i] / (double)temperature) / total : 0.0;
    EXPECT_NEAR(counts[i], GRID * share, kept[i] ? 1.001 : 0.0);
  }
}

TEST(tokens_come_with_their_probabilities)
{
  const float logits[7] = {0.5f, -1.0f, 2.0f, 2.0f, -0.0f, 2.0f, -4.0f};
  const bool all[7] = {true, true, true, true, true, true, true};
  frequencies_are_probabilities(logits, 7, 1.0f, 0, all);
  frequencies_are_probabilities(logits, 7, 0.5f, 0, all);
  frequencies_are_probabilities(logits, 7, 3.0f, 7, all);
  frequencies_are_probabilities(logits, 7, 3.0f, 100, all);
  // The second and third of three equal ones lose their places in turn.
  const bool two[7] = {false, false, true, true, false, false, false};
  const bool one[7] = {false, false, true, false, false, false, false};
  const bool four[7] = {true, false, true, true, false, true, false};
  frequencies_are_probabilities(logits, 7, 1.0f, 2, two);
  frequencies_are_probabilities(logits, 7, 1.0f, 1, one);
  frequencies_are_probabilities(logits, 7, 1.0f, 4, four);
  // Large logits do not overflow.
  const float large[3] = {1e30f, 1e30f, -1e30f};
  EXPECT(tri_sample_token(large, 3, 1.0f, 0, 0.25) == 0);
  EXPECT(tri_sample_token(large, 3, 1.0f, 0, 0.75) == 1);
  EXPECT(tri_sample_token(large, 3, 1.0f, 2, 0.9999999) == 1);
}

int main(void)
{
  TEST_RUN(decoder_logits_are_the_forward_logits);
  TEST_RUN(temperature_zero_takes_the_largest);
  TEST_RUN(tokens_come_with_their_probabilities);
  return test_end();
}
