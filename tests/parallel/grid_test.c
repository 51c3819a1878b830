// The grid of ranks: for every number of ranks up to 32, and every grid of them, the mapping is a
// bijection with the strides that the header states, groups part the ranks; what is refused breaks
// a rule, and what is proposed instead is legal, and nearest by an own search.
#include "trireme/parallel/grid.h"

#include "test.h"

enum { MOST_RANKS = 32 };

static const tri_grid one_rank = {
    .size = {1, 1, 1, 1}, .n_virtual = 1, .schedule = TRI_PIPELINE_1F1B};
static const tri_grid_limits roomy = {.n_ranks = 1,
                                      .n_blocks = 64,
                                      .n_heads = 9 * 5 * 7 * 32,
                                      .vocabulary = 50257,
                                      .T = 64 * 9 * 5 * 7 * 2};

// Every grid of n ranks, in ascending order of tensor, context, data.
static void each_grid(int n, void (*see)(const tri_grid *))
{
  for (int t = 1; t <= n; t++) {
    for (int c = 1; c <= n; c++) {
      for (int d = 1; d <= n; d++) {
        if (n % (t * c * d) != 0) continue;
        tri_grid grid = one_rank;
        grid.size[TRI_GRID_TENSOR] = t;
        grid.size[TRI_GRID_CONTEXT] = c;
        grid.size[TRI_GRID_DATA] = d;
        grid.size[TRI_GRID_PIPELINE] = n / (t * c * d);
        const int failed_before = test_failed_here;
        see(&grid);
        if (test_failed_here > failed_before)
          printf("   with %d x %d x %d x %d\n", t, c, d, n / (t * c * d));
      }
    }
  }
}

static void see_mapping(const tri_grid *grid)
{
  const int t = grid->size[TRI_GRID_TENSOR], c = grid->size[TRI_GRID_CONTEXT];
  const int d = grid->size[TRI_GRID_DATA], p = grid->size[TRI_GRID_PIPELINE];
  EXPECT(tri_grid_ranks(grid) == t * c * d * p);
  int next = 0;
  for (int l = 0; l < p; l++) {
    for (int k = 0; k < d; k++) {
      for (int j = 0; j < c; j++) {
        for (int i = 0; i < t; i++) {
          const int wanted[TRI_GRID_AXES] = {i, j, k, l};
          int at[TRI_GRID_AXES];
          tri_grid_coordinates(grid, next, at);
          EXPECT(memcmp(at, wanted, sizeof at) == 0);
          EXPECT(tri_grid_rank(grid, wanted) == next);
          next++;
        }
      }
    }
  }
}

// Whether two ranks differ only along the axes of a set.
static bool together(const tri_grid *grid, unsigned axes, int a, int b)
{
  int at_a[TRI_GRID_AXES], at_b[TRI_GRID_AXES];
  tri_grid_coordinates(grid, a, at_a);
  tri_grid_coordinates(grid, b, at_b);
  for (int axis = 0; axis < TRI_GRID_AXES; axis++) {
    if ((axes & TRI_GRID_SET(axis)) == 0 && at_a[axis] != at_b[axis]) return false;
  }
  return true;
}

// Groups are numbered by their first ranks, places count up.
static void see_groups(const tri_grid *grid)
{
  const int n = tri_grid_ranks(grid);
  for (unsigned axes = 0; axes < 1u << TRI_GRID_AXES; axes++) {
    int n_groups = 0, members[MOST_RANKS] = {0};
    for (int rank = 0; rank < n; rank++) {
      const int group = tri_grid_group(grid, axes, rank);
      EXPECT(group >= 0 && group <= n_groups);
      if (group < 0 || group > n_groups) return;
      if (group == n_groups) n_groups++;
      EXPECT(tri_grid_group_place(grid, axes, rank) == members[group]);
      members[group]++;
      for (int other = 0; other < rank; other++)
        EXPECT(together(grid, axes, rank, other) == (tri_grid_group(grid, axes, other) == group));
    }
    for (int g = 0; g < n_groups; g++)
      EXPECT(members[g] == tri_grid_group_size(grid, axes));
  }
}

TEST(ranks_and_coordinates_are_a_bijection)
{
  for (int n = 1; n <= MOST_RANKS; n++)
    each_grid(n, see_mapping);
}

TEST(groups_part_the_ranks)
{
  for (int n = 1; n <= MOST_RANKS; n++)
    each_grid(n, see_groups);
}

static void see_nodes(const tri_grid *grid)
{
  const int n = tri_grid_ranks(grid);
  EXPECT(tri_grid_crossing_groups(grid, 0) == 0);
  for (int per_node = 1; per_node <= n; per_node++) {
    int wanted = 0;
    for (int first = 0; first < n; first += grid->size[TRI_GRID_TENSOR]) {
      bool crosses = false;
      for (int i = 0; i < grid->size[TRI_GRID_TENSOR]; i++)
        crosses = crosses || (first + i) / per_node != first / per_node;
      wanted += crosses;
    }
    EXPECT(tri_grid_crossing_groups(grid, per_node) == wanted);
    if (per_node % grid->size[TRI_GRID_TENSOR] == 0) EXPECT(wanted == 0);
  }
}

TEST(tensor_groups_lie_inside_nodes_where_they_can)
{
  for (int n = 1; n <= MOST_RANKS; n++)
    each_grid(n, see_nodes);
}

static tri_grid wish_of(int tensor, int context, int data, int pipeline)
{
  tri_grid wish = one_rank;
  const int size[TRI_GRID_AXES] = {tensor, context, data, pipeline};
  memcpy(wish.size, size, sizeof size);
  return wish;
}

// With enough of everything each grid of the started ranks is legal, with data auto too, and it is
// what comes out.
static void see_legal(const tri_grid *grid)
{
  tri_grid_limits limits = roomy;
  limits.n_ranks = tri_grid_ranks(grid);
  tri_grid wish = *grid, out = {0};
  EXPECT(tri_grid_broken_rule(&limits, grid) == NULL);
  EXPECT_OK(tri_grid_plan(&limits, &wish, &out));
  EXPECT(memcmp(out.size, grid->size, sizeof out.size) == 0);
  wish.size[TRI_GRID_DATA] = 0;
  EXPECT_OK(tri_grid_plan(&limits, &wish, &out));
  EXPECT(memcmp(out.size, grid->size, sizeof out.size) == 0);
  // In place, and the next number of ranks is another number.
  EXPECT_OK(tri_grid_plan(&limits, &wish, &wish));
  EXPECT(memcmp(wish.size, grid->size, sizeof wish.size) == 0);
  limits.n_ranks++;
  EXPECT_ERROR(TRI_ERR_CONFIG, "ranks = tensor x context x data x pipeline",
               tri_grid_plan(&limits, &wish, &out));
}

TEST(grids_of_all_ranks_are_legal_where_there_is_room)
{
  for (int n = 1; n <= 24; n++) {
    if (n != 11 && n != 13 && n != 17 && n != 19 && n != 22 && n != 23) each_grid(n, see_legal);
  }
}

// --- what is refused ----------------------------------------------------------------------------

static const tri_grid_limits small = {
    .n_ranks = 8, .ranks_per_node = 8, .n_blocks = 6, .n_heads = 4, .vocabulary = 257, .T = 32};

typedef struct rule_case {
  tri_grid wish;
  tri_grid_limits limits;
  const char *rule; // NULL: legal
} rule_case;

static tri_grid with(tri_grid grid, tri_pipeline_kind schedule, int n_virtual, int zero, bool seq)
{
  grid.schedule = schedule;
  grid.n_virtual = n_virtual;
  grid.zero = zero;
  grid.sequence = seq;
  return grid;
}

static tri_grid_limits limits_of(int n_ranks, int n_blocks, int n_heads, int vocabulary, int T)
{
  return (tri_grid_limits){n_ranks, 0, n_blocks, n_heads, vocabulary, T, false};
}

// Such a job gets no proposal that it cannot take.
TEST(jobs_that_cannot_split_samples_are_offered_none)
{
  tri_grid_limits limits = limits_of(8, 6, 4, 257, 32);
  tri_grid nearest[TRI_GRID_NEAREST],
      wish = {.size = {1, 4, 2, 1}, .n_virtual = 1, .schedule = TRI_PIPELINE_1F1B};
  EXPECT(tri_grid_broken_rule(&limits, &wish) == NULL);
  limits.no_context = true;
  EXPECT(strcmp(tri_grid_broken_rule(&limits, &wish),
                "context 1, where attention is not split over a sample") == 0);
  const int n = tri_grid_nearest(&limits, &wish, nearest);
  EXPECT(n > 0);
  for (int i = 0; i < n; i++)
    EXPECT(nearest[i].size[TRI_GRID_CONTEXT] == 1);
}

TEST(each_rule_is_broken_where_it_says)
{
  const char *const ranks = "ranks = tensor x context x data x pipeline";
  const char *const heads = "tensor divides the heads";
  const char *const vocabulary = "tensor <= vocabulary";
  const char *const context = "2 x context divides the tokens of a sample";
  const char *const tokens = "with sequence, tensor x context divides the tokens of a sample";
  const char *const blocks = "pipeline x virtual_stages <= blocks";
  const char *const chunks = "interleaved has 2 or more virtual_stages, 1f1b and zb-h1 have 1";
  const tri_pipeline_kind inter = TRI_PIPELINE_INTERLEAVED, plain = TRI_PIPELINE_1F1B;
  const rule_case cases[] = {
      {wish_of(1, 1, 8, 1), small, NULL},
      {wish_of(1, 1, 7, 1), small, ranks},
      {wish_of(2, 1, 0, 2), small, NULL},
      {wish_of(3, 1, 0, 1), small, ranks},
      {wish_of(1, 1, 0, 16), small, ranks},
      {wish_of(2147483647, 2147483647, 2147483647, 2147483647), small, ranks},
      {wish_of(4, 1, 2, 1), small, NULL},
      {wish_of(8, 1, 1, 1), small, heads},
      {wish_of(3, 1, 2, 1), limits_of(6, 6, 4, 257, 32), heads},
      {wish_of(4, 1, 1, 1), limits_of(4, 6, 4, 4, 32), NULL},
      {wish_of(4, 1, 1, 1), limits_of(4, 6, 4, 3, 32), vocabulary},
      {wish_of(1, 8, 1, 1), small, NULL},
      {wish_of(1, 8, 1, 1), limits_of(8, 6, 4, 257, 8), context},
      {wish_of(1, 3, 1, 1), limits_of(3, 6, 4, 257, 18), NULL},
      {wish_of(1, 3, 1, 1), limits_of(3, 6, 4, 257, 15), context},
      {wish_of(1, 1, 8, 1), limits_of(8, 6, 4, 257, 33), NULL},
      {with(wish_of(4, 1, 2, 1), plain, 1, 0, true), limits_of(8, 6, 4, 257, 30), tokens},
      {with(wish_of(4, 1, 2, 1), plain, 1, 0, false), limits_of(8, 6, 4, 257, 30), NULL},
      {with(wish_of(2, 1, 4, 1), plain, 1, 0, true), limits_of(8, 6, 4, 257, 30), NULL},
      {with(wish_of(4, 2, 1, 1), plain, 1, 0, true), limits_of(8, 6, 4, 257, 16), NULL},
      {with(wish_of(4, 2, 1, 1), plain, 1, 0, true), limits_of(8, 6, 4, 257, 12), tokens},
      {with(wish_of(1, 1, 8, 1), plain, 1, 0, true), limits_of(8, 6, 4, 257, 31), NULL},
      {wish_of(1, 1, 1, 6), limits_of(6, 6, 4, 257, 32), NULL},
      {wish_of(1, 1, 1, 6), limits_of(6, 5, 4, 257, 32), blocks},
      {with(wish_of(1, 1, 4, 2), inter, 3, 0, false), small, NULL},
      {with(wish_of(1, 1, 4, 2), inter, 4, 0, false), small, blocks},
      {with(wish_of(1, 1, 8, 1), inter, 2147483647, 0, false), small, blocks},
      {with(wish_of(1, 1, 4, 2), inter, 1, 0, false), small, chunks},
      {with(wish_of(1, 1, 4, 2), plain, 2, 0, false), small, chunks},
      {with(wish_of(1, 1, 4, 2), TRI_PIPELINE_ZB_H1, 2, 0, false), small, chunks},
      {with(wish_of(1, 1, 4, 2), TRI_PIPELINE_GPIPE, 3, 0, false), small, NULL},
      {with(wish_of(4, 1, 1, 2), plain, 1, 3, false), small, NULL},
      {with(wish_of(1, 1, 4, 2), plain, 1, 2, false), small, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const rule_case *c = &cases[i];
    const int failed_before = test_failed_here;
    tri_grid out = {.size = {-1, -1, -1, -1}};
    char named[160];
    snprintf(named, sizeof named, "breaks the rule \"%s\": ", c->rule == NULL ? "" : c->rule);
    if (c->rule == NULL) {
      EXPECT_OK(tri_grid_plan(&c->limits, &c->wish, &out));
      EXPECT(tri_grid_broken_rule(&c->limits, &out) == NULL);
      EXPECT(out.zero == c->wish.zero && out.n_virtual == c->wish.n_virtual);
    } else {
      EXPECT_ERROR(TRI_ERR_CONFIG, named, tri_grid_plan(&c->limits, &c->wish, &out));
      EXPECT(out.size[0] == -1);
    }
    if (test_failed_here > failed_before)
      printf("   in case %d: %s\n", (int)i, tri_error_message());
  }
}

// The rule on virtual stages is that of the schedules.
TEST(virtual_stages_are_those_that_schedules_take)
{
  tri_grid_limits limits = roomy;
  limits.n_ranks = 4;
  for (int kind = 0; kind < TRI_PIPELINE_KIND_COUNT; kind++) {
    for (int v = 1; v <= 4; v++) {
      const tri_grid grid = with(wish_of(1, 1, 1, 4), (tri_pipeline_kind)kind, v, 0, false);
      tri_pipeline_schedule *schedule = NULL;
      const bool made = tri_pipeline_schedule_create(grid.schedule, 4, v, 3, &schedule) == TRI_OK;
      tri_pipeline_schedule_destroy(&schedule);
      EXPECT((tri_grid_broken_rule(&limits, &grid) == NULL) == made);
    }
  }
}

TEST(messages_have_rule_numbers_and_remedy)
{
  const struct {
    tri_grid wish;
    tri_grid_limits limits;
    const char *message;
  } cases[] = {
      {wish_of(3, 1, 0, 1), limits_of(6, 6, 4, 257, 32),
       "layout tensor 3 x data auto breaks the rule \"tensor divides the heads\": 3 does not "
       "divide 4; nearest layouts of 6 ranks: tensor 2 x data 3, or data 6, or data 3 x pipeline "
       "2"},
      {wish_of(2, 1, 3, 2), limits_of(8, 6, 4, 257, 32),
       "layout tensor 2 x data 3 x pipeline 2 breaks the rule \"ranks = tensor x context x data x "
       "pipeline\": 8 started, and the axes make 12: start 12; nearest layouts of 8 ranks: "
       "tensor 2 x data 2 x pipeline 2, or data 4 x pipeline 2, or tensor 2 x data 4"},
      {wish_of(2, 1, 0, 4), limits_of(12, 6, 4, 257, 32),
       "layout tensor 2 x data auto x pipeline 4 breaks the rule \"ranks = tensor x context x data "
       "x pipeline\": 12 started, which is no multiple of 8: start a multiple; nearest "
       "layouts of 12 ranks: data 3 x pipeline 4, or tensor 2 x data 2 x pipeline 3, or tensor 2 x "
       "pipeline 6"},
      {with(wish_of(1, 1, 0, 4), TRI_PIPELINE_INTERLEAVED, 2, 1, false),
       limits_of(4, 6, 4, 257, 32),
       "layout data auto x pipeline 4 (virtual_stages 2) breaks the rule \"pipeline x "
       "virtual_stages <= blocks\": 4 x 2 is more than the 6 of the model; nearest layouts of 4 "
       "ranks: data 2 x pipeline 2 (virtual_stages 2), or data 4 (virtual_stages 2), or context 2 "
       "x "
       "pipeline 2 (virtual_stages 2)"},
      {with(wish_of(1, 1, 0, 2), TRI_PIPELINE_ZB_H1, 3, 0, false), limits_of(4, 6, 4, 257, 32),
       "layout data auto x pipeline 2 (virtual_stages 3) breaks the rule \"interleaved has 2 or "
       "more virtual_stages, 1f1b and zb-h1 have 1\": schedule zb-h1 with virtual_stages 3; "
       "nearest layouts of 4 ranks: data 2 x pipeline 2, or data 4, or context 2 x "
       "pipeline 2"},
      {wish_of(1, 2, 0, 1), limits_of(2, 1, 1, 257, 33),
       "layout context 2 x data auto breaks the rule \"2 x context divides the tokens of a "
       "sample\": 4 does not divide 33; nearest layouts of 2 ranks: data 2"},
      {wish_of(2, 1, 1, 1), limits_of(1, 6, 4, 257, 32),
       "layout tensor 2 breaks the rule \"ranks = tensor x context x data x pipeline\": 1 "
       "started, and the axes make 2: start 2; nearest layouts of 1 rank: one rank"},
      {with(wish_of(1, 1, 0, 1), TRI_PIPELINE_INTERLEAVED, 1, 0, false),
       limits_of(3, 1, 1, 257, 32),
       "layout data auto breaks the rule \"interleaved has 2 or more virtual_stages, 1f1b and "
       "zb-h1 have 1\": schedule interleaved with virtual_stages 1; no layout is legal for 3 "
       "ranks"},
      {wish_of(65536, 65536, 65536, 65536), limits_of(2, 6, 4, 257, 32),
       "layout tensor 65536 x context 65536 x data 65536 x pipeline 65536 breaks the rule \"ranks "
       "= "
       "tensor x context x data x pipeline\": 2 started, and the axes make more than 2147483647; "
       "nearest layouts of 2 ranks: pipeline 2, or data 2, or context 2"},
      {with(wish_of(2, 1, 0, 1), TRI_PIPELINE_1F1B, 1, 0, true), limits_of(4, 6, 4, 257, 33),
       "layout tensor 2 x data auto breaks the rule \"with sequence, tensor x context divides the "
       "tokens of a sample\": 2 does not divide 33; nearest layouts of 4 ranks: data 4, or data 2 "
       "x pipeline 2, or pipeline 4"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tri_grid out;
    EXPECT(tri_grid_plan(&cases[i].limits, &cases[i].wish, &out) == TRI_ERR_CONFIG);
    EXPECT(strcmp(tri_error_message(), cases[i].message) == 0);
    if (strcmp(tri_error_message(), cases[i].message) != 0)
      printf("   wanted %s\n   found  %s\n", cases[i].message, tri_error_message());
  }
}

TEST(numbers_out_of_range_are_refused)
{
  tri_grid out;
  tri_grid wish = wish_of(0, 1, 1, 1);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "tensor wants at least 1 rank, found 0",
               tri_grid_plan(&small, &wish, &out));
  wish = wish_of(1, 1, -1, 1);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "data wants at least 0 ranks, found -1",
               tri_grid_plan(&small, &wish, &out));
  wish = with(wish_of(1, 1, 8, 1), TRI_PIPELINE_1F1B, 0, 0, false);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "virtual_stages wants at least 1, found 0",
               tri_grid_plan(&small, &wish, &out));
  wish = with(wish_of(1, 1, 8, 1), TRI_PIPELINE_1F1B, 1, 4, false);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "zero wants 0, 1, 2 or 3, found 4",
               tri_grid_plan(&small, &wish, &out));
  wish = with(wish_of(1, 1, 8, 1), TRI_PIPELINE_KIND_COUNT, 1, 0, false);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no schedule of number 4", tri_grid_plan(&small, &wish, &out));
  const tri_grid_limits none = limits_of(0, 1, 1, 1, 1);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "found 0, 1, 1, 1 and 1", tri_grid_plan(&none, &one_rank, &out));
}

// --- what is proposed ---------------------------------------------------------------------------

// The distance as the header states it, least first.
static void measure(const tri_grid_limits *limits, const tri_grid *wish, const tri_grid *grid,
                    int64_t key[8])
{
  memset(key, 0, 8 * sizeof *key);
  const int wanted[5] = {wish->size[0], wish->size[1], wish->size[2], wish->size[3],
                         wish->n_virtual};
  const int found[5] = {grid->size[0], grid->size[1], grid->size[2], grid->size[3],
                        grid->n_virtual};
  for (int i = 0; i < 5; i++) {
    if (i == TRI_GRID_DATA && wanted[i] == 0) continue;
    key[0] += wanted[i] != found[i];
    key[1] += abs(wanted[i] - found[i]);
  }
  key[2] = tri_grid_crossing_groups(grid, limits->ranks_per_node);
  for (int a = 0; a < TRI_GRID_AXES; a++)
    key[3 + a] = grid->size[a];
}

static int compare(const int64_t a[8], const int64_t b[8])
{
  for (int i = 0; i < 8; i++) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

static struct {
  const tri_grid_limits *limits;
  const tri_grid *wish;
  int64_t floor[8]; // only what is farther
  tri_grid best;
  int64_t key[8];
  bool found;
} next;

// The nearest number of virtual stages that makes these axes legal, by trying all.
static void see_candidate(const tri_grid *axes)
{
  tri_grid grid = *axes, best;
  int least = -1;
  grid.schedule = next.wish->schedule;
  grid.sequence = next.wish->sequence;
  for (grid.n_virtual = 1; grid.n_virtual <= next.limits->n_blocks; grid.n_virtual++) {
    const int far = abs(grid.n_virtual - next.wish->n_virtual);
    if (tri_grid_broken_rule(next.limits, &grid) != NULL || (least >= 0 && far >= least)) continue;
    least = far;
    best = grid;
  }
  int64_t key[8];
  if (least < 0) return;
  measure(next.limits, next.wish, &best, key);
  if (compare(key, next.floor) <= 0 || (next.found && compare(key, next.key) >= 0)) return;
  next.found = true;
  next.best = best;
  memcpy(next.key, key, sizeof key);
}

// One after another, each time by a search through all.
static void check_nearest(const tri_grid_limits *limits, const tri_grid *wish)
{
  tri_grid nearest[TRI_GRID_NEAREST];
  const int n = tri_grid_nearest(limits, wish, nearest);
  next.limits = limits;
  next.wish = wish;
  memset(next.floor, 0, sizeof next.floor);
  next.floor[0] = -1;
  for (int i = 0; i < TRI_GRID_NEAREST; i++) {
    next.found = false;
    each_grid(limits->n_ranks, see_candidate);
    EXPECT(next.found == (i < n));
    if (!next.found || i >= n) return;
    EXPECT(tri_grid_broken_rule(limits, &nearest[i]) == NULL);
    EXPECT(memcmp(nearest[i].size, next.best.size, sizeof next.best.size) == 0);
    EXPECT(nearest[i].n_virtual == next.best.n_virtual);
    memcpy(next.floor, next.key, sizeof next.key);
  }
}

TEST(proposals_are_legal_and_nearest)
{
  static const int tensors[] = {1, 2, 3, 8}, contexts[] = {1, 2, 5}, datas[] = {0, 1, 3};
  static const int pipelines[] = {1, 2, 4, 7}, chunks[] = {1, 2, 5};
  for (int n = 1; n <= MOST_RANKS; n++) {
    tri_grid_limits limits = {n, 4, 9, 12, 6, 48, false};
    for (int k = 0; k < 4 * 3 * 3 * 4 * 3; k++) {
      // Not all of them for each number of ranks: each third.
      if ((k + n) % 3 != 0) continue;
      tri_grid wish =
          wish_of(tensors[k % 4], contexts[k / 4 % 3], datas[k / 12 % 3], pipelines[k / 36 % 4]);
      wish.n_virtual = chunks[k / 144];
      wish.schedule = (tri_pipeline_kind)((k + n) / 3 % TRI_PIPELINE_KIND_COUNT);
      wish.sequence = k % 2 == 0;
      const int failed_before = test_failed_here;
      check_nearest(&limits, &wish);
      if (test_failed_here > failed_before) printf("   with %d ranks, wish %d\n", n, k);
    }
  }
}

TEST(text_has_what_is_not_one)
{
  char text[TRI_GRID_TEXT_BYTES];
  EXPECT(strcmp(tri_grid_text(&one_rank, text), "one rank") == 0);
  const tri_grid all = with(wish_of(2, 3, 4, 5), TRI_PIPELINE_GPIPE, 6, 0, false);
  EXPECT(strcmp(tri_grid_text(&all, text),
                "tensor 2 x context 3 x data 4 x pipeline 5 (virtual_stages 6)") == 0);
  const tri_grid largest = with(wish_of(2147483647, 2147483647, 2147483647, 2147483647),
                                TRI_PIPELINE_GPIPE, 2147483647, 0, false);
  EXPECT(strlen(tri_grid_text(&largest, text)) == 106);
  EXPECT(strcmp(tri_grid_axis_name(TRI_GRID_CONTEXT), "context") == 0);
}

int main(void)
{
  TEST_RUN(ranks_and_coordinates_are_a_bijection);
  TEST_RUN(groups_part_the_ranks);
  TEST_RUN(tensor_groups_lie_inside_nodes_where_they_can);
  TEST_RUN(grids_of_all_ranks_are_legal_where_there_is_room);
  TEST_RUN(jobs_that_cannot_split_samples_are_offered_none);
  TEST_RUN(each_rule_is_broken_where_it_says);
  TEST_RUN(virtual_stages_are_those_that_schedules_take);
  TEST_RUN(messages_have_rule_numbers_and_remedy);
  TEST_RUN(numbers_out_of_range_are_refused);
  TEST_RUN(proposals_are_legal_and_nearest);
  TEST_RUN(text_has_what_is_not_one);
  return test_end();
}
