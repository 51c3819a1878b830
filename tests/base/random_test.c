// Random numbers: published vectors, moments, independence of how a range is cut, permutations are
// permutations.
#include "trireme/base/random.h"

#include <math.h>

#include "test.h"

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(philox_known_answers)
{
  static const struct {
    uint32_t counter[4];
    uint64_t key;
    uint32_t want[4];
  } vectors[] = {
      {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       0xffffffffffffffffull,
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       0x299f31d0a4093822ull,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
    uint32_t out[4];
    tri_random_philox(vectors[i].key, vectors[i].counter, out);
    for (int w = 0; w < 4; w++)
      EXPECT(out[w] == vectors[i].want[w]);
  }
}

TEST(normal_has_the_right_moments)
{
  enum { N = 1 << 20 };
  float *z = malloc(N * sizeof *z);
  tri_random_normal(tri_random_key(7, "moments"), 0, N, 0.0f, 1.0f, z);
  double sum[5] = {0};
  for (int i = 0; i < N; i++) {
    for (int p = 1; p <= 4; p++)
      sum[p] += pow(z[i], p);
  }
  // Five standard errors of each moment: var(z^p) is 1, 2, 15, 96.
  const double root = sqrt((double)N);
  EXPECT_NEAR(sum[1] / N, 0, 5 * 1 / root);
  EXPECT_NEAR(sum[2] / N, 1, 5 * sqrt(2) / root);
  EXPECT_NEAR(sum[3] / N, 0, 5 * sqrt(15) / root);
  EXPECT_NEAR(sum[4] / N, 3, 5 * sqrt(96) / root);
  free(z);
}

// The portable logarithm and sine against libm's, through the numbers they make.
TEST(normal_is_box_muller)
{
  enum { N = 4096 };
  const uint64_t key = tri_random_key(1, "x");
  float z[N];
  tri_random_normal(key, 0, N, 0.0f, 1.0f, z);
  for (uint32_t block = 0; block < N / 4; block++) {
    const uint32_t counter[4] = {block, 0, 0, 0};
    uint32_t w[4];
    tri_random_philox(key, counter, w);
    for (int pair = 0; pair < 2; pair++) {
      const double radius = sqrt(-2.0 * log((w[2 * pair] + 1.0) * 0x1p-32));
      const double angle = 2.0 * M_PI * (w[2 * pair + 1] * 0x1p-32);
      EXPECT_NEAR(z[block * 4 + 2 * (uint32_t)pair], radius * cos(angle), 1e-6);
      EXPECT_NEAR(z[block * 4 + 2 * (uint32_t)pair + 1], radius * sin(angle), 1e-6);
    }
  }
}

TEST(normal_does_not_depend_on_the_cut)
{
  enum { N = 1000 };
  float whole[N], parts[N];
  tri_random_normal(3, 5, N, 0.5f, 2.0f, whole);
  for (int first = 0, step = 1; first < N; first += step, step = step % 7 + 1) {
    if (step > N - first) step = N - first;
    tri_random_normal(3, 5 + first, step, 0.5f, 2.0f, parts + first);
  }
  EXPECT(memcmp(whole, parts, sizeof whole) == 0);
}

TEST(permutation_is_a_permutation)
{
  static const uint64_t sizes[] = {1, 2, 3, 4, 5, 31, 32, 33, 257, 1000, 65537};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    const uint64_t n = sizes[s];
    bool *seen = calloc(n, sizeof *seen);
    uint64_t fixed = 0;
    for (uint64_t i = 0; i < n; i++) {
      const uint64_t image = tri_random_permute(tri_random_key(n, "p"), n, i);
      EXPECT(image < n && !seen[image]);
      if (image < n) seen[image] = true;
      fixed += image == i;
    }
    // A random permutation has one fixed point on average, whatever n.
    EXPECT(n < 31 || fixed < 12);
    free(seen);
  }
}

TEST(streams_differ_by_seed_and_name)
{
  EXPECT(tri_random_key(1, "a") != tri_random_key(2, "a"));
  EXPECT(tri_random_key(1, "a") != tri_random_key(1, "b"));
  EXPECT(tri_random_u64(1, 0) != tri_random_u64(1, 1));
}

int main(void)
{
  TEST_RUN(philox_known_answers);
  TEST_RUN(normal_has_the_right_moments);
  TEST_RUN(normal_is_box_muller);
  TEST_RUN(normal_does_not_depend_on_the_cut);
  TEST_RUN(permutation_is_a_permutation);
  TEST_RUN(streams_differ_by_seed_and_name);
  return test_end();
}
