#include "trireme/parallel/grid.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const axis_names[TRI_GRID_AXES] = {"tensor", "context", "data", "pipeline"};

const char *tri_grid_axis_name(tri_grid_axis axis)
{
  return axis_names[axis];
}

const char *tri_grid_text(const tri_grid *grid, char *buffer)
{
  const char *separator = "";
  int n = snprintf(buffer, TRI_GRID_TEXT_BYTES, "%s", "");
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    if (grid->size[a] == 1) continue;
    n += snprintf(buffer + n, TRI_GRID_TEXT_BYTES - (size_t)n, "%s%s ", separator, axis_names[a]);
    n += grid->size[a] == 0
             ? snprintf(buffer + n, TRI_GRID_TEXT_BYTES - (size_t)n, "auto")
             : snprintf(buffer + n, TRI_GRID_TEXT_BYTES - (size_t)n, "%d", grid->size[a]);
    separator = " x ";
  }
  if (n == 0) n += snprintf(buffer, TRI_GRID_TEXT_BYTES, "one rank");
  if (grid->n_virtual != 1)
    snprintf(buffer + n, TRI_GRID_TEXT_BYTES - (size_t)n, " (virtual_stages %d)", grid->n_virtual);
  return buffer;
}

// --- rules --------------------------------------------------------------------------------------

// No overflow for numbers of which the earlier product is at most 2^31: a larger one stays there.
static int64_t times(int64_t product, int factor)
{
  return product > INT_MAX ? product : product * factor;
}

// Ranks that the axes make, data left out where it is auto.
static int64_t ranks_of(const tri_grid *grid)
{
  int64_t product = 1;
  for (int a = 0; a < TRI_GRID_AXES; a++)
    product = times(product, grid->size[a] == 0 ? 1 : grid->size[a]);
  return product;
}

static bool uses_all_ranks(const tri_grid_limits *limits, const tri_grid *grid)
{
  return ranks_of(grid) == limits->n_ranks;
}

static void say_ranks(const tri_grid_limits *limits, const tri_grid *grid, char *text, size_t size)
{
  const bool is_auto = grid->size[TRI_GRID_DATA] == 0;
  const int64_t made = ranks_of(grid);
  if (made > INT_MAX)
    snprintf(text, size, "%d started, and the axes make more than %d", limits->n_ranks, INT_MAX);
  else if (is_auto)
    snprintf(text, size, "%d started, which is no multiple of %lld: start a multiple",
             limits->n_ranks, (long long)made);
  else
    snprintf(text, size, "%d started, and the axes make %lld: start %lld", limits->n_ranks,
             (long long)made, (long long)made);
}

static bool tensor_divides_heads(const tri_grid_limits *limits, const tri_grid *grid)
{
  return limits->n_heads % grid->size[TRI_GRID_TENSOR] == 0;
}

static void say_heads(const tri_grid_limits *limits, const tri_grid *grid, char *text, size_t size)
{
  snprintf(text, size, "%d does not divide %d", grid->size[TRI_GRID_TENSOR], limits->n_heads);
}

static bool tensor_has_vocabulary(const tri_grid_limits *limits, const tri_grid *grid)
{
  return grid->size[TRI_GRID_TENSOR] <= limits->vocabulary;
}

static void say_vocabulary(const tri_grid_limits *limits, const tri_grid *grid, char *text,
                           size_t size)
{
  snprintf(text, size, "%d is more than %d", grid->size[TRI_GRID_TENSOR], limits->vocabulary);
}

// Zig-zag: rank i of c holds the i-th and the i-th last of 2c equal parts, so that all have the
// same number of pairs of tokens that see each other.
static bool context_divides_tokens(const tri_grid_limits *limits, const tri_grid *grid)
{
  const int c = grid->size[TRI_GRID_CONTEXT];
  return c == 1 || limits->T % (2 * (int64_t)c) == 0;
}

static void say_context(const tri_grid_limits *limits, const tri_grid *grid, char *text,
                        size_t size)
{
  snprintf(text, size, "%lld does not divide %d", 2 * (long long)grid->size[TRI_GRID_CONTEXT],
           limits->T);
}

static bool sequence_divides_tokens(const tri_grid_limits *limits, const tri_grid *grid)
{
  const int t = grid->size[TRI_GRID_TENSOR];
  return !grid->sequence || t == 1 || limits->T % ((int64_t)t * grid->size[TRI_GRID_CONTEXT]) == 0;
}

static void say_sequence(const tri_grid_limits *limits, const tri_grid *grid, char *text,
                         size_t size)
{
  snprintf(text, size, "%lld does not divide %d",
           (long long)grid->size[TRI_GRID_TENSOR] * grid->size[TRI_GRID_CONTEXT], limits->T);
}

static bool context_is_there(const tri_grid_limits *limits, const tri_grid *grid)
{
  return grid->size[TRI_GRID_CONTEXT] == 1 || !limits->no_context;
}

static void say_no_context(const tri_grid_limits *limits, const tri_grid *grid, char *out,
                           size_t size)
{
  (void)limits;
  snprintf(out, size, "context %d is asked for", grid->size[TRI_GRID_CONTEXT]);
}

static bool pipeline_has_blocks(const tri_grid_limits *limits, const tri_grid *grid)
{
  return (int64_t)grid->size[TRI_GRID_PIPELINE] * grid->n_virtual <= limits->n_blocks;
}

static void say_blocks(const tri_grid_limits *limits, const tri_grid *grid, char *text, size_t size)
{
  const int p = grid->size[TRI_GRID_PIPELINE], v = grid->n_virtual;
  snprintf(text, size, "%d x %d is more than the %d of the model", p, v, limits->n_blocks);
}

// What tri_pipeline_schedule_create takes.
static int least_virtual(tri_pipeline_kind schedule)
{
  return schedule == TRI_PIPELINE_INTERLEAVED ? 2 : 1;
}

static int most_virtual(tri_pipeline_kind schedule)
{
  return schedule == TRI_PIPELINE_1F1B || schedule == TRI_PIPELINE_ZB_H1 ? 1 : INT_MAX;
}

static bool schedule_takes_virtual(const tri_grid_limits *limits, const tri_grid *grid)
{
  (void)limits;
  return grid->n_virtual >= least_virtual(grid->schedule) &&
         grid->n_virtual <= most_virtual(grid->schedule);
}

static void say_virtual(const tri_grid_limits *limits, const tri_grid *grid, char *text,
                        size_t size)
{
  (void)limits;
  snprintf(text, size, "schedule %s with virtual_stages %d", tri_pipeline_kind_name(grid->schedule),
           grid->n_virtual);
}

typedef struct grid_rule {
  const char *name;
  bool (*holds)(const tri_grid_limits *limits, const tri_grid *grid);
  void (*say)(const tri_grid_limits *limits, const tri_grid *grid, char *text, size_t size);
} grid_rule;

static const grid_rule rules[] = {
    {"ranks = tensor x context x data x pipeline", uses_all_ranks, say_ranks},
    {"tensor divides the heads", tensor_divides_heads, say_heads},
    {"tensor <= vocabulary", tensor_has_vocabulary, say_vocabulary},
    {"2 x context divides the tokens of a sample", context_divides_tokens, say_context},
    {"with sequence, tensor x context divides the tokens of a sample", sequence_divides_tokens,
     say_sequence},
    {"context 1, where attention is not split over a sample", context_is_there, say_no_context},
    {"pipeline x virtual_stages <= blocks", pipeline_has_blocks, say_blocks},
    {"interleaved has 2 or more virtual_stages, 1f1b and zb-h1 have 1", schedule_takes_virtual,
     say_virtual},
};

static const grid_rule *first_broken(const tri_grid_limits *limits, const tri_grid *grid)
{
  for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
    if (!rules[r].holds(limits, grid)) return &rules[r];
  }
  return NULL;
}

const char *tri_grid_broken_rule(const tri_grid_limits *limits, const tri_grid *grid)
{
  const grid_rule *rule = first_broken(limits, grid);
  return rule == NULL ? NULL : rule->name;
}

// --- the nearest grids --------------------------------------------------------------------------

// How far a grid is from the wish; smaller is nearer, the first number counts most.
typedef struct distance {
  int n_changed, crossing;
  int64_t difference;
} distance;

static distance distance_of(const tri_grid_limits *limits, const tri_grid *wish,
                            const tri_grid *grid)
{
  distance d = {.crossing = tri_grid_crossing_groups(grid, limits->ranks_per_node)};
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    if (wish->size[a] == 0) continue;
    d.n_changed += grid->size[a] != wish->size[a];
    d.difference += llabs((long long)grid->size[a] - wish->size[a]);
  }
  d.n_changed += grid->n_virtual != wish->n_virtual;
  d.difference += llabs((long long)grid->n_virtual - wish->n_virtual);
  return d;
}

// Grids are tried in ascending order of their numbers, so that of two that are as near as each
// other the first one tried stays first.
static bool nearer(distance a, distance b)
{
  if (a.n_changed != b.n_changed) return a.n_changed < b.n_changed;
  if (a.difference != b.difference) return a.difference < b.difference;
  return a.crossing < b.crossing;
}

typedef struct search {
  const tri_grid_limits *limits;
  const tri_grid *wish;
  tri_grid *nearest;
  distance distances[TRI_GRID_NEAREST];
  int n;
} search;

static void consider(search *s, const tri_grid *grid)
{
  if (first_broken(s->limits, grid) != NULL) return;
  const distance d = distance_of(s->limits, s->wish, grid);
  int place = s->n;
  while (place > 0 && nearer(d, s->distances[place - 1]))
    place--;
  if (place == TRI_GRID_NEAREST) return;
  if (s->n < TRI_GRID_NEAREST) s->n++;
  for (int i = s->n - 1; i > place; i--) {
    s->nearest[i] = s->nearest[i - 1];
    s->distances[i] = s->distances[i - 1];
  }
  s->nearest[place] = *grid;
  s->distances[place] = d;
}

// The number nearest to the wish that rules on virtual stages allow, at least 1.
static int nearest_virtual(const search *s, int pipeline)
{
  const int least = least_virtual(s->wish->schedule);
  int most = s->limits->n_blocks / pipeline;
  if (most > most_virtual(s->wish->schedule)) most = most_virtual(s->wish->schedule);
  const int wanted = s->wish->n_virtual < most ? s->wish->n_virtual : most;
  return wanted < least ? least : wanted;
}

int tri_grid_nearest(const tri_grid_limits *limits, const tri_grid *wish, tri_grid *nearest)
{
  search s = {.limits = limits, .wish = wish, .nearest = nearest};
  tri_grid grid = *wish;
  const int n = limits->n_ranks;
  for (int tensor = 1; tensor <= n; tensor++) {
    if (n % tensor != 0) continue;
    for (int context = 1; context <= n / tensor; context++) {
      if (n / tensor % context != 0) continue;
      const int rest = n / tensor / context;
      for (int data = 1; data <= rest; data++) {
        if (rest % data != 0) continue;
        grid.size[TRI_GRID_TENSOR] = tensor;
        grid.size[TRI_GRID_CONTEXT] = context;
        grid.size[TRI_GRID_DATA] = data;
        grid.size[TRI_GRID_PIPELINE] = rest / data;
        grid.n_virtual = nearest_virtual(&s, rest / data);
        consider(&s, &grid);
      }
    }
  }
  return s.n;
}

// --- a wish becomes a grid ----------------------------------------------------------------------

static tri_status check_ranges(const tri_grid_limits *limits, const tri_grid *wish)
{
  TRI_CHECK(limits->n_ranks >= 1 && limits->ranks_per_node >= 0 && limits->n_blocks >= 1 &&
                limits->n_heads >= 1 && limits->vocabulary >= 1 && limits->T >= 1,
            TRI_ERR_ARGUMENT,
            "a grid wants ranks, blocks, heads, a vocabulary and tokens, found %d, %d, %d, %d and "
            "%d, with %d ranks on a node",
            limits->n_ranks, limits->n_blocks, limits->n_heads, limits->vocabulary, limits->T,
            limits->ranks_per_node);
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    const int least = a == TRI_GRID_DATA ? 0 : 1;
    TRI_CHECK(wish->size[a] >= least, TRI_ERR_ARGUMENT, "%s wants at least %d rank%s, found %d",
              axis_names[a], least, least == 1 ? "" : "s", wish->size[a]);
  }
  TRI_CHECK(wish->n_virtual >= 1, TRI_ERR_ARGUMENT, "virtual_stages wants at least 1, found %d",
            wish->n_virtual);
  TRI_CHECK(wish->zero >= 0 && wish->zero <= 3, TRI_ERR_ARGUMENT,
            "zero wants 0, 1, 2 or 3, found %d", wish->zero);
  TRI_CHECK(wish->schedule < TRI_PIPELINE_KIND_COUNT, TRI_ERR_ARGUMENT,
            "there is no schedule of number %d", (int)wish->schedule);
  return TRI_OK;
}

static tri_status refuse(const tri_grid_limits *limits, const tri_grid *wish, const grid_rule *rule)
{
  tri_grid nearest[TRI_GRID_NEAREST];
  char wished[TRI_GRID_TEXT_BYTES], reason[160], near[TRI_GRID_NEAREST][TRI_GRID_TEXT_BYTES];
  rule->say(limits, wish, reason, sizeof reason);
  const int n = tri_grid_nearest(limits, wish, nearest);
  for (int i = 0; i < TRI_GRID_NEAREST; i++) {
    near[i][0] = '\0';
    if (i < n) (void)tri_grid_text(&nearest[i], near[i]);
  }
  return TRI_ERROR(TRI_ERR_CONFIG, "layout %s breaks the rule \"%s\": %s; %s %d rank%s%s%s%s%s%s%s",
                   tri_grid_text(wish, wished), rule->name, reason,
                   n == 0 ? "no layout is legal for" : "nearest layouts of", limits->n_ranks,
                   limits->n_ranks == 1 ? "" : "s", n > 0 ? ": " : "", near[0],
                   n > 1 ? ", or " : "", near[1], n > 2 ? ", or " : "", near[2]);
}

tri_status tri_grid_plan(const tri_grid_limits *limits, const tri_grid *wish, tri_grid *out)
{
  TRI_CALL(check_ranges(limits, wish));
  tri_grid grid = *wish;
  const int64_t others = ranks_of(wish);
  // What does not divide stays auto, and breaks the first rule.
  if (grid.size[TRI_GRID_DATA] == 0 && others <= limits->n_ranks && limits->n_ranks % others == 0)
    grid.size[TRI_GRID_DATA] = (int)(limits->n_ranks / others);
  const grid_rule *rule = first_broken(limits, &grid);
  if (rule != NULL) return refuse(limits, wish, rule);
  *out = grid;
  return TRI_OK;
}

// --- of a grid ----------------------------------------------------------------------------------

static bool has_axis(unsigned axes, int axis)
{
  return (axes & TRI_GRID_SET(axis)) != 0;
}

// A number whose digits, the first axis fastest, are the coordinates on the axes of a set.
static int number_on(const tri_grid *grid, unsigned axes, int rank)
{
  int at[TRI_GRID_AXES], number = 0;
  tri_grid_coordinates(grid, rank, at);
  for (int a = TRI_GRID_AXES - 1; a >= 0; a--) {
    if (has_axis(axes, a)) number = number * grid->size[a] + at[a];
  }
  return number;
}

int tri_grid_ranks(const tri_grid *grid)
{
  return (int)ranks_of(grid);
}

void tri_grid_coordinates(const tri_grid *grid, int rank, int *at)
{
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    at[a] = rank % grid->size[a];
    rank /= grid->size[a];
  }
}

int tri_grid_rank(const tri_grid *grid, const int *at)
{
  int rank = 0;
  for (int a = TRI_GRID_AXES - 1; a >= 0; a--)
    rank = rank * grid->size[a] + at[a];
  return rank;
}

int tri_grid_group_size(const tri_grid *grid, unsigned axes)
{
  int size = 1;
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    if (has_axis(axes, a)) size *= grid->size[a];
  }
  return size;
}

int tri_grid_group(const tri_grid *grid, unsigned axes, int rank)
{
  return number_on(grid, ~axes, rank);
}

int tri_grid_group_place(const tri_grid *grid, unsigned axes, int rank)
{
  return number_on(grid, axes, rank);
}

int tri_grid_crossing_groups(const tri_grid *grid, int ranks_per_node)
{
  const int t = grid->size[TRI_GRID_TENSOR], n_groups = tri_grid_ranks(grid) / t;
  int n = 0;
  for (int g = 0; ranks_per_node > 0 && g < n_groups; g++)
    n += g * t / ranks_per_node != (g * t + t - 1) / ranks_per_node;
  return n;
}
