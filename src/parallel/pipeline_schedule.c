// All schedules here are one construction with three numbers.
//
// The micro-batches are cut into groups. Forwards visit them group by group: the whole group on
// chunk 0, the whole group on chunk 1, and so on; backwards likewise from the last chunk down. A
// stage begins with `warm_up` forwards, then does a backward after each forward, then the backwards
// that are left. Backwards are whole, or halves of which the second one comes `lag` backwards after
// the first.
//
//                groups                    warm_up of stage s                       lag
//   gpipe        1                         all                                      whole
//   1f1b         any, there is one chunk   n_stages - s - 1                         whole
//   interleaved  n_microbatches/n_stages   2 (n_stages - s - 1)                     whole
//                                            + (n_virtual - 1) * the largest group
//   zb-h1        any, there is one chunk   n_stages - s - 1                         s
//
// Interleaved: Narayanan et al., arXiv 2104.04473, section 2.2, with equal groups of n_stages. A
// Twice n_stages - s - 1, where once would do, so that a transfer between stages has the time of
// another action to arrive. A group below n_stages makes stages wait, or deadlocks, because its
// first micro-batch would come round before the last has left; groups above cost activations,
// nothing else. So there are as many groups as leave none below, as equal as can be, larger ones
// first.
//
// ZB-H1: Qi et al., arXiv 2401.10241, section 2.3: stage s lets its weight halves wait for s input
// halves, so that every stage holds what stage 0 of 1F1B holds.
#include "trireme/parallel/pipeline_schedule.h"

#include <stdio.h>
#include <string.h>

#include "parallel/pipeline_schedule_private.h"
#include "trireme/base/memory.h"
#include "trireme/base/words.h"

// Room for 4096 micro-batches on 1024 stages; an error above, not a machine out of memory.
static const int64_t most_actions = (int64_t)1 << 24;

static const char *const kind_names[] = {"gpipe", "1f1b", "interleaved", "zb-h1"};

const char *tri_pipeline_kind_name(tri_pipeline_kind kind)
{
  return kind_names[kind];
}

const char *tri_pipeline_work_name(tri_pipeline_work work)
{
  static const char *const names[] = {"forward", "backward", "backward (input)",
                                      "backward (weight)"};
  return names[work];
}

tri_status tri_pipeline_kind_parse(const char *name, tri_pipeline_kind *out)
{
  for (int k = 0; k < TRI_PIPELINE_KIND_COUNT; k++) {
    if (strcmp(name, kind_names[k]) == 0) {
      *out = (tri_pipeline_kind)k;
      return TRI_OK;
    }
  }
  const int nearest = tri_word_nearest(name, kind_names, TRI_PIPELINE_KIND_COUNT);
  return TRI_ERROR(TRI_ERR_ARGUMENT,
                   "no schedule is called %s%s%s: there are gpipe, 1f1b, interleaved and zb-h1",
                   name, nearest < 0 ? "" : ", did you mean ",
                   nearest < 0 ? "" : kind_names[nearest]);
}

static tri_status check_choice(tri_pipeline_kind kind, int n_stages, int n_virtual,
                               int n_microbatches)
{
  TRI_CHECK(n_stages >= 1 && n_virtual >= 1 && n_microbatches >= 1, TRI_ERR_ARGUMENT,
            "a schedule wants at least 1 stage, 1 chunk a stage and 1 micro-batch, found %d, %d "
            "and %d",
            n_stages, n_virtual, n_microbatches);
  TRI_CHECK(n_virtual == 1 || (kind != TRI_PIPELINE_1F1B && kind != TRI_PIPELINE_ZB_H1),
            TRI_ERR_ARGUMENT,
            "schedule %s has 1 chunk a stage, found %d: choose 1, or schedule interleaved",
            kind_names[kind], n_virtual);
  TRI_CHECK(n_virtual > 1 || kind != TRI_PIPELINE_INTERLEAVED, TRI_ERR_ARGUMENT,
            "schedule interleaved wants at least 2 chunks a stage, found 1: choose 2, or schedule "
            "1f1b");
  const int64_t most_passes = most_actions / 3 / n_stages / n_virtual;
  TRI_CHECK(n_microbatches <= most_passes, TRI_ERR_ARGUMENT,
            "%d stages of %d chunks can have tables of at most %lld micro-batches, found %d",
            n_stages, n_virtual, (long long)most_passes, n_microbatches);
  return TRI_OK;
}

// The three numbers, for one stage.
typedef struct recipe {
  int n_groups, warm_up, lag;
  bool halves;
} recipe;

static recipe recipe_of(const tri_pipeline_schedule *schedule, int stage)
{
  const int p = schedule->n_stages, m = schedule->n_microbatches, v = schedule->n_virtual;
  const int behind = p - stage - 1; // stages that come after
  recipe r = {.n_groups = 1, .warm_up = behind};
  if (schedule->kind == TRI_PIPELINE_GPIPE) r.warm_up = m * v;
  if (schedule->kind == TRI_PIPELINE_INTERLEAVED) {
    r.n_groups = m < p ? 1 : m / p;
    r.warm_up = 2 * behind + (v - 1) * ((m + r.n_groups - 1) / r.n_groups);
  }
  if (schedule->kind == TRI_PIPELINE_ZB_H1) {
    r.halves = true;
    r.lag = stage < m ? stage : m;
  }
  if (r.warm_up > m * v) r.warm_up = m * v;
  return r;
}

// One micro-batch on one chunk.
typedef struct visit {
  int microbatch, chunk;
} visit;

// The order of forwards; that of backwards has chunk n_virtual - 1 - c where this has c.
static void fill_visits(const tri_pipeline_schedule *schedule, int n_groups, visit *visits)
{
  const int m = schedule->n_microbatches;
  int first = 0, n = 0;
  for (int g = 0; g < n_groups; g++) {
    const int size = m / n_groups + (g < m % n_groups ? 1 : 0);
    for (int c = 0; c < schedule->n_virtual; c++) {
      for (int i = first; i < first + size; i++)
        visits[n++] = (visit){i, c};
    }
    first += size;
  }
}

static void append(tri_pipeline_stage *stage, tri_pipeline_work work, visit at)
{
  stage->actions[stage->n_actions++] = (tri_pipeline_action){
      .work = work, .microbatch = at.microbatch, .chunk = at.chunk, .weight_slot = -1};
}

static void fill_actions(const tri_pipeline_schedule *schedule, recipe r, const visit *visits,
                         tri_pipeline_stage *stage)
{
  const int n = schedule->n_microbatches * schedule->n_virtual, last = schedule->n_virtual - 1;
  for (int k = 0; k < r.warm_up; k++)
    append(stage, TRI_PIPELINE_FORWARD, visits[k]);
  for (int k = 0; k < n + r.lag; k++) {
    if (r.warm_up + k < n) append(stage, TRI_PIPELINE_FORWARD, visits[r.warm_up + k]);
    if (k < n) {
      const visit at = {visits[k].microbatch, last - visits[k].chunk};
      append(stage, r.halves ? TRI_PIPELINE_BACKWARD_INPUT : TRI_PIPELINE_BACKWARD, at);
    }
    if (r.halves && k >= r.lag && k - r.lag < n) {
      const visit at = {visits[k - r.lag].microbatch, last - visits[k - r.lag].chunk};
      append(stage, TRI_PIPELINE_BACKWARD_WEIGHT, at);
    }
  }
  // While forwards are left, each comes before a backward and, behind the lag, a weight half.
  const int most = r.warm_up + 1 + r.lag;
  stage->peak = most < n ? most : n;
  stage->weight_peak = !r.halves ? 0 : r.lag + 1 < n ? r.lag + 1 : n;
}

// On a chunk, micro-batches are kept and released in ascending order, so slots go round: with as
// many of them as are ever held at once, micro-batch i finds that i - n_slots has left.
// `live` has two numbers for every chunk.
static void assign_slots(const tri_pipeline_schedule *schedule, tri_pipeline_stage *stage,
                         int *live)
{
  int *between = live + schedule->n_virtual;
  memset(live, 0, 2 * (size_t)schedule->n_virtual * sizeof *live);
  for (int k = 0; k < stage->n_actions; k++) {
    const tri_pipeline_work work = stage->actions[k].work;
    const int c = stage->actions[k].chunk;
    live[c] += work == TRI_PIPELINE_FORWARD;
    between[c] += work == TRI_PIPELINE_BACKWARD_INPUT;
    if (live[c] > stage->n_slots[c]) stage->n_slots[c] = live[c];
    if (between[c] > stage->n_weight_slots[c]) stage->n_weight_slots[c] = between[c];
    live[c] -= work == TRI_PIPELINE_BACKWARD || work == TRI_PIPELINE_BACKWARD_WEIGHT;
    between[c] -= work == TRI_PIPELINE_BACKWARD_WEIGHT;
  }
  for (int k = 0; k < stage->n_actions; k++) {
    tri_pipeline_action *a = &stage->actions[k];
    a->slot = a->microbatch % stage->n_slots[a->chunk];
    if (a->work == TRI_PIPELINE_BACKWARD_INPUT || a->work == TRI_PIPELINE_BACKWARD_WEIGHT)
      a->weight_slot = a->microbatch % stage->n_weight_slots[a->chunk];
  }
}

static tri_status build_stages(tri_pipeline_schedule *schedule)
{
  tri_status status = TRI_OK;
  const int n = schedule->n_microbatches * schedule->n_virtual;
  visit *visits = NULL;
  int *live = NULL;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, n, &visits));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, 2 * (size_t)schedule->n_virtual, &live));
  fill_visits(schedule, recipe_of(schedule, 0).n_groups, visits);
  for (int s = 0; s < schedule->n_stages; s++) {
    tri_pipeline_stage *stage = &schedule->stages[s];
    const recipe r = recipe_of(schedule, s);
    const size_t n_actions = (size_t)n * (r.halves ? 3 : 2);
    TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, n_actions, &stage->actions));
    TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, schedule->n_virtual, &stage->n_slots));
    TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, schedule->n_virtual, &stage->n_weight_slots));
    fill_actions(schedule, r, visits, stage);
    assign_slots(schedule, stage, live);
  }
done:
  tri_free(live);
  tri_free(visits);
  return status;
}

// Begins of actions that take 1 each are whole numbers, exact in a double.
static tri_status assign_time_slots(tri_pipeline_schedule *schedule)
{
  tri_pipeline_timing *timing = NULL;
  TRI_CALL(tri_pipeline_simulate_units(schedule, &timing));
  for (int s = 0; s < schedule->n_stages; s++) {
    for (int k = 0; k < schedule->stages[s].n_actions; k++)
      schedule->stages[s].actions[k].time_slot = (int)timing->spans[s][k].start;
  }
  tri_pipeline_timing_destroy(&timing);
  return TRI_OK;
}

tri_status tri_pipeline_schedule_create(tri_pipeline_kind kind, int n_stages, int n_virtual,
                                        int n_microbatches, tri_pipeline_schedule **out)
{
  tri_status status = TRI_OK;
  tri_pipeline_schedule *schedule = NULL;
  TRI_CALL(check_choice(kind, n_stages, n_virtual, n_microbatches));
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, 1, &schedule));
  *schedule = (tri_pipeline_schedule){kind, n_stages, n_virtual, n_microbatches, NULL};
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_PARALLEL, n_stages, &schedule->stages));
  TRI_CALL_GOTO(err_destroy, build_stages(schedule));
  TRI_CALL_GOTO(err_destroy, assign_time_slots(schedule));
  *out = schedule;
  return TRI_OK;

err_destroy:
  tri_pipeline_schedule_destroy(&schedule);
  return status;
}

void tri_pipeline_schedule_destroy(tri_pipeline_schedule **schedule)
{
  if (*schedule == NULL) return;
  for (int s = 0; (*schedule)->stages != NULL && s < (*schedule)->n_stages; s++) {
    tri_free((*schedule)->stages[s].actions);
    tri_free((*schedule)->stages[s].n_slots);
    tri_free((*schedule)->stages[s].n_weight_slots);
  }
  tri_free((*schedule)->stages);
  TRI_FREE(schedule);
}

bool tri_pipeline_schedule_previous(const tri_pipeline_schedule *schedule, tri_pipeline_place place,
                                    tri_pipeline_place *out)
{
  if (place.stage == 0 && place.chunk == 0) return false;
  *out = place.stage > 0 ? (tri_pipeline_place){place.stage - 1, place.chunk}
                         : (tri_pipeline_place){schedule->n_stages - 1, place.chunk - 1};
  return true;
}

bool tri_pipeline_schedule_next(const tri_pipeline_schedule *schedule, tri_pipeline_place place,
                                tri_pipeline_place *out)
{
  const int last = schedule->n_stages - 1;
  if (place.stage == last && place.chunk == schedule->n_virtual - 1) return false;
  *out = place.stage < last ? (tri_pipeline_place){place.stage + 1, place.chunk}
                            : (tri_pipeline_place){0, place.chunk + 1};
  return true;
}

bool tri_pipeline_schedule_receive(const tri_pipeline_schedule *schedule, int stage,
                                   const tri_pipeline_action *action, tri_pipeline_transfer *out)
{
  const tri_pipeline_place place = {stage, action->chunk};
  out->gradient = action->work != TRI_PIPELINE_FORWARD;
  out->microbatch = action->microbatch;
  if (action->work == TRI_PIPELINE_FORWARD)
    return tri_pipeline_schedule_previous(schedule, place, &out->peer);
  return tri_pipeline_gives_gradient(action->work) &&
         tri_pipeline_schedule_next(schedule, place, &out->peer);
}

bool tri_pipeline_schedule_send(const tri_pipeline_schedule *schedule, int stage,
                                const tri_pipeline_action *action, tri_pipeline_transfer *out)
{
  const tri_pipeline_place place = {stage, action->chunk};
  out->gradient = action->work != TRI_PIPELINE_FORWARD;
  out->microbatch = action->microbatch;
  if (action->work == TRI_PIPELINE_FORWARD)
    return tri_pipeline_schedule_next(schedule, place, &out->peer);
  return tri_pipeline_gives_gradient(action->work) &&
         tri_pipeline_schedule_previous(schedule, place, &out->peer);
}
