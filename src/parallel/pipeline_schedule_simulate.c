// The lists, carried out: a stage goes on as far as it can, then the next stage, until no stage
// can.
//
// Receives wait and sends do not, so whatever can be done can be done in any order, and the times
// do not depend on the order in which stages are looked at.
#include <math.h>
#include <string.h>

#include "parallel/pipeline_schedule_private.h"
#include "trireme/base/memory.h"

typedef struct execution {
  const tri_pipeline_schedule *schedule;
  const tri_pipeline_cost *costs;
  tri_pipeline_timing *timing;
  int *at;       // next action of each stage
  double *ready; // [activations, gradients][virtual stage][micro-batch]: when it is there, -1: not
} execution;

static double *ready_of(const execution *e, bool gradient, tri_pipeline_place place, int microbatch)
{
  const size_t n_places = (size_t)e->schedule->n_stages * (size_t)e->schedule->n_virtual;
  const size_t number = (size_t)place.chunk * (size_t)e->schedule->n_stages + (size_t)place.stage;
  return e->ready + ((gradient ? n_places : 0) + number) * (size_t)e->schedule->n_microbatches +
         microbatch;
}

static double seconds_of(const tri_pipeline_cost *cost, tri_pipeline_work work)
{
  if (work == TRI_PIPELINE_FORWARD) return cost->forward;
  if (work == TRI_PIPELINE_BACKWARD_INPUT) return cost->backward_input;
  if (work == TRI_PIPELINE_BACKWARD_WEIGHT) return cost->backward_weight;
  return cost->backward_input + cost->backward_weight;
}

// What `transfer`, received or sent by `stage`, takes on its way: the cost of the earlier of the
// two virtual stages.
static double seconds_between(const execution *e, tri_pipeline_place place,
                              const tri_pipeline_transfer *transfer)
{
  const tri_pipeline_place peer = transfer->peer;
  if (peer.stage == place.stage) return 0.0;
  const int a = place.chunk * e->schedule->n_stages + place.stage;
  const int b = peer.chunk * e->schedule->n_stages + peer.stage;
  return e->costs[a < b ? a : b].transfer;
}

// Does the next action of a stage; false when it has none or must wait.
static bool advance(execution *e, int s)
{
  const tri_pipeline_stage *stage = &e->schedule->stages[s];
  const int k = e->at[s];
  if (k == stage->n_actions) return false;
  const tri_pipeline_action *a = &stage->actions[k];
  const tri_pipeline_place place = {s, a->chunk};
  tri_pipeline_transfer transfer;
  double start = k == 0 ? 0.0 : e->timing->spans[s][k - 1].end;
  if (tri_pipeline_schedule_receive(e->schedule, s, a, &transfer)) {
    const double sent = *ready_of(e, transfer.gradient, transfer.peer, a->microbatch);
    if (sent < 0) return false;
    const double there = sent + seconds_between(e, place, &transfer);
    if (there > start) start = there;
  }
  const double seconds = seconds_of(&e->costs[a->chunk * e->schedule->n_stages + s], a->work);
  e->timing->spans[s][k] = (tri_pipeline_span){start, start + seconds};
  e->timing->busy[s] += seconds;
  if (a->work != TRI_PIPELINE_BACKWARD_WEIGHT)
    *ready_of(e, a->work != TRI_PIPELINE_FORWARD, place, a->microbatch) = start + seconds;
  e->at[s]++;
  return true;
}

// The first stage that has not come to its end waits for something: what, and where its sender is.
static tri_status check_ended(const execution *e)
{
  const tri_pipeline_schedule *schedule = e->schedule;
  char where[TRI_PIPELINE_WHERE_BYTES], what[TRI_PIPELINE_WHERE_BYTES];
  char sender[TRI_PIPELINE_WHERE_BYTES] = "";
  int s = 0;
  while (s < schedule->n_stages && e->at[s] == schedule->stages[s].n_actions)
    s++;
  if (s == schedule->n_stages) return TRI_OK;
  tri_pipeline_transfer transfer;
  const tri_pipeline_action *a = &schedule->stages[s].actions[e->at[s]];
  TRI_CHECK(tri_pipeline_schedule_receive(schedule, s, a, &transfer), TRI_ERR_INTERNAL,
            "%s waits for nothing", tri_pipeline_where(where, schedule, s, e->at[s]));
  const int peer = transfer.peer.stage;
  const bool over = e->at[peer] == schedule->stages[peer].n_actions;
  if (!over) tri_pipeline_where(sender, schedule, peer, e->at[peer]);
  return TRI_ERROR(TRI_ERR_ARGUMENT, "deadlock: %s waits for the %s, %s%s",
                   tri_pipeline_where(where, schedule, s, e->at[s]),
                   tri_pipeline_what(what, &transfer),
                   over ? "which has come to its end" : "which is at ", sender);
}

static void sum_up(const tri_pipeline_schedule *schedule, tri_pipeline_timing *timing)
{
  double busy = 0;
  for (int s = 0; s < timing->n_stages; s++) {
    const int n = schedule->stages[s].n_actions;
    const double end = n == 0 ? 0.0 : timing->spans[s][n - 1].end;
    if (end > timing->makespan) timing->makespan = end;
    busy += timing->busy[s];
  }
  timing->bubble = busy > 0 ? (timing->makespan * timing->n_stages - busy) / busy : 0.0;
}

static tri_status create_timing(const tri_pipeline_schedule *schedule, tri_pipeline_timing **out)
{
  tri_status status = TRI_OK;
  tri_pipeline_timing *timing = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, 1, &timing));
  timing->n_stages = schedule->n_stages;
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_PARALLEL, schedule->n_stages, &timing->busy));
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_PARALLEL, schedule->n_stages, &timing->spans));
  for (int s = 0; s < schedule->n_stages; s++)
    TRI_CALL_GOTO(err_destroy,
                  TRI_NEW(TRI_MODULE_PARALLEL, schedule->stages[s].n_actions, &timing->spans[s]));
  *out = timing;
  return TRI_OK;

err_destroy:
  tri_pipeline_timing_destroy(&timing);
  return status;
}

void tri_pipeline_timing_destroy(tri_pipeline_timing **timing)
{
  if (*timing == NULL) return;
  for (int s = 0; (*timing)->spans != NULL && s < (*timing)->n_stages; s++)
    tri_free((*timing)->spans[s]);
  tri_free((*timing)->spans);
  tri_free((*timing)->busy);
  TRI_FREE(timing);
}

static tri_status check_costs(const tri_pipeline_cost *costs, int n)
{
  for (int q = 0; q < n; q++) {
    const double values[] = {costs[q].forward, costs[q].backward_input, costs[q].backward_weight,
                             costs[q].transfer};
    for (int i = 0; i < 4; i++)
      TRI_CHECK(isfinite(values[i]) && values[i] >= 0, TRI_ERR_ARGUMENT,
                "virtual stage %d: a cost is %g seconds, and must be finite and not negative", q,
                values[i]);
  }
  return TRI_OK;
}

tri_status tri_pipeline_schedule_simulate(const tri_pipeline_schedule *schedule,
                                          const tri_pipeline_cost *costs, tri_pipeline_timing **out)
{
  tri_status status = TRI_OK;
  execution e = {.schedule = schedule, .costs = costs};
  const int n_places = schedule->n_stages * schedule->n_virtual;
  TRI_CALL(tri_pipeline_check_ranges(schedule));
  TRI_CALL(check_costs(costs, n_places));
  const size_t n_ready = 2 * (size_t)n_places * (size_t)schedule->n_microbatches;
  TRI_CALL_GOTO(err_destroy, create_timing(schedule, &e.timing));
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_PARALLEL, schedule->n_stages, &e.at));
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_PARALLEL, n_ready, &e.ready));
  for (size_t i = 0; i < n_ready; i++)
    e.ready[i] = -1;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < schedule->n_stages; s++) {
      while (advance(&e, s))
        moved = true;
    }
  }
  TRI_CALL_GOTO(err_destroy, check_ended(&e));
  sum_up(schedule, e.timing);
  tri_free(e.ready);
  tri_free(e.at);
  *out = e.timing;
  return TRI_OK;

err_destroy:
  tri_free(e.ready);
  tri_free(e.at);
  tri_pipeline_timing_destroy(&e.timing);
  return status;
}

tri_status tri_pipeline_simulate_units(const tri_pipeline_schedule *schedule,
                                       tri_pipeline_timing **out)
{
  const int n_places = schedule->n_stages * schedule->n_virtual;
  tri_pipeline_cost *costs = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, n_places, &costs));
  for (int q = 0; q < n_places; q++)
    costs[q] = (tri_pipeline_cost){.forward = 1, .backward_input = 1, .backward_weight = 1};
  const tri_status status = tri_pipeline_schedule_simulate(schedule, costs, out);
  tri_free(costs);
  TRI_CALL(status);
  return TRI_OK;
}

double tri_pipeline_schedule_bubble(const tri_pipeline_schedule *schedule,
                                    const tri_pipeline_cost *cost)
{
  const double p = schedule->n_stages, m = schedule->n_microbatches, v = schedule->n_virtual;
  const double f = cost->forward, i = cost->backward_input, w = cost->backward_weight;
  if (schedule->kind == TRI_PIPELINE_ZB_H1)
    return m >= p && w <= f && w <= i ? (p - 1) * (f + i - w) / (m * (f + i + w)) : -1.0;
  return (p - 1 + (m < p ? (v - 1) * (p - m) : 0)) / (v * m);
}
