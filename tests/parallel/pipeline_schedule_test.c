// Pipeline schedules: every table passes the checker, holds what its formula says and takes the
// time that its formula says; a table with one thing wrong is caught, by name.
#include "trireme/parallel/pipeline_schedule.h"

#include "test.h"
#include "trireme/base/memory.h"

enum { MOST_STAGES = 8, MOST_MICROBATCHES = 17, MOST_CHUNKS = 3 };

static bool takes_chunks(tri_pipeline_kind kind, int v)
{
  if (kind == TRI_PIPELINE_GPIPE) return true;
  return kind == TRI_PIPELINE_INTERLEAVED ? v >= 2 : v == 1;
}

// Calls `see` with every schedule of the sweep; says which one failed.
static void sweep(void (*see)(const tri_pipeline_schedule *))
{
  for (int kind = 0; kind < TRI_PIPELINE_KIND_COUNT; kind++) {
    for (int p = 1; p <= MOST_STAGES; p++) {
      for (int m = 1; m <= MOST_MICROBATCHES; m++) {
        for (int v = 1; v <= MOST_CHUNKS; v++) {
          if (!takes_chunks((tri_pipeline_kind)kind, v)) continue;
          const int failed_before = test_failed_here;
          tri_pipeline_schedule *schedule = NULL;
          EXPECT_OK(tri_pipeline_schedule_create((tri_pipeline_kind)kind, p, v, m, &schedule));
          if (schedule != NULL) see(schedule);
          tri_pipeline_schedule_destroy(&schedule);
          if (test_failed_here > failed_before)
            printf("   with %s, %d stages, %d chunks, %d micro-batches\n",
                   tri_pipeline_kind_name((tri_pipeline_kind)kind), p, v, m);
        }
      }
    }
  }
}

static void see_check(const tri_pipeline_schedule *schedule)
{
  EXPECT_OK(tri_pipeline_schedule_check(schedule));
}

TEST(every_table_passes)
{
  sweep(see_check);
}

// The most activations alive, counted here and not by the library.
static int measured_peak(const tri_pipeline_stage *stage, int chunk)
{
  int live = 0, peak = 0;
  for (int k = 0; k < stage->n_actions; k++) {
    const tri_pipeline_action *a = &stage->actions[k];
    if (chunk >= 0 && a->chunk != chunk) continue;
    if (a->work == TRI_PIPELINE_FORWARD) live++;
    if (live > peak) peak = live;
    if (a->work == TRI_PIPELINE_BACKWARD || a->work == TRI_PIPELINE_BACKWARD_WEIGHT) live--;
  }
  return peak;
}

static int least(int a, int b)
{
  return a < b ? a : b;
}

static void see_peaks(const tri_pipeline_schedule *schedule)
{
  const int p = schedule->n_stages, m = schedule->n_microbatches, v = schedule->n_virtual;
  for (int s = 0; s < p; s++) {
    const tri_pipeline_stage *stage = &schedule->stages[s];
    EXPECT(stage->peak == measured_peak(stage, -1));
    for (int c = 0; c < v; c++)
      EXPECT(stage->n_slots[c] == measured_peak(stage, c));
    if (schedule->kind == TRI_PIPELINE_GPIPE) EXPECT(stage->peak == m * v);
    if (schedule->kind == TRI_PIPELINE_1F1B) EXPECT(stage->peak == least(m, p - s));
    if (schedule->kind == TRI_PIPELINE_ZB_H1) {
      EXPECT(stage->peak <= least(m, p)); // what stage 0 of 1f1b holds
      EXPECT(stage->weight_peak == least(m, s + 1) && stage->n_weight_slots[0] == least(m, s + 1));
    } else {
      EXPECT(stage->weight_peak == 0 && stage->n_weight_slots[0] == 0);
    }
    // Megatron-LM's memory of interleaved schedules: p v + p - 1 on stage 0, p v being the model.
    if (schedule->kind == TRI_PIPELINE_INTERLEAVED && m % p == 0)
      EXPECT(stage->peak == least(m * v, p * v + p - 1 - 2 * s));
  }
}

TEST(peaks_are_the_formulas)
{
  sweep(see_peaks);
}

static tri_pipeline_cost *same_costs(const tri_pipeline_schedule *schedule, tri_pipeline_cost cost)
{
  const int n = schedule->n_stages * schedule->n_virtual;
  tri_pipeline_cost *costs = NULL;
  EXPECT_OK(TRI_NEW(TRI_MODULE_TEST, n, &costs));
  for (int q = 0; q < n; q++)
    costs[q] = cost;
  return costs;
}

static tri_pipeline_timing *simulate(const tri_pipeline_schedule *schedule, tri_pipeline_cost cost)
{
  tri_pipeline_timing *timing = NULL;
  tri_pipeline_cost *costs = same_costs(schedule, cost);
  if (tri_pipeline_schedule_simulate(schedule, costs, &timing) != TRI_OK) {
    printf("not ok %s: %s\n", test_name, tri_error_message());
    exit(1);
  }
  tri_free(costs);
  return timing;
}

// Costs are whole numbers, so sums are exact; the bubble is a quotient, good to a few roundings.
static void see_bubble(const tri_pipeline_schedule *schedule)
{
  static const tri_pipeline_cost costs[] = {
      {1, 1, 1, 0}, {2, 3, 1, 0}, {5, 2, 2, 0}, {1, 2, 0, 0}, {1, 4, 1, 0}};
  const double p = schedule->n_stages, m = schedule->n_microbatches, v = schedule->n_virtual;
  for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
    const tri_pipeline_cost *c = &costs[i];
    const double work = c->forward + c->backward_input + c->backward_weight;
    tri_pipeline_timing *timing = simulate(schedule, *c);
    for (int s = 0; s < schedule->n_stages; s++)
      EXPECT(timing->busy[s] == m * v * work);
    EXPECT_NEAR(timing->bubble, timing->makespan / (m * v * work) - 1.0, 1e-14);
    double bubble = tri_pipeline_schedule_bubble(schedule, c);
    if (schedule->kind == TRI_PIPELINE_ZB_H1) {
      EXPECT((bubble < 0) == (m < p));
      if (m >= p && i == 0) EXPECT_NEAR(bubble, (p - 1) / m / 3, 1e-15);
    } else if (m >= p || v == 1) {
      EXPECT_NEAR(bubble, (p - 1) / (v * m), 1e-15);
    }
    if (bubble >= 0) EXPECT_NEAR(timing->bubble, bubble, 1e-14 * (1 + p));
    tri_pipeline_timing_destroy(&timing);
  }
}

TEST(bubbles_are_the_formulas)
{
  sweep(see_bubble);
}

// No action begins before what it needs is there, none overlaps the one before it, and time slots
// are begins.
static void see_spans(const tri_pipeline_schedule *schedule)
{
  tri_pipeline_timing *timing = simulate(schedule, (tri_pipeline_cost){1, 1, 1, 0});
  for (int s = 0; s < schedule->n_stages; s++) {
    double free_at = 0;
    for (int k = 0; k < schedule->stages[s].n_actions; k++) {
      const tri_pipeline_action *a = &schedule->stages[s].actions[k];
      const tri_pipeline_span span = timing->spans[s][k];
      EXPECT(span.start >= free_at && span.start == a->time_slot);
      EXPECT(span.end - span.start == (a->work == TRI_PIPELINE_BACKWARD ? 2 : 1));
      free_at = span.end;
      tri_pipeline_transfer from, back;
      if (!tri_pipeline_schedule_receive(schedule, s, a, &from)) continue;
      // The sender's action sends it here, and ends in time.
      bool found = false;
      const tri_pipeline_stage *peer = &schedule->stages[from.peer.stage];
      for (int j = 0; j < peer->n_actions && !found; j++) {
        const tri_pipeline_action *b = &peer->actions[j];
        found = tri_pipeline_schedule_send(schedule, from.peer.stage, b, &back) &&
                b->microbatch == a->microbatch && b->chunk == from.peer.chunk &&
                back.gradient == from.gradient && back.peer.stage == s &&
                back.peer.chunk == a->chunk;
        if (found) EXPECT(timing->spans[from.peer.stage][j].end <= span.start);
      }
      EXPECT(found);
    }
  }
  tri_pipeline_timing_destroy(&timing);
}

TEST(spans_keep_the_order)
{
  sweep(see_spans);
}

static tri_pipeline_schedule *create(tri_pipeline_kind kind, int p, int v, int m)
{
  tri_pipeline_schedule *schedule = NULL;
  EXPECT_OK(tri_pipeline_schedule_create(kind, p, v, m, &schedule));
  return schedule;
}

// A pipeline of two, by hand: F0 on stage 0 ends at 1, is with stage 1 at 1.5, and so on.
TEST(transfers_and_uneven_costs_by_hand)
{
  tri_pipeline_schedule *schedule = create(TRI_PIPELINE_1F1B, 2, 1, 2);
  const tri_pipeline_cost costs[] = {{1, 2, 1, 0.5}, {2, 1, 1, 7}};
  tri_pipeline_timing *timing = NULL;
  EXPECT_OK(tri_pipeline_schedule_simulate(schedule, costs, &timing));
  // stage 0: F0 [0,1) F1 [1,2) B0 [6,9) B1 [10,13); stage 1: F0 [1.5,3.5) B0 [3.5,5.5) F1 B1
  static const double starts[2][4] = {{0, 1, 6, 10}, {1.5, 3.5, 5.5, 7.5}};
  for (int s = 0; s < 2; s++) {
    for (int k = 0; k < 4; k++)
      EXPECT(timing->spans[s][k].start == starts[s][k]);
  }
  EXPECT(timing->makespan == 13 && timing->busy[0] == 8 && timing->busy[1] == 8);
  EXPECT(timing->bubble == 10.0 / 16.0);
  tri_pipeline_timing_destroy(&timing);

  const tri_pipeline_cost bad[] = {{1, 2, 1, 0}, {1, -2, 1, 0}};
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "virtual stage 1: a cost is -2 seconds",
               tri_pipeline_schedule_simulate(schedule, bad, &timing));
  EXPECT(timing == NULL);
  tri_pipeline_schedule_destroy(&schedule);
}

static double makespan(tri_pipeline_kind kind, int v, int m, tri_pipeline_cost cost)
{
  tri_pipeline_schedule *schedule = create(kind, 4, v, m);
  tri_pipeline_timing *timing = simulate(schedule, cost);
  const double seconds = timing->makespan;
  tri_pipeline_timing_destroy(&timing);
  tri_pipeline_schedule_destroy(&schedule);
  return seconds;
}

// Once the pipeline is full, 8 micro-batches more cost the work of 8: the second half of the
// interleaved warm-up hides transfers. In 1f1b a forward and its backward are next to each other on
// two stages, so each micro-batch pays for both transfers.
TEST(interleaving_hides_transfers)
{
  const tri_pipeline_cost cost = {1, 1, 1, 1};
  EXPECT(makespan(TRI_PIPELINE_INTERLEAVED, 2, 32, cost) -
             makespan(TRI_PIPELINE_INTERLEAVED, 2, 24, cost) ==
         8 * 2 * 3);
  EXPECT(makespan(TRI_PIPELINE_1F1B, 1, 32, cost) - makespan(TRI_PIPELINE_1F1B, 1, 24, cost) >
         8 * 3);
}

// The published picture of 1F1B with 4 stages and 8 micro-batches, stages 0 and 3.
TEST(order_is_the_published_one)
{
  static const char *const wanted[] = {"F0F1F2F3B0F4B1F5B2F6B3F7B4B5B6B7", // stage 0
                                       "F0B0F1B1F2B2F3B3F4B4F5B5F6B6F7B7"};
  tri_pipeline_schedule *schedule = create(TRI_PIPELINE_1F1B, 4, 1, 8);
  for (int i = 0; i < 2; i++) {
    char text[64] = "";
    const tri_pipeline_stage *stage = &schedule->stages[3 * i];
    for (int k = 0; k < stage->n_actions; k++)
      snprintf(text + 2 * k, 3, "%c%d", stage->actions[k].work == TRI_PIPELINE_FORWARD ? 'F' : 'B',
               stage->actions[k].microbatch);
    EXPECT(strcmp(text, wanted[i]) == 0);
  }
  tri_pipeline_schedule_destroy(&schedule);
}

TEST(virtual_stages_are_a_chain)
{
  tri_pipeline_schedule *schedule = create(TRI_PIPELINE_INTERLEAVED, 3, 2, 3);
  tri_pipeline_place at = {0, 0}, back;
  EXPECT(!tri_pipeline_schedule_previous(schedule, at, &back));
  for (int q = 0; q < 6; q++) {
    EXPECT(at.chunk * 3 + at.stage == q);
    tri_pipeline_place next;
    const bool more = tri_pipeline_schedule_next(schedule, at, &next);
    EXPECT(more == (q < 5));
    if (!more) break;
    EXPECT(tri_pipeline_schedule_previous(schedule, next, &back) && back.stage == at.stage &&
           back.chunk == at.chunk);
    at = next;
  }
  tri_pipeline_schedule_destroy(&schedule);
}

TEST(refusals_name_the_rule)
{
  tri_pipeline_schedule *schedule = NULL;
  tri_pipeline_kind kind = TRI_PIPELINE_GPIPE;
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "schedule 1f1b has 1 chunk a stage, found 2: choose 1, or",
               tri_pipeline_schedule_create(TRI_PIPELINE_1F1B, 2, 2, 4, &schedule));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "schedule zb-h1 has 1 chunk a stage, found 3",
               tri_pipeline_schedule_create(TRI_PIPELINE_ZB_H1, 2, 3, 4, &schedule));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "at least 2 chunks a stage, found 1: choose 2, or",
               tri_pipeline_schedule_create(TRI_PIPELINE_INTERLEAVED, 2, 1, 4, &schedule));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "found 0, 1 and 4",
               tri_pipeline_schedule_create(TRI_PIPELINE_1F1B, 0, 1, 4, &schedule));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "found 1, 1 and 0",
               tri_pipeline_schedule_create(TRI_PIPELINE_1F1B, 1, 1, 0, &schedule));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "at most 5 micro-batches, found 6",
               tri_pipeline_schedule_create(TRI_PIPELINE_GPIPE, 1024, 1024, 6, &schedule));
  EXPECT_ERROR(
      TRI_ERR_ARGUMENT, "found 2147483647",
      tri_pipeline_schedule_create(TRI_PIPELINE_ZB_H1, 2147483647, 1, 2147483647, &schedule));
  EXPECT(schedule == NULL);
  EXPECT_OK(tri_pipeline_kind_parse("zb-h1", &kind));
  EXPECT(kind == TRI_PIPELINE_ZB_H1);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no schedule is called 1fb1, did you mean 1f1b: there are gpipe",
               tri_pipeline_kind_parse("1fb1", &kind));
}

static void swap(tri_pipeline_stage *stage, int i, int j)
{
  const tri_pipeline_action kept = stage->actions[i];
  stage->actions[i] = stage->actions[j];
  stage->actions[j] = kept;
}

static void drop(tri_pipeline_stage *stage, int k)
{
  stage->n_actions--;
  memmove(&stage->actions[k], &stage->actions[k + 1],
          (size_t)(stage->n_actions - k) * sizeof *stage->actions);
}

static int find(const tri_pipeline_stage *stage, tri_pipeline_work work, int microbatch, int chunk)
{
  for (int k = 0; k < stage->n_actions; k++) {
    const tri_pipeline_action *a = &stage->actions[k];
    if (a->work == work && a->microbatch == microbatch && a->chunk == chunk) return k;
  }
  return -1;
}

#define EXPECT_CAUGHT(part) \
  EXPECT_ERROR(TRI_ERR_ARGUMENT, part, tri_pipeline_schedule_check(schedule))

// 1f1b of 4 stages and 6 micro-batches; stage 1 is F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5.
TEST(incomplete_tables_are_caught)
{
  tri_pipeline_schedule *schedule = create(TRI_PIPELINE_1F1B, 4, 1, 6);
  tri_pipeline_stage *stage = &schedule->stages[1];
  drop(stage, 5);
  EXPECT_CAUGHT("stage 1: backward of micro-batch 1, chunk 0 is missing");
  tri_pipeline_schedule_destroy(&schedule);

  schedule = create(TRI_PIPELINE_1F1B, 4, 1, 6);
  drop(&schedule->stages[2], 0);
  EXPECT_CAUGHT("stage 2: forward of micro-batch 0, chunk 0 is missing");
  tri_pipeline_schedule_destroy(&schedule);

  schedule = create(TRI_PIPELINE_1F1B, 4, 1, 6);
  schedule->stages[1].actions[5] = schedule->stages[1].actions[3];
  EXPECT_CAUGHT("stage 1, action 5 (backward of micro-batch 0, chunk 0) is there twice, at action "
                "3 before");
  schedule->stages[1].actions[5].microbatch = 6;
  EXPECT_CAUGHT("stage 1, action 5: micro-batch 6 is not in [0, 6)");
  tri_pipeline_schedule_destroy(&schedule);

  schedule = create(TRI_PIPELINE_ZB_H1, 3, 1, 4);
  drop(&schedule->stages[2], find(&schedule->stages[2], TRI_PIPELINE_BACKWARD_WEIGHT, 3, 0));
  EXPECT_CAUGHT("stage 2: backward (weight) of micro-batch 3, chunk 0 is missing");
  tri_pipeline_schedule_destroy(&schedule);

  schedule = create(TRI_PIPELINE_ZB_H1, 3, 1, 4);
  stage = &schedule->stages[0];
  stage->actions[find(stage, TRI_PIPELINE_BACKWARD_WEIGHT, 2, 0)].work = TRI_PIPELINE_BACKWARD;
  EXPECT_CAUGHT("stage 0: micro-batch 2, chunk 0 has a whole backward at action");
  tri_pipeline_schedule_destroy(&schedule);
}

TEST(orders_are_caught)
{
  tri_pipeline_schedule *schedule = create(TRI_PIPELINE_1F1B, 4, 1, 6);
  swap(&schedule->stages[3], 2, 3);
  EXPECT_CAUGHT("stage 3, action 2 (backward of micro-batch 1, chunk 0) comes before its forward "
                "at action 3");
  tri_pipeline_schedule_destroy(&schedule);

  schedule = create(TRI_PIPELINE_ZB_H1, 4, 1, 6);
  swap(&schedule->stages[0], 4, 5);
  EXPECT_CAUGHT("comes before its backward (input) at action 5");
  tri_pipeline_schedule_destroy(&schedule);

  // Backwards the other way round, on all stages alike: no deadlock, but other bits.
  schedule = create(TRI_PIPELINE_GPIPE, 2, 1, 3);
  for (int s = 0; s < 2; s++)
    swap(&schedule->stages[s], 3, 4);
  EXPECT_CAUGHT("stage 0, action 4 (backward of micro-batch 0, chunk 0) comes after that of "
                "micro-batch 1 at action 3: the backwards of a chunk must come in ascending order");
  tri_pipeline_schedule_destroy(&schedule);

  schedule = create(TRI_PIPELINE_ZB_H1, 3, 1, 4);
  tri_pipeline_stage *stage = &schedule->stages[1];
  swap(stage, find(stage, TRI_PIPELINE_BACKWARD_WEIGHT, 2, 0),
       find(stage, TRI_PIPELINE_BACKWARD_WEIGHT, 3, 0));
  EXPECT_CAUGHT("(backward (weight) of micro-batch 2, chunk 0) comes after that of micro-batch 3");
  tri_pipeline_schedule_destroy(&schedule);

  // F0 F1 of chunk 0, F0 F1 of chunk 1, B0 of both, and B1 of chunk 0 before that of chunk 1.
  schedule = create(TRI_PIPELINE_GPIPE, 1, 2, 2);
  swap(&schedule->stages[0], 5, 6);
  swap(&schedule->stages[0], 6, 7);
  EXPECT_CAUGHT("stage 0, action 6 (backward of micro-batch 1, chunk 0), the last of its chunk, "
                "comes before the last of chunk 1 at action 7");
  tri_pipeline_schedule_destroy(&schedule);
}

TEST(slots_and_memory_are_caught)
{
  tri_pipeline_schedule *schedule = create(TRI_PIPELINE_1F1B, 4, 1, 6);
  tri_pipeline_stage *stage = &schedule->stages[1];
  stage->actions[2].slot = 1;
  EXPECT_CAUGHT("stage 1, action 2 (forward of micro-batch 2, chunk 0): slot 1 still holds "
                "micro-batch 1");
  stage->actions[2].slot = 3;
  EXPECT_CAUGHT("stage 1, action 2 (forward of micro-batch 2, chunk 0): slot 3 is not in [0, 3)");
  stage->actions[2].slot = 2;
  stage->actions[3].slot = 1;
  EXPECT_CAUGHT("stage 1, action 3 (backward of micro-batch 0, chunk 0): slot 1 does not hold that "
                "micro-batch");
  stage->actions[3].slot = 0;
  stage->actions[3].weight_slot = 0;
  EXPECT_CAUGHT("action 3 (backward of micro-batch 0, chunk 0): weight slot 0 where there is none");
  stage->actions[3].weight_slot = -1;
  stage->peak = 2;
  EXPECT_CAUGHT("stage 1, action 2 (forward of micro-batch 2, chunk 0): 3 activations are alive, "
                "the stated peak is 2");
  stage->peak = 3;
  stage->actions[4].time_slot++;
  EXPECT_CAUGHT("stage 1, action 4 (forward of micro-batch 3, chunk 0): time slot");
  stage->actions[4].time_slot--;
  EXPECT_OK(tri_pipeline_schedule_check(schedule));
  tri_pipeline_schedule_destroy(&schedule);

  schedule = create(TRI_PIPELINE_ZB_H1, 3, 1, 4);
  stage = &schedule->stages[2];
  stage->actions[find(stage, TRI_PIPELINE_BACKWARD_INPUT, 1, 0)].weight_slot = 0;
  EXPECT_CAUGHT("weight slot 0 still holds micro-batch 0");
  stage->actions[find(stage, TRI_PIPELINE_BACKWARD_INPUT, 1, 0)].weight_slot = 1;
  stage->weight_peak = 1;
  EXPECT_CAUGHT("2 backwards are between their halves, the stated peak is 1");
  tri_pipeline_schedule_destroy(&schedule);
}

// Stage 0 wants the gradient of micro-batch 0 before it has sent micro-batch 1, which stage 1 wants
// before it gives the gradient.
TEST(deadlocks_are_named)
{
  tri_pipeline_schedule *schedule = create(TRI_PIPELINE_1F1B, 2, 1, 2);
  tri_pipeline_timing *timing = NULL;
  const tri_pipeline_cost costs[] = {{1, 1, 1, 0}, {1, 1, 1, 0}};
  swap(&schedule->stages[0], 1, 2); // F0 B0 F1 B1
  swap(&schedule->stages[1], 1, 2); // F0 F1 B0 B1
  schedule->stages[1].n_slots[0] = schedule->stages[1].peak = 2;
  for (int k = 0; k < 4; k++)
    schedule->stages[1].actions[k].slot = schedule->stages[1].actions[k].microbatch;
  EXPECT_CAUGHT("deadlock: stage 0, action 1 (backward of micro-batch 0, chunk 0) waits for the "
                "gradient of micro-batch 0 from stage 1, chunk 0, which is at stage 1, action 1 "
                "(forward of micro-batch 1, chunk 0)");
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "deadlock",
               tri_pipeline_schedule_simulate(schedule, costs, &timing));
  EXPECT(timing == NULL);
  tri_pipeline_schedule_destroy(&schedule);
}

// Forwards of one stage the other way round: no deadlock for receives by name, but messages that
// are not received in the order in which they are sent.
TEST(message_orders_are_caught)
{
  tri_pipeline_schedule *schedule = create(TRI_PIPELINE_GPIPE, 2, 1, 3);
  swap(&schedule->stages[1], 1, 2);
  EXPECT_CAUGHT("stage 0, action 1 (forward of micro-batch 1, chunk 0) sends its activations to "
                "stage 1, which receives in another order: stage 1, action 1 (forward of "
                "micro-batch 2, chunk 0)");
  tri_pipeline_schedule_destroy(&schedule);
}

// Two neighbours swapped, anywhere in a table: either caught, or the two do not depend on each
// other, and then the time slots tell.
TEST(every_swap_is_caught)
{
  for (int kind = 0; kind < TRI_PIPELINE_KIND_COUNT; kind++) {
    const int v = kind == TRI_PIPELINE_INTERLEAVED ? 2 : 1;
    tri_pipeline_schedule *schedule = create((tri_pipeline_kind)kind, 4, v, 8);
    for (int s = 0; s < 4; s++) {
      for (int k = 0; k + 1 < schedule->stages[s].n_actions; k++) {
        swap(&schedule->stages[s], k, k + 1);
        EXPECT(tri_pipeline_schedule_check(schedule) == TRI_ERR_ARGUMENT);
        swap(&schedule->stages[s], k, k + 1);
      }
    }
    EXPECT_OK(tri_pipeline_schedule_check(schedule));
    tri_pipeline_schedule_destroy(&schedule);
  }
}

TEST(balance_is_zero)
{
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  TEST_RUN(every_table_passes);
  TEST_RUN(peaks_are_the_formulas);
  TEST_RUN(bubbles_are_the_formulas);
  TEST_RUN(spans_keep_the_order);
  TEST_RUN(transfers_and_uneven_costs_by_hand);
  TEST_RUN(interleaving_hides_transfers);
  TEST_RUN(order_is_the_published_one);
  TEST_RUN(virtual_stages_are_a_chain);
  TEST_RUN(refusals_name_the_rule);
  TEST_RUN(incomplete_tables_are_caught);
  TEST_RUN(orders_are_caught);
  TEST_RUN(slots_and_memory_are_caught);
  TEST_RUN(deadlocks_are_named);
  TEST_RUN(message_orders_are_caught);
  TEST_RUN(every_swap_is_caught);
  TEST_RUN(balance_is_zero);
  return test_end();
}
