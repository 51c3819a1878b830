// The loader: every epoch is a permutation, what an ordinal means depends on nothing else, errors
// of the reading thread arrive at take.
// timeout: 120
#include "trireme/data/loader.h"

#include <unistd.h>

#include "corpus_test.h"
#include "trireme/base/memory.h"

enum { N = 5000, T = 7, SAMPLES = (N - 1) / T };

static uint8_t data[N];
static tri_corpus *corpus;

static tri_loader *create(int max_samples, int depth, bool shuffled, uint64_t seed)
{
  const tri_loader_options options = {.split = TRI_SPLIT_TRAIN,
                                      .T = T,
                                      .max_samples = max_samples,
                                      .depth = depth,
                                      .shuffled = shuffled,
                                      .seed = seed};
  tri_loader *loader = NULL;
  EXPECT_OK(tri_loader_create(corpus, &options, &loader));
  return loader;
}

TEST(every_epoch_is_a_permutation)
{
  tri_loader *loader = create(1, 1, true, 3);
  EXPECT(tri_loader_samples(loader) == SAMPLES);
  int64_t first[SAMPLES];
  for (uint64_t epoch = 0; epoch < 4; epoch++) {
    bool seen[SAMPLES] = {false};
    int same = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
      const int64_t sample = tri_loader_sample_of(loader, epoch * SAMPLES + i);
      EXPECT(sample >= 0 && sample < SAMPLES && !seen[sample]);
      seen[sample] = true;
      if (epoch == 0) first[i] = sample;
      same += sample == first[i];
    }
    // Two random orders agree in one place on average.
    EXPECT(epoch == 0 || same < 12);
  }
  tri_loader_destroy(&loader);
}

TEST(seeds_give_different_orders)
{
  tri_loader *one = create(1, 1, true, 1), *other = create(1, 1, true, 2);
  int same = 0;
  for (uint64_t i = 0; i < SAMPLES; i++)
    same += tri_loader_sample_of(one, i) == tri_loader_sample_of(other, i);
  EXPECT(same < 12);
  tri_loader_destroy(&one);
  tri_loader_destroy(&other);
}

static void expect_sample(const tri_loader *loader, uint64_t ordinal, const int32_t *tokens,
                          const int32_t *targets)
{
  const int64_t at = tri_loader_sample_of(loader, ordinal) * T;
  for (int t = 0; t < T; t++) {
    EXPECT(tokens[t] == data[at + t]);
    EXPECT(targets[t] == data[at + t + 1]);
  }
}

// Requests of every size, up to depth open at once, over more than one epoch.
static void expect_samples(bool shuffled, uint64_t n_wanted)
{
  enum { MOST = 33, DEPTH = 3 };
  tri_loader *loader = create(MOST, DEPTH, shuffled, 9);
  int32_t tokens[MOST * T + 1], targets[MOST * T + 1];
  uint64_t asked = 0, taken = 0;
  int open[DEPTH], n_open = 0, size = 0;
  const int64_t before = tri_memory_allocations();
  while (taken < n_wanted) {
    while (n_open < DEPTH && asked < n_wanted) {
      size = (size + 5) % (MOST + 1);
      if ((uint64_t)size > n_wanted - asked) size = (int)(n_wanted - asked);
      EXPECT_OK(tri_loader_request(loader, asked, size));
      open[n_open++] = size;
      asked += (uint64_t)size;
    }
    tokens[open[0] * T] = targets[open[0] * T] = -7;
    EXPECT_OK(tri_loader_take(loader, tokens, targets));
    EXPECT(tokens[open[0] * T] == -7 && targets[open[0] * T] == -7);
    for (int i = 0; i < open[0]; i++)
      expect_sample(loader, taken + (uint64_t)i, tokens + i * T, targets + i * T);
    taken += (uint64_t)open[0];
    n_open--;
    memmove(open, open + 1, (size_t)n_open * sizeof *open);
  }
  EXPECT(tri_memory_allocations() == before);
  tri_loader_destroy(&loader);
}

TEST(samples_do_not_depend_on_the_requests)
{
  expect_samples(true, 2 * SAMPLES + 100);
  expect_samples(false, SAMPLES);
}

TEST(order_in_order)
{
  tri_loader *loader = create(2, 1, false, 0);
  for (uint64_t i = 0; i < SAMPLES; i++)
    EXPECT(tri_loader_sample_of(loader, i) == (int64_t)i);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "in order, the split has",
               tri_loader_request(loader, SAMPLES - 1, 2));
  tri_loader_destroy(&loader);
}

TEST(wrong_requests_are_refused)
{
  int32_t tokens[2 * T], targets[2 * T];
  tri_loader *loader = create(2, 2, true, 0);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "never asked for", tri_loader_take(loader, tokens, targets));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "made for 2", tri_loader_request(loader, 0, 3));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "made for 2", tri_loader_request(loader, 0, -1));
  EXPECT_OK(tri_loader_request(loader, 0, 1));
  EXPECT_OK(tri_loader_request(loader, 1, 1));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "2 requests are open", tri_loader_request(loader, 2, 1));
  tri_loader_destroy(&loader); // with requests open
  EXPECT(loader == NULL);
}

TEST(too_little_text_is_refused)
{
  tri_corpus *small = NULL;
  tri_loader *loader = NULL;
  tri_loader_options options = {.split = TRI_SPLIT_TRAIN, .T = 8, .max_samples = 1, .depth = 1};
  build_bytes_corpus(in_scratch("small.h5"), "12345678", 8, 0);
  EXPECT_OK(tri_corpus_open(in_scratch("small.h5"), &small));
  EXPECT_ERROR(TRI_ERR_CONFIG, "the train split of the corpus has 8 tokens",
               tri_loader_create(small, &options, &loader));
  options.split = TRI_SPLIT_VALIDATION;
  EXPECT_ERROR(TRI_ERR_CONFIG, "the validation split of the corpus has 0 tokens",
               tri_loader_create(small, &options, &loader));
  options.split = TRI_SPLIT_TRAIN;
  options.T = 7;
  EXPECT_OK(tri_loader_create(small, &options, &loader));
  EXPECT(tri_loader_samples(loader) == 1);
  tri_loader_destroy(&loader);
  tri_corpus_close(&small);
}

TEST(reading_errors_arrive_at_take)
{
  tri_corpus *damaged = NULL;
  tri_loader *loader = NULL;
  int32_t tokens[T], targets[T];
  const tri_loader_options options = {
      .split = TRI_SPLIT_TRAIN, .T = T, .max_samples = 1, .depth = 2};
  const char *path = in_scratch("damaged.h5");
  build_bytes_corpus(path, data, N, 0);
  EXPECT_OK(tri_corpus_open(path, &damaged));
  EXPECT_OK(tri_loader_create(damaged, &options, &loader));
  int64_t size;
  EXPECT_OK(tri_file_size(path, &size));
  EXPECT(truncate(path, size - N) == 0); // half of the tokens
  EXPECT_OK(tri_loader_request(loader, SAMPLES - 1, 1));
  EXPECT_OK(tri_loader_request(loader, 0, 1));
  EXPECT_ERROR(TRI_ERR_FORMAT, "is truncated", tri_loader_take(loader, tokens, targets));
  EXPECT_OK(tri_loader_take(loader, tokens, targets));
  expect_sample(loader, 0, tokens, targets);
  tri_loader_destroy(&loader);
  tri_corpus_close(&damaged);
}

int main(void)
{
  fill_noise(4, N, data);
  test_name = "create";
  build_bytes_corpus(in_scratch("corpus.h5"), data, N, 0);
  EXPECT_OK(tri_corpus_open(in_scratch("corpus.h5"), &corpus));
  TEST_RUN(every_epoch_is_a_permutation);
  TEST_RUN(seeds_give_different_orders);
  TEST_RUN(samples_do_not_depend_on_the_requests);
  TEST_RUN(order_in_order);
  TEST_RUN(wrong_requests_are_refused);
  TEST_RUN(too_little_text_is_refused);
  TEST_RUN(reading_errors_arrive_at_take);
  tri_corpus_close(&corpus);
  EXPECT_OK(tri_memory_check_balance());
  return test_end();
}
