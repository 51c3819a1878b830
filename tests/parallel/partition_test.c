// Cuts of a chain: for all chains of few costs up to 10 blocks, and random ones with bytes, the cut
// is the best of all cuts by the order that the header states, found by trying all.
#include "trireme/parallel/partition.h"

#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { MOST_BLOCKS = 10 };

// What the header compares, smaller is better: most cost, most bytes, minus least cost, the ends.
typedef struct worth {
  int64_t key[3 + MOST_BLOCKS + 1];
} worth;

static worth worth_of(const tri_partition_chain *chain, int n_parts, const int *first)
{
  worth w = {{0, 0, INT64_MIN}};
  for (int k = 0; k < n_parts; k++) {
    int64_t cost = 0, bytes = 0;
    for (int i = first[k]; i < first[k + 1]; i++) {
      cost += chain->costs == NULL ? 1 : chain->costs[i];
      bytes += chain->bytes == NULL ? 0 : chain->bytes[i];
    }
    if (cost > w.key[0]) w.key[0] = cost;
    if (bytes > w.key[1]) w.key[1] = bytes;
    if (-cost > w.key[2]) w.key[2] = -cost;
    w.key[3 + k] = first[k + 1];
  }
  return w;
}

static bool better(const worth *a, const worth *b)
{
  for (int i = 0; i < 3 + MOST_BLOCKS + 1; i++) {
    if (a->key[i] != b->key[i]) return a->key[i] < b->key[i];
  }
  return false;
}

// All cuts: each set of n_parts - 1 places between blocks.
static worth best_of_all(const tri_partition_chain *chain, int n_parts)
{
  worth best = {{INT64_MAX}};
  for (unsigned places = 0; places < 1u << (chain->n_blocks - 1); places++) {
    if (__builtin_popcount(places) != n_parts - 1) continue;
    int first[MOST_BLOCKS + 1] = {0}, k = 0;
    for (int i = 1; i < chain->n_blocks; i++) {
      if ((places >> (i - 1) & 1) != 0) first[++k] = i;
    }
    first[n_parts] = chain->n_blocks;
    const worth w = worth_of(chain, n_parts, first);
    if (better(&w, &best)) best = w;
  }
  return best;
}

static void check_chain(const tri_partition_chain *chain)
{
  for (int n_parts = 1; n_parts <= chain->n_blocks; n_parts++) {
    int first[MOST_BLOCKS + 2];
    first[n_parts + 1] = -7;
    EXPECT_OK(tri_partition_cut(chain, n_parts, first));
    EXPECT(first[0] == 0 && first[n_parts] == chain->n_blocks && first[n_parts + 1] == -7);
    for (int k = 0; k < n_parts; k++)
      EXPECT(first[k] < first[k + 1]);
    if (test_failed_here > 0) return;
    const worth found = worth_of(chain, n_parts, first), best = best_of_all(chain, n_parts);
    EXPECT(memcmp(&found, &best, sizeof best) == 0);
  }
}

// All chains of n blocks with costs from a list.
static void check_all(int n, const int64_t *choices, int n_choices)
{
  int64_t costs[MOST_BLOCKS];
  int n_chains = 1;
  for (int i = 0; i < n; i++)
    n_chains *= n_choices;
  for (int c = 0; c < n_chains && test_failed_here == 0; c++) {
    int rest = c;
    for (int i = 0; i < n; i++, rest /= n_choices)
      costs[i] = choices[rest % n_choices];
    check_chain(&(tri_partition_chain){n, costs, NULL});
  }
}

TEST(all_chains_of_two_costs_are_cut_best)
{
  for (int n = 1; n <= MOST_BLOCKS; n++)
    check_all(n, (const int64_t[]){1, 2}, 2);
}

TEST(all_short_chains_with_costs_of_zero_are_cut_best)
{
  for (int n = 1; n <= 7; n++)
    check_all(n, (const int64_t[]){0, 1, 5}, 3);
}

// Costs from small, so that many cuts are as good as each other, to large.
TEST(random_chains_with_bytes_are_cut_best)
{
  const uint64_t key = tri_random_key(7, "chains");
  uint64_t drawn = 0;
  for (int turn = 0; turn < 3000 && test_failed_here == 0; turn++) {
    const int n = 1 + turn % MOST_BLOCKS;
    const int64_t most = (int64_t)1 << (1 + turn % 57), most_bytes = (int64_t)1 << (1 + turn % 4);
    int64_t costs[MOST_BLOCKS], bytes[MOST_BLOCKS];
    for (int i = 0; i < n; i++) {
      costs[i] = (int64_t)(tri_random_u64(key, drawn++) % (uint64_t)most);
      bytes[i] = (int64_t)(tri_random_u64(key, drawn++) % (uint64_t)most_bytes);
    }
    check_chain(&(tri_partition_chain){n, turn % 7 == 0 ? NULL : costs, bytes});
  }
}

static void expect_cut(const tri_partition_chain *chain, int n_parts, const int *wanted)
{
  int first[MOST_BLOCKS + 1];
  EXPECT_OK(tri_partition_cut(chain, n_parts, first));
  for (int k = 0; k <= n_parts; k++)
    EXPECT(first[k] == wanted[k]);
}

TEST(cuts_are_those_one_would_make)
{
  // By number: as even as can be, the smaller parts first.
  expect_cut(&(tri_partition_chain){10, NULL, NULL}, 4, (const int[]){0, 2, 4, 7, 10});
  // A heavy head leaves its stage alone.
  const int64_t head[] = {0, 1, 1, 1, 1, 1, 1, 3};
  expect_cut(&(tri_partition_chain){8, head, NULL}, 3, (const int[]){0, 4, 7, 8});
  // The memory of embedding and head decides where costs do not: parts of 3 blocks or fewer.
  const int64_t even[] = {1, 1, 1, 1, 1, 1, 1}, ends[] = {9, 1, 1, 1, 1, 1, 9};
  expect_cut(&(tri_partition_chain){7, even, ends}, 3, (const int[]){0, 2, 5, 7});
  // Large sums are exact.
  const int64_t large[] = {INT64_MAX - 3, 1, 1, 1};
  expect_cut(&(tri_partition_chain){4, large, NULL}, 2, (const int[]){0, 1, 4});
}

TEST(a_long_chain_is_cut_within_its_bound)
{
  enum { N = 4096, PARTS = 64 };
  static int64_t costs[N];
  static int first[PARTS + 1];
  const uint64_t key = tri_random_key(8, "chain");
  int64_t all = 0, largest = 0, most = 0;
  for (int i = 0; i < N; i++) {
    costs[i] = (int64_t)(tri_random_u64(key, (uint64_t)i) % 1000000);
    all += costs[i];
    if (costs[i] > largest) largest = costs[i];
  }
  EXPECT_OK(tri_partition_cut(&(tri_partition_chain){N, costs, NULL}, PARTS, first));
  for (int k = 0; k < PARTS; k++) {
    int64_t cost = 0;
    for (int i = first[k]; i < first[k + 1]; i++)
      cost += costs[i];
    if (cost > most) most = cost;
  }
  EXPECT(first[0] == 0 && first[PARTS] == N);
  EXPECT(most >= all / PARTS && most <= all / PARTS + largest);
}

TEST(what_cannot_be_cut_is_refused)
{
  int first[4] = {-1, -1, -1, -1};
  const int64_t negative[] = {1, -2, 1}, huge[] = {INT64_MAX, 0, 1}, fine[] = {1, 1, 1};
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "3 blocks cannot be cut into 4 parts: 1 to 3",
               tri_partition_cut(&(tri_partition_chain){3, fine, NULL}, 4, first));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "3 blocks cannot be cut into 0 parts",
               tri_partition_cut(&(tri_partition_chain){3, fine, NULL}, 0, first));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "block 1 has -2 costs, less than 0",
               tri_partition_cut(&(tri_partition_chain){3, negative, NULL}, 2, first));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "bytes of 3 blocks are more than 2^63 - 1 together",
               tri_partition_cut(&(tri_partition_chain){3, fine, huge}, 2, first));
  EXPECT(first[0] == -1);
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  TEST_RUN(all_chains_of_two_costs_are_cut_best);
  TEST_RUN(all_short_chains_with_costs_of_zero_are_cut_best);
  TEST_RUN(random_chains_with_bytes_are_cut_best);
  TEST_RUN(cuts_are_those_one_would_make);
  TEST_RUN(a_long_chain_is_cut_within_its_bound);
  TEST_RUN(what_cannot_be_cut_is_refused);
  return test_end();
}
