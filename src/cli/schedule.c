// trireme info schedule KIND …: the timetable of a pipeline schedule, checked and simulated.
#include "cli/schedule.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "trireme/base/memory.h"

// A line of text has a column for the shortest action; with more columns than these nobody reads
// it.
enum { MOST_COLUMNS = 2000 };

typedef struct wishes {
  tri_pipeline_kind kind;
  int n_stages, n_virtual, n_microbatches;
  tri_pipeline_cost cost;
  const char *svg; // NULL: none
} wishes;

static tri_status read_count(const char *option, const char *text, int *out)
{
  long long value = 0;
  TRI_CHECK(text != NULL, TRI_ERR_USAGE, "info schedule wants %s: how many there are", option);
  TRI_CALL(tri_cli_integer(option, text, 1, INT_MAX, &value));
  *out = (int)value;
  return TRI_OK;
}

// What the library finds wrong with a choice is wrong with the command line.
static tri_status as_usage(tri_status status)
{
  if (status != TRI_ERR_ARGUMENT) return status;
  return TRI_ERROR(TRI_ERR_USAGE, "%s", tri_error_message());
}

static tri_status read_wishes(int argc, char **argv, wishes *out)
{
  const double most_seconds = 1e9;
  const char *stages = NULL, *microbatches = NULL, *chunks = "1";
  const char *forward = "1", *input = "1", *weight = "1", *transfer = "0";
  const tri_cli_option options[] = {
      {"--stages", "-p", &stages, NULL},        {"--microbatches", "-m", &microbatches, NULL},
      {"--virtual", "-v", &chunks, NULL},       {"--forward", NULL, &forward, NULL},
      {"--backward-input", NULL, &input, NULL}, {"--backward-weight", NULL, &weight, NULL},
      {"--transfer", NULL, &transfer, NULL},    {"--svg", NULL, &out->svg, NULL},
  };
  int n_words = 0;
  TRI_CALL(tri_cli_parse(options, sizeof options / sizeof options[0], argc, argv, &n_words));
  TRI_CHECK(n_words == 1, TRI_ERR_USAGE,
            "info schedule wants one of gpipe, 1f1b, interleaved and zb-h1, found %d words",
            n_words);
  TRI_CALL(as_usage(tri_pipeline_kind_parse(argv[0], &out->kind)));
  TRI_CALL(read_count("--stages", stages, &out->n_stages));
  TRI_CALL(read_count("--microbatches", microbatches, &out->n_microbatches));
  TRI_CALL(read_count("--virtual", chunks, &out->n_virtual));
  TRI_CALL(tri_cli_number("--forward", forward, 0, most_seconds, &out->cost.forward));
  TRI_CALL(tri_cli_number("--backward-input", input, 0, most_seconds, &out->cost.backward_input));
  TRI_CALL(
      tri_cli_number("--backward-weight", weight, 0, most_seconds, &out->cost.backward_weight));
  TRI_CALL(tri_cli_number("--transfer", transfer, 0, most_seconds, &out->cost.transfer));
  return TRI_OK;
}

const char *tri_cli_timetable_letter(tri_pipeline_work work)
{
  return work == TRI_PIPELINE_FORWARD ? "F" : work == TRI_PIPELINE_BACKWARD_WEIGHT ? "W" : "B";
}

double tri_cli_timetable_unit(const tri_cli_timetable *table)
{
  const tri_pipeline_cost *c = &table->cost;
  const bool halves = table->schedule->kind == TRI_PIPELINE_ZB_H1;
  const double all[] = {c->forward, halves ? c->backward_input : 0, halves ? c->backward_weight : 0,
                        halves ? 0 : c->backward_input + c->backward_weight};
  double unit = 0;
  for (int i = 0; i < 4; i++) {
    if (all[i] > 0 && (unit == 0 || all[i] < unit)) unit = all[i];
  }
  return unit;
}

static int digits_of(int n)
{
  return snprintf(NULL, 0, "%d", n);
}

// One line: in each column what the stage does in the middle of it, its name where that begins.
// A column is no longer than the shortest action, so none falls between two middles.
static void print_row(const tri_cli_timetable *table, int s, double unit, int n_columns)
{
  const tri_pipeline_stage *stage = &table->schedule->stages[s];
  const tri_pipeline_span *spans = table->timing->spans[s];
  const bool chunks = table->schedule->n_virtual > 1;
  const int width = 1 + digits_of(table->schedule->n_microbatches - 1) +
                    (chunks ? 1 + digits_of(table->schedule->n_virtual - 1) : 0);
  int k = 0, shown = -1;
  for (int column = 0; column < n_columns; column++) {
    const double middle = (column + 0.5) * unit;
    char name[64] = ".";
    while (k < stage->n_actions && spans[k].end <= middle)
      k++;
    if (k < stage->n_actions && spans[k].start <= middle) {
      const tri_pipeline_action *a = &stage->actions[k];
      const char *letter = tri_cli_timetable_letter(a->work);
      if (shown == k)
        snprintf(name, sizeof name, "--");
      else if (chunks)
        snprintf(name, sizeof name, "%s%d.%d", letter, a->microbatch, a->chunk);
      else
        snprintf(name, sizeof name, "%s%d", letter, a->microbatch);
      shown = k;
    }
    const bool last = column + 1 == n_columns;
    printf("%-*s%s", last ? 0 : width, name, last ? "\n" : " ");
  }
}

static void print_facts(const tri_cli_timetable *table)
{
  const tri_pipeline_schedule *schedule = table->schedule;
  const double formula = tri_pipeline_schedule_bubble(schedule, &table->cost);
  printf("schedule   %s: %d stage%s, %d micro-batch%s, %d chunk%s a stage\n",
         tri_pipeline_kind_name(schedule->kind), schedule->n_stages,
         schedule->n_stages == 1 ? "" : "s", schedule->n_microbatches,
         schedule->n_microbatches == 1 ? "" : "es", schedule->n_virtual,
         schedule->n_virtual == 1 ? "" : "s");
  printf("cost       of a chunk: forward %g s, backward %g + %g s, transfer %g s\n",
         table->cost.forward, table->cost.backward_input, table->cost.backward_weight,
         table->cost.transfer);
  printf("time       %g s\n", table->timing->makespan);
  printf("bubble     %.1f %% of the work", 100 * table->timing->bubble);
  if (formula >= 0) printf(", %.1f %% by formula, without transfers", 100 * formula);
  printf("\n");
}

static void print_table(const tri_cli_timetable *table)
{
  const tri_pipeline_schedule *schedule = table->schedule;
  const bool halves = schedule->kind == TRI_PIPELINE_ZB_H1;
  const double unit = tri_cli_timetable_unit(table);
  // The last column whose middle is before the end.
  const double n_columns = unit > 0 ? ceil(table->timing->makespan / unit - 0.5) : 0;
  const bool drawn = n_columns >= 1 && n_columns <= MOST_COLUMNS;
  if (drawn)
    printf("a column   %g s; F forward, B backward%s, . idle\n\n", unit,
           halves ? " (input), W backward (weight)" : "");
  else if (unit > 0)
    printf("timetable  not drawn: %.0f columns of %g s, the most are %d; --svg FILE draws it\n\n",
           n_columns, unit, MOST_COLUMNS);
  else
    printf("timetable  not drawn: no action takes any time\n\n");
  printf("stage  kept%s%s\n", halves ? "  between" : "", drawn ? "  timetable" : "");
  for (int s = 0; s < schedule->n_stages; s++) {
    printf("%5d %5d", s, schedule->stages[s].peak);
    if (halves) printf(" %8d", schedule->stages[s].weight_peak);
    if (drawn) {
      printf("  ");
      print_row(table, s, unit, (int)n_columns);
    } else {
      printf("\n");
    }
  }
  printf("\nkept: the most activations alive at once, in micro-batches of a chunk\n");
  if (halves) printf("between: the most backwards that are between their halves\n");
}

static tri_status show(const wishes *want, const tri_pipeline_schedule *schedule)
{
  tri_status status = TRI_OK;
  tri_cli_timetable table = {.schedule = schedule, .cost = want->cost};
  tri_pipeline_timing *timing = NULL;
  tri_pipeline_cost *costs = NULL;
  const int n = schedule->n_stages * schedule->n_virtual;
  TRI_CALL(tri_pipeline_schedule_check(schedule));
  TRI_CALL(TRI_NEW(TRI_MODULE_CLI, n, &costs));
  for (int q = 0; q < n; q++)
    costs[q] = want->cost;
  TRI_CALL_GOTO(done, tri_pipeline_schedule_simulate(schedule, costs, &timing));
  table.timing = timing;
  if (want->svg != NULL) TRI_CALL_GOTO(done, tri_cli_timetable_svg(&table, want->svg));
  print_facts(&table);
  print_table(&table);
done:
  tri_pipeline_timing_destroy(&timing);
  tri_free(costs);
  return status;
}

tri_status tri_cli_schedule(int argc, char **argv)
{
  wishes want = {0};
  tri_pipeline_schedule *schedule = NULL;
  TRI_CALL(read_wishes(argc, argv, &want));
  TRI_CALL(as_usage(tri_pipeline_schedule_create(want.kind, want.n_stages, want.n_virtual,
                                                 want.n_microbatches, &schedule)));
  const tri_status status = show(&want, schedule);
  tri_pipeline_schedule_destroy(&schedule);
  TRI_CALL(status);
  return TRI_OK;
}
