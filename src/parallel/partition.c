// Whether a chain can be cut so that every part costs between `least` and `most` and has at most
// `most_bytes` is a walk over a table. Each of the three numbers is found by bisection, in the
// order of the header, with those before it held; the last table has the cut. Costs are not
// negative, so that from a given block on, the ends of parts within the limits are a range, whose
// ends only move forward with the block.
#include "trireme/parallel/partition.h"

#include <stdbool.h>
#include <stddef.h>

#include "trireme/base/memory.h"

typedef struct limits {
  int64_t least, most, most_bytes;
} limits;

typedef struct search {
  int n_blocks, n_parts;
  int64_t *cost, *bytes;     // (n_blocks + 1): of the blocks before
  int *end_least, *end_most; // (n_blocks): ends of parts that begin at a block, within the limits
  int *n_before;             // (n_blocks + 2): scratch
  bool *can;                 // (n_parts + 1, n_blocks + 1): [k][i] whether blocks [i, n_blocks) can
                             // be cut into k parts
} search;

static bool *row(const search *s, int k)
{
  return s->can + (size_t)k * ((size_t)s->n_blocks + 1);
}

// The ends of a part that begins at block i: [end_least[i], end_most[i]], or none: then
// end_least[i] > end_most[i].
static void find_ends(search *s, const limits *l)
{
  int low = 1, high = 0;
  for (int i = 0; i < s->n_blocks; i++) {
    if (low <= i) low = i + 1;
    while (low <= s->n_blocks && s->cost[low] - s->cost[i] < l->least)
      low++;
    while (high < s->n_blocks && s->cost[high + 1] - s->cost[i] <= l->most &&
           s->bytes[high + 1] - s->bytes[i] <= l->most_bytes)
      high++;
    s->end_least[i] = low;
    s->end_most[i] = high;
  }
}

static bool can_cut(search *s, limits l)
{
  const int n = s->n_blocks;
  find_ends(s, &l);
  for (int i = 0; i <= n; i++)
    row(s, 0)[i] = i == n;
  for (int k = 1; k <= s->n_parts; k++) {
    const bool *rest = row(s, k - 1);
    bool *can = row(s, k);
    s->n_before[0] = 0;
    for (int j = 0; j <= n; j++)
      s->n_before[j + 1] = s->n_before[j] + rest[j];
    can[n] = false;
    for (int i = 0; i < n; i++)
      can[i] = s->n_before[s->end_most[i] + 1] > s->n_before[s->end_least[i]];
  }
  return row(s, s->n_parts)[0];
}

// The first number in [low, high] with which the chain can be cut; high is one. `number` is a
// member of *l, and is left at what was found.
static void find_first(search *s, limits *l, int64_t *number, int64_t low, int64_t high)
{
  while (low < high) {
    *number = low + (high - low) / 2;
    if (can_cut(s, *l))
      high = *number;
    else
      low = *number + 1;
  }
  *number = low;
}

// The last one; low is one.
static void find_last(search *s, limits *l, int64_t *number, int64_t low, int64_t high)
{
  while (low < high) {
    *number = high - (high - low) / 2;
    if (can_cut(s, *l))
      low = *number;
    else
      high = *number - 1;
  }
  *number = low;
}

static void cut(search *s, int *first)
{
  const int64_t all = s->cost[s->n_blocks], all_bytes = s->bytes[s->n_blocks];
  limits l = {.least = 0, .most = all, .most_bytes = all_bytes};
  find_first(s, &l, &l.most, 0, all);
  find_first(s, &l, &l.most_bytes, 0, all_bytes);
  find_last(s, &l, &l.least, 0, l.most);
  const bool found = can_cut(s, l);
  TRI_ASSERT(found);
  (void)found;
  first[0] = 0;
  for (int k = 0; k < s->n_parts; k++) {
    int end = s->end_least[first[k]];
    while (!row(s, s->n_parts - k - 1)[end])
      end++;
    first[k + 1] = end;
  }
}

static tri_status sum_up(int n_blocks, const int64_t *numbers, int64_t otherwise, const char *what,
                         int64_t *before)
{
  for (int i = 0; i < n_blocks; i++) {
    const int64_t number = numbers == NULL ? otherwise : numbers[i];
    TRI_CHECK(number >= 0, TRI_ERR_ARGUMENT, "block %d has %lld %s, less than 0", i,
              (long long)number, what);
    TRI_CHECK(before[i] <= INT64_MAX - number, TRI_ERR_ARGUMENT,
              "%s of %d blocks are more than 2^63 - 1 together: count them in larger units", what,
              n_blocks);
    before[i + 1] = before[i] + number;
  }
  return TRI_OK;
}

static tri_status fill_in(search *s, const tri_partition_chain *chain)
{
  const size_t n = (size_t)chain->n_blocks;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n + 1, &s->cost));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n + 1, &s->bytes));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n, &s->end_least));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n, &s->end_most));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n + 2, &s->n_before));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, ((size_t)s->n_parts + 1) * (n + 1), &s->can));
  TRI_CALL(sum_up(chain->n_blocks, chain->costs, 1, "costs", s->cost));
  TRI_CALL(sum_up(chain->n_blocks, chain->bytes, 0, "bytes", s->bytes));
  return TRI_OK;
}

tri_status tri_partition_cut(const tri_partition_chain *chain, int n_parts, int *first)
{
  TRI_CHECK(n_parts >= 1 && n_parts <= chain->n_blocks, TRI_ERR_ARGUMENT,
            "%d blocks cannot be cut into %d parts: 1 to %d, so that none is empty",
            chain->n_blocks, n_parts, chain->n_blocks);
  search s = {.n_blocks = chain->n_blocks, .n_parts = n_parts};
  tri_status status;
  TRI_CALL_GOTO(done, fill_in(&s, chain));
  cut(&s, first);

done:
  TRI_FREE(&s.cost);
  TRI_FREE(&s.bytes);
  TRI_FREE(&s.end_least);
  TRI_FREE(&s.end_most);
  TRI_FREE(&s.n_before);
  TRI_FREE(&s.can);
  return status;
}
