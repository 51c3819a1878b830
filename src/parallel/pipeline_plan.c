#include "parallel/pipeline_plan.h"

#include "trireme/base/memory.h"

// --- lists

static int minimum(int a, int b)
{
  return a < b ? a : b;
}

int tri_pipeline_lists_length(const tri_pipeline_lists *lists, int stage)
{
  if (lists->n_forward >= 0) return lists->n_forward * lists->schedule->n_virtual;
  return lists->schedule->stages[stage].n_actions;
}

tri_pipeline_action tri_pipeline_lists_action(const tri_pipeline_lists *lists, int stage, int at)
{
  const int p = lists->schedule->n_stages, v = lists->schedule->n_virtual;
  if (lists->n_forward < 0) return lists->schedule->stages[stage].actions[at];
  const int group = at / (p * v);
  const int size = minimum(p, lists->n_forward - group * p);
  const int rest = at - group * p * v;
  return (tri_pipeline_action){.work = TRI_PIPELINE_FORWARD,
                               .microbatch = group * p + rest % size,
                               .chunk = rest / size,
                               .weight_slot = -1};
}

// --- channels

// Of the channel that leads into a stage, one for each direction: messages so far.
typedef struct channel_count {
  int sent, posted, taken;
} channel_count;

typedef struct stage_walk {
  int at;        // the action that is next, or being done
  bool computed; // all but its send
} stage_walk;

typedef struct depth_walk {
  const tri_pipeline_lists *lists;
  int depth;
  stage_walk *stages;
  channel_count *channels; // (n_stages, 2): into the stage, activations and gradients
} depth_walk;

static channel_count *channel_into(const depth_walk *walk, int stage, bool gradient)
{
  return &walk->channels[2 * stage + gradient];
}

// What action `at` receives from another stage.
static bool receives(const depth_walk *walk, int stage, int at, tri_pipeline_transfer *out)
{
  if (at >= tri_pipeline_lists_length(walk->lists, stage)) return false;
  const tri_pipeline_action action = tri_pipeline_lists_action(walk->lists, stage, at);
  return tri_pipeline_schedule_receive(walk->lists->schedule, stage, &action, out) &&
         out->peer.stage != stage;
}

static bool sends(const depth_walk *walk, int stage, int at, tri_pipeline_transfer *out)
{
  const tri_pipeline_action action = tri_pipeline_lists_action(walk->lists, stage, at);
  return tri_pipeline_schedule_send(walk->lists->schedule, stage, &action, out) &&
         out->peer.stage != stage;
}

static void post(const depth_walk *walk, int stage, int at)
{
  tri_pipeline_transfer transfer;
  if (receives(walk, stage, at, &transfer)) channel_into(walk, stage, transfer.gradient)->posted++;
}

// One step of a stage; false: it must wait.
static bool advance(const depth_walk *walk, int stage)
{
  stage_walk *s = &walk->stages[stage];
  tri_pipeline_transfer transfer;
  if (s->at == tri_pipeline_lists_length(walk->lists, stage)) return false;
  if (!s->computed) {
    if (receives(walk, stage, s->at, &transfer)) {
      channel_count *in = channel_into(walk, stage, transfer.gradient);
      if (in->taken == in->sent) return false;
      in->taken++;
    }
    post(walk, stage, s->at + 1);
    s->computed = true;
    return true;
  }
  if (sends(walk, stage, s->at, &transfer)) {
    channel_count *out = channel_into(walk, transfer.peer.stage, transfer.gradient);
    if (out->posted <= out->sent - walk->depth) return false;
    out->sent++;
  }
  s->computed = false;
  s->at++;
  return true;
}

static bool comes_to_the_end(const depth_walk *walk)
{
  const int p = walk->lists->schedule->n_stages;
  bool moved = true;
  for (int s = 0; s < p; s++) {
    walk->stages[s] = (stage_walk){0};
    walk->channels[2 * s] = walk->channels[2 * s + 1] = (channel_count){0};
  }
  for (int s = 0; s < p; s++)
    post(walk, s, 0);
  while (moved) {
    moved = false;
    for (int s = 0; s < p; s++) {
      while (advance(walk, s))
        moved = true;
    }
  }
  for (int s = 0; s < p; s++) {
    if (walk->stages[s].at < tri_pipeline_lists_length(walk->lists, s)) return false;
  }
  return true;
}

tri_status tri_pipeline_plan_depth(const tri_pipeline_lists *lists, int most, int *out)
{
  depth_walk walk = {.lists = lists, .depth = 2};
  tri_status status = TRI_OK;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, lists->schedule->n_stages, &walk.stages));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, 2 * lists->schedule->n_stages, &walk.channels));
  *out = 0;
  for (; walk.depth <= most && *out == 0; walk.depth++) {
    if (comes_to_the_end(&walk)) *out = walk.depth;
  }

done:
  TRI_FREE(&walk.stages);
  TRI_FREE(&walk.channels);
  return status;
}

// --- buffers

typedef struct buffer_count {
  const tri_pipeline_lists *lists;
  int stage, depth;
  int used, most;
  int sending[2]; // under way: activations, gradients
} buffer_count;

static void take(buffer_count *count, int n)
{
  count->used += n;
  if (count->used > count->most) count->most = count->used;
}

// A buffer that another stage fills for action `at`.
static void count_post(buffer_count *count, int at)
{
  tri_pipeline_transfer transfer;
  if (at >= tri_pipeline_lists_length(count->lists, count->stage)) return;
  const tri_pipeline_action action = tri_pipeline_lists_action(count->lists, count->stage, at);
  if (tri_pipeline_schedule_receive(count->lists->schedule, count->stage, &action, &transfer))
    take(count, transfer.peer.stage != count->stage);
}

// A buffer that goes on: to another stage, to a chunk of this one, or nowhere.
static void count_send(buffer_count *count, const tri_pipeline_action *action, int n)
{
  tri_pipeline_transfer transfer;
  if (!tri_pipeline_schedule_send(count->lists->schedule, count->stage, action, &transfer)) {
    count->used -= n;
  } else if (transfer.peer.stage != count->stage) {
    int *sending = &count->sending[transfer.gradient];
    if (*sending == count->depth)
      count->used--;
    else
      ++*sending;
  }
}

static void count_action(buffer_count *count, const tri_pipeline_action *action)
{
  const tri_pipeline_schedule *schedule = count->lists->schedule;
  tri_pipeline_transfer transfer;
  const tri_pipeline_place place = {count->stage, action->chunk};
  tri_pipeline_place other;
  const int n_inputs = tri_pipeline_schedule_previous(schedule, place, &other);
  switch (action->work) {
  case TRI_PIPELINE_FORWARD: {
    const int n_outputs = tri_pipeline_schedule_next(schedule, place, &other);
    take(count, n_outputs);
    if (count->lists->n_forward >= 0) count->used -= n_inputs;
    count_send(count, action, n_outputs);
    return;
  }
  case TRI_PIPELINE_BACKWARD:
  case TRI_PIPELINE_BACKWARD_INPUT:
    take(count, !tri_pipeline_schedule_receive(schedule, count->stage, action, &transfer));
    if (action->work == TRI_PIPELINE_BACKWARD) count->used -= n_inputs;
    count_send(count, action, 1);
    return;
  case TRI_PIPELINE_BACKWARD_WEIGHT: count->used -= n_inputs; return;
  }
}

int tri_pipeline_plan_buffers(const tri_pipeline_lists *lists, int stage, int depth)
{
  buffer_count count = {.lists = lists, .stage = stage, .depth = depth};
  const int n = tri_pipeline_lists_length(lists, stage);
  count_post(&count, 0);
  for (int at = 0; at < n; at++) {
    const tri_pipeline_action action = tri_pipeline_lists_action(lists, stage, at);
    count_post(&count, at + 1);
    count_action(&count, &action);
  }
  return count.most;
}
