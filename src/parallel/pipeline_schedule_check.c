// A table is proven in the order in which its errors are easiest to understand: numbers in range,
// everything there once, forwards before backwards, the promised orders, slots, memory, messages,
// and at last the lists carried out.
#include <stdio.h>
#include <string.h>

#include "parallel/pipeline_schedule_private.h"
#include "trireme/base/memory.h"

const char *tri_pipeline_where(char where[TRI_PIPELINE_WHERE_BYTES],
                               const tri_pipeline_schedule *schedule, int stage, int at)
{
  const tri_pipeline_action *a = &schedule->stages[stage].actions[at];
  snprintf(where, TRI_PIPELINE_WHERE_BYTES, "stage %d, action %d (%s of micro-batch %d, chunk %d)",
           stage, at, tri_pipeline_work_name(a->work), a->microbatch, a->chunk);
  return where;
}

const char *tri_pipeline_what(char what[TRI_PIPELINE_WHERE_BYTES],
                              const tri_pipeline_transfer *transfer)
{
  snprintf(what, TRI_PIPELINE_WHERE_BYTES, "%s of micro-batch %d from stage %d, chunk %d",
           transfer->gradient ? "gradient" : "activations", transfer->microbatch,
           transfer->peer.stage, transfer->peer.chunk);
  return what;
}

static tri_status check_action_ranges(const tri_pipeline_schedule *schedule, int s, int k)
{
  const tri_pipeline_action *a = &schedule->stages[s].actions[k];
  const int work = (int)a->work;
  TRI_CHECK(work >= TRI_PIPELINE_FORWARD && work <= TRI_PIPELINE_BACKWARD_WEIGHT, TRI_ERR_ARGUMENT,
            "stage %d, action %d: there is no work %d", s, k, work);
  TRI_CHECK(a->microbatch >= 0 && a->microbatch < schedule->n_microbatches, TRI_ERR_ARGUMENT,
            "stage %d, action %d: micro-batch %d is not in [0, %d)", s, k, a->microbatch,
            schedule->n_microbatches);
  TRI_CHECK(a->chunk >= 0 && a->chunk < schedule->n_virtual, TRI_ERR_ARGUMENT,
            "stage %d, action %d: chunk %d is not in [0, %d)", s, k, a->chunk, schedule->n_virtual);
  return TRI_OK;
}

tri_status tri_pipeline_check_ranges(const tri_pipeline_schedule *schedule)
{
  TRI_CHECK(schedule->n_stages >= 1 && schedule->n_virtual >= 1 && schedule->n_microbatches >= 1,
            TRI_ERR_ARGUMENT,
            "a schedule has at least 1 stage, chunk and micro-batch, found %d, %d and %d",
            schedule->n_stages, schedule->n_virtual, schedule->n_microbatches);
  for (int s = 0; s < schedule->n_stages; s++) {
    for (int k = 0; k < schedule->stages[s].n_actions; k++)
      TRI_CALL(check_action_ranges(schedule, s, k));
  }
  return TRI_OK;
}

// What is known of one stage: where in its list each work of each micro-batch of each chunk stands,
// -1 where it does not.
typedef struct stage_view {
  const tri_pipeline_schedule *schedule;
  int s;
  const tri_pipeline_stage *stage;
  int *position; // [work][chunk][micro-batch]
  int *holders;  // [kept, between][chunk][slot]: the micro-batch in it, -1 none; slots <
                 // micro-batches
} stage_view;

enum { N_WORKS = 4 };

static size_t index_of(const stage_view *view, int work, int chunk, int microbatch)
{
  return ((size_t)work * (size_t)view->schedule->n_virtual + (size_t)chunk) *
             (size_t)view->schedule->n_microbatches +
         (size_t)microbatch;
}

static tri_status find_positions(stage_view *view)
{
  char where[TRI_PIPELINE_WHERE_BYTES];
  const size_t n = index_of(view, N_WORKS, 0, 0);
  for (size_t i = 0; i < n; i++)
    view->position[i] = -1;
  for (int k = 0; k < view->stage->n_actions; k++) {
    const tri_pipeline_action *a = &view->stage->actions[k];
    int *position = &view->position[index_of(view, (int)a->work, a->chunk, a->microbatch)];
    TRI_CHECK(*position < 0, TRI_ERR_ARGUMENT, "%s is there twice, at action %d before",
              tri_pipeline_where(where, view->schedule, view->s, k), *position);
    *position = k;
  }
  return TRI_OK;
}

static tri_status check_missing(const stage_view *view, int work, int chunk, int microbatch)
{
  TRI_CHECK(view->position[index_of(view, work, chunk, microbatch)] >= 0, TRI_ERR_ARGUMENT,
            "stage %d: %s of micro-batch %d, chunk %d is missing", view->s,
            tri_pipeline_work_name((tri_pipeline_work)work), microbatch, chunk);
  return TRI_OK;
}

// `work` of a micro-batch stands behind `before`.
static tri_status check_behind(const stage_view *view, int work, int before, int chunk,
                               int microbatch)
{
  char where[TRI_PIPELINE_WHERE_BYTES];
  const int k = view->position[index_of(view, work, chunk, microbatch)];
  const int first = view->position[index_of(view, before, chunk, microbatch)];
  TRI_CHECK(first < k, TRI_ERR_ARGUMENT, "%s comes before its %s at action %d",
            tri_pipeline_where(where, view->schedule, view->s, k),
            tri_pipeline_work_name((tri_pipeline_work)before), first);
  return TRI_OK;
}

// One micro-batch of one chunk: a forward, then a backward or both halves.
static tri_status check_pass(const stage_view *view, int chunk, int microbatch)
{
  const int whole = view->position[index_of(view, TRI_PIPELINE_BACKWARD, chunk, microbatch)];
  const int input = view->position[index_of(view, TRI_PIPELINE_BACKWARD_INPUT, chunk, microbatch)];
  const int weight =
      view->position[index_of(view, TRI_PIPELINE_BACKWARD_WEIGHT, chunk, microbatch)];
  TRI_CALL(check_missing(view, TRI_PIPELINE_FORWARD, chunk, microbatch));
  if (input < 0 && weight < 0) {
    TRI_CALL(check_missing(view, TRI_PIPELINE_BACKWARD, chunk, microbatch));
    return check_behind(view, TRI_PIPELINE_BACKWARD, TRI_PIPELINE_FORWARD, chunk, microbatch);
  }
  TRI_CHECK(whole < 0, TRI_ERR_ARGUMENT,
            "stage %d: micro-batch %d, chunk %d has a whole backward at action %d and a half at %d",
            view->s, microbatch, chunk, whole, input < 0 ? weight : input);
  TRI_CALL(check_missing(view, TRI_PIPELINE_BACKWARD_INPUT, chunk, microbatch));
  TRI_CALL(check_missing(view, TRI_PIPELINE_BACKWARD_WEIGHT, chunk, microbatch));
  TRI_CALL(
      check_behind(view, TRI_PIPELINE_BACKWARD_INPUT, TRI_PIPELINE_FORWARD, chunk, microbatch));
  return check_behind(view, TRI_PIPELINE_BACKWARD_WEIGHT, TRI_PIPELINE_BACKWARD_INPUT, chunk,
                      microbatch);
}

// Where the action that gives the gradient (`half` BACKWARD_INPUT) or ends the backward
// (BACKWARD_WEIGHT) of a chunk's last micro-batch stands, backwards being whole or not.
static int last_position(const stage_view *view, tri_pipeline_work half, int chunk)
{
  const int m = view->schedule->n_microbatches;
  const int whole = view->position[index_of(view, TRI_PIPELINE_BACKWARD, chunk, m - 1)];
  return whole >= 0 ? whole : view->position[index_of(view, half, chunk, m - 1)];
}

static tri_status check_chunks_descend(const stage_view *view, tri_pipeline_work half)
{
  char where[TRI_PIPELINE_WHERE_BYTES];
  for (int c = 0; c + 1 < view->schedule->n_virtual; c++) {
    const int k = last_position(view, half, c), above = last_position(view, half, c + 1);
    TRI_CHECK(above < k, TRI_ERR_ARGUMENT,
              "%s, the last of its chunk, comes before the last of chunk %d at action %d",
              tri_pipeline_where(where, view->schedule, view->s, k), c + 1, above);
  }
  return TRI_OK;
}

// `last` gets, for each work and chunk, the action seen last.
static tri_status check_microbatches_ascend(const stage_view *view, int *last)
{
  char where[TRI_PIPELINE_WHERE_BYTES];
  const int v = view->schedule->n_virtual;
  for (int i = 0; i < N_WORKS * v; i++)
    last[i] = -1;
  for (int k = 0; k < view->stage->n_actions; k++) {
    const tri_pipeline_action *a = &view->stage->actions[k];
    int *before = &last[(int)a->work * v + a->chunk];
    const int microbatch = *before < 0 ? -1 : view->stage->actions[*before].microbatch;
    TRI_CHECK(a->work == TRI_PIPELINE_FORWARD || microbatch < a->microbatch, TRI_ERR_ARGUMENT,
              "%s comes after that of micro-batch %d at action %d: the backwards of a chunk must "
              "come in ascending order",
              tri_pipeline_where(where, view->schedule, view->s, k), microbatch, *before);
    *before = k;
  }
  return TRI_OK;
}

// Puts a micro-batch into a slot.
static tri_status hold(const stage_view *view, int k, const char *name, int slot, int n_slots,
                       int *holders)
{
  char where[TRI_PIPELINE_WHERE_BYTES];
  TRI_CHECK(slot >= 0 && slot < n_slots && slot < view->schedule->n_microbatches, TRI_ERR_ARGUMENT,
            "%s: %s %d is not in [0, %d)", tri_pipeline_where(where, view->schedule, view->s, k),
            name, slot, n_slots);
  TRI_CHECK(holders[slot] < 0, TRI_ERR_ARGUMENT, "%s: %s %d still holds micro-batch %d",
            tri_pipeline_where(where, view->schedule, view->s, k), name, slot, holders[slot]);
  holders[slot] = view->stage->actions[k].microbatch;
  return TRI_OK;
}

// The slot that an action names is the one its micro-batch was put into.
static tri_status check_held(const stage_view *view, int k, const char *name, int slot, int n_slots,
                             const int *holders)
{
  char where[TRI_PIPELINE_WHERE_BYTES];
  const bool there = slot >= 0 && slot < n_slots && slot < view->schedule->n_microbatches;
  TRI_CHECK(there && holders[slot] == view->stage->actions[k].microbatch, TRI_ERR_ARGUMENT,
            "%s: %s %d does not hold that micro-batch",
            tri_pipeline_where(where, view->schedule, view->s, k), name, slot);
  return TRI_OK;
}

static tri_status step_slots(const stage_view *view, int k)
{
  char where[TRI_PIPELINE_WHERE_BYTES];
  const tri_pipeline_action *a = &view->stage->actions[k];
  const int n_slots = view->stage->n_slots[a->chunk];
  const int n_weight_slots = view->stage->n_weight_slots[a->chunk];
  int *kept = view->holders + index_of(view, 0, a->chunk, 0);
  int *between = view->holders + index_of(view, 1, a->chunk, 0);
  if (a->work == TRI_PIPELINE_FORWARD) TRI_CALL(hold(view, k, "slot", a->slot, n_slots, kept));
  TRI_CALL(check_held(view, k, "slot", a->slot, n_slots, kept));
  if (a->work == TRI_PIPELINE_BACKWARD || a->work == TRI_PIPELINE_BACKWARD_WEIGHT)
    kept[a->slot] = -1;
  if (a->work == TRI_PIPELINE_BACKWARD_INPUT)
    return hold(view, k, "weight slot", a->weight_slot, n_weight_slots, between);
  if (a->work == TRI_PIPELINE_BACKWARD_WEIGHT) {
    TRI_CALL(check_held(view, k, "weight slot", a->weight_slot, n_weight_slots, between));
    between[a->weight_slot] = -1;
    return TRI_OK;
  }
  TRI_CHECK(a->weight_slot == -1, TRI_ERR_ARGUMENT, "%s: weight slot %d where there is none, -1",
            tri_pipeline_where(where, view->schedule, view->s, k), a->weight_slot);
  return TRI_OK;
}

static tri_status check_slots(const stage_view *view)
{
  const size_t n = index_of(view, 2, 0, 0);
  for (size_t i = 0; i < n; i++)
    view->holders[i] = -1;
  for (int k = 0; k < view->stage->n_actions; k++)
    TRI_CALL(step_slots(view, k));
  return TRI_OK;
}

static tri_status check_peaks(const stage_view *view)
{
  char where[TRI_PIPELINE_WHERE_BYTES];
  int live = 0, between = 0;
  for (int k = 0; k < view->stage->n_actions; k++) {
    const tri_pipeline_work work = view->stage->actions[k].work;
    live += work == TRI_PIPELINE_FORWARD;
    between += work == TRI_PIPELINE_BACKWARD_INPUT;
    TRI_CHECK(live <= view->stage->peak, TRI_ERR_ARGUMENT,
              "%s: %d activations are alive, the stated peak is %d",
              tri_pipeline_where(where, view->schedule, view->s, k), live, view->stage->peak);
    TRI_CHECK(between <= view->stage->weight_peak, TRI_ERR_ARGUMENT,
              "%s: %d backwards are between their halves, the stated peak is %d",
              tri_pipeline_where(where, view->schedule, view->s, k), between,
              view->stage->weight_peak);
    live -= work == TRI_PIPELINE_BACKWARD || work == TRI_PIPELINE_BACKWARD_WEIGHT;
    between -= work == TRI_PIPELINE_BACKWARD_WEIGHT;
  }
  return TRI_OK;
}

// `last` has room for every work of every chunk.
static tri_status check_stage(stage_view *view, int *last)
{
  TRI_CALL(find_positions(view));
  for (int c = 0; c < view->schedule->n_virtual; c++) {
    for (int i = 0; i < view->schedule->n_microbatches; i++)
      TRI_CALL(check_pass(view, c, i));
  }
  TRI_CALL(check_microbatches_ascend(view, last));
  TRI_CALL(check_chunks_descend(view, TRI_PIPELINE_BACKWARD_INPUT));
  TRI_CALL(check_chunks_descend(view, TRI_PIPELINE_BACKWARD_WEIGHT));
  TRI_CALL(check_slots(view));
  return check_peaks(view);
}

static tri_status check_stages(const tri_pipeline_schedule *schedule)
{
  tri_status status = TRI_OK;
  stage_view view = {.schedule = schedule};
  int *last = NULL;
  const size_t n_works = (size_t)N_WORKS * (size_t)schedule->n_virtual;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, n_works, &last));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, index_of(&view, N_WORKS, 0, 0), &view.position));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, index_of(&view, 2, 0, 0), &view.holders));
  for (view.s = 0; view.s < schedule->n_stages; view.s++) {
    view.stage = &schedule->stages[view.s];
    TRI_CALL_GOTO(done, check_stage(&view, last));
  }
done:
  tri_free(view.holders);
  tri_free(view.position);
  tri_free(last);
  return status;
}

// The next action of `stage` from *at on that receives from `peer`, or sends to it, in one
// direction; false at the end of the list.
static bool next_message(const tri_pipeline_schedule *schedule, int stage, int peer, bool gradient,
                         bool receives, int *at, tri_pipeline_transfer *out)
{
  for (; *at < schedule->stages[stage].n_actions; ++*at) {
    const tri_pipeline_action *a = &schedule->stages[stage].actions[*at];
    const bool is = receives ? tri_pipeline_schedule_receive(schedule, stage, a, out)
                             : tri_pipeline_schedule_send(schedule, stage, a, out);
    if (is && out->peer.stage == peer && out->gradient == gradient) return true;
  }
  return false;
}

// What `from` sends to its neighbour `to` in one direction is received in that order.
static tri_status check_messages(const tri_pipeline_schedule *schedule, int from, int to,
                                 bool gradient)
{
  char sender[TRI_PIPELINE_WHERE_BYTES], receiver[TRI_PIPELINE_WHERE_BYTES];
  tri_pipeline_transfer sent, received;
  int at = 0, to_at = 0;
  for (; next_message(schedule, from, to, gradient, false, &at, &sent); at++, to_at++) {
    const bool any = next_message(schedule, to, from, gradient, true, &to_at, &received);
    const int chunk = schedule->stages[from].actions[at].chunk;
    TRI_CHECK(any && sent.microbatch == received.microbatch && received.peer.chunk == chunk,
              TRI_ERR_ARGUMENT, "%s sends its %s to stage %d, which receives in another order: %s",
              tri_pipeline_where(sender, schedule, from, at), gradient ? "gradient" : "activations",
              to, any ? tri_pipeline_where(receiver, schedule, to, to_at) : "nothing more");
  }
  return TRI_OK;
}

static tri_status check_time_slots(const tri_pipeline_schedule *schedule)
{
  tri_status status = TRI_OK;
  char where[TRI_PIPELINE_WHERE_BYTES];
  tri_pipeline_timing *timing = NULL;
  TRI_CALL(tri_pipeline_simulate_units(schedule, &timing));
  for (int s = 0; s < schedule->n_stages; s++) {
    for (int k = 0; k < schedule->stages[s].n_actions; k++) {
      const int start = (int)timing->spans[s][k].start;
      TRI_CHECK_GOTO(done, schedule->stages[s].actions[k].time_slot == start, TRI_ERR_ARGUMENT,
                     "%s: time slot %d, can begin at %d", tri_pipeline_where(where, schedule, s, k),
                     schedule->stages[s].actions[k].time_slot, start);
    }
  }
done:
  tri_pipeline_timing_destroy(&timing);
  return status;
}

tri_status tri_pipeline_schedule_check(const tri_pipeline_schedule *schedule)
{
  const int p = schedule->n_stages;
  TRI_CALL(tri_pipeline_check_ranges(schedule));
  TRI_CALL(check_stages(schedule));
  for (int s = 0; s < p; s++) {
    TRI_CALL(check_messages(schedule, s, (s + 1) % p, false));
    TRI_CALL(check_messages(schedule, s, (s + p - 1) % p, true));
  }
  return check_time_slots(schedule);
}
