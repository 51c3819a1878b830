#include "trireme/parallel/pipeline.h"

#include <sched.h>

#include "parallel/pipeline_channel.h"
#include "parallel/pipeline_plan.h"
#include "trireme/base/memory.h"
#include "trireme/device/arena.h"
#include "trireme/telemetry/clock.h"

// Activations and gradients.
enum { N_DIRECTIONS = 2 };

// Buffers between chunks of one stage, in the order in which they were made.
typedef struct local_queue {
  void **buffers;
  int64_t first, end, capacity;
} local_queue;

struct tri_pipeline {
  tri_comm *comm;     // borrowed
  tri_stream *stream; // borrowed
  tri_pipeline_options options;
  int stage, n_stages;
  tri_pipeline_schedule *schedule; // NULL without micro-batches
  tri_pipeline_schedule shape;     // its sizes alone

  tri_channel in[N_DIRECTIONS], out[N_DIRECTIONS]; // from and to other stages
  local_queue local[N_DIRECTIONS];

  tri_arena arena;
  void **pool; // the buffers that are free: n_free of n_buffers
  int n_buffers, n_free;
  void ***inputs; // [n_virtual][slot]: kept for backward
  double wait_seconds;
};

// --- set-up

static tri_pipeline_lists training_lists(const tri_pipeline *p)
{
  return (tri_pipeline_lists){p->schedule, -1};
}

static tri_pipeline_lists forward_lists(const tri_pipeline *p, int n)
{
  return (tri_pipeline_lists){&p->shape, n};
}

static tri_status make_schedule(tri_pipeline *p)
{
  const tri_pipeline_options *o = &p->options;
  p->shape =
      (tri_pipeline_schedule){.kind = o->kind, .n_stages = p->n_stages, .n_virtual = o->n_virtual};
  if (o->n_microbatches == 0) return TRI_OK;
  return tri_pipeline_schedule_create(o->kind, p->n_stages, o->n_virtual, o->n_microbatches,
                                      &p->schedule);
}

// The channel into stage `head` from the one before it: this rank's place in a split in which the
// channels of every `stride`-th stage from `first` on are made.
static tri_channel_place place_of(const tri_pipeline *p, bool gradient, int head)
{
  const int tail = (head + p->n_stages - 1) % p->n_stages;
  const int sender = gradient ? head : tail;
  return (tri_channel_place){.color = head, .member = true, .sends = p->stage == sender};
}

// Channels between stages tail and head = tail + 1 for the heads of one parity, or around from the
// last stage to the first: no rank has part in two of them.
typedef enum channel_class { HEADS_ODD, HEADS_EVEN, HEAD_FIRST, N_CHANNEL_CLASSES } channel_class;

static bool is_head(channel_class class, int stage)
{
  if (class == HEAD_FIRST) return stage == 0;
  return stage > 0 && (stage % 2 == 1) == (class == HEADS_ODD);
}

static tri_status open_class(tri_pipeline *p, bool gradient, channel_class class)
{
  const char *what = gradient ? "pipeline gradients" : "pipeline activations";
  tri_device *device = tri_stream_device(p->stream);
  tri_channel_place place = {.color = p->n_stages + p->stage};
  const int next = (p->stage + 1) % p->n_stages;
  if (is_head(class, p->stage)) place = place_of(p, gradient, p->stage);
  if (is_head(class, next)) place = place_of(p, gradient, next);
  tri_channel channel;
  const tri_status status =
      tri_channel_open(p->comm, device, p->options.transport, what, &place, &channel);
  if (place.member) *(place.sends ? &p->out[gradient] : &p->in[gradient]) = channel;
  return status;
}

static tri_status open_channels(tri_pipeline *p)
{
  if (p->n_stages == 1) return TRI_OK;
  for (int gradient = 0; gradient < N_DIRECTIONS; gradient++) {
    for (channel_class class = 0; class < N_CHANNEL_CLASSES; class ++) {
      if (class == HEADS_EVEN && p->n_stages < 3) continue;
      if (class == HEAD_FIRST && p->options.n_virtual == 1) continue;
      TRI_CALL(open_class(p, gradient, class));
    }
  }
  return TRI_OK;
}

// The depth of the training lists and of forward passes that are many.
static tri_status plan_depth(const tri_pipeline *p, int *out)
{
  const tri_pipeline_lists forward = forward_lists(p, 4 * p->n_stages);
  int depth = 0;
  TRI_CALL(tri_pipeline_plan_depth(&forward, TRI_CHANNEL_MOST_DEPTH, out));
  if (p->schedule == NULL) return TRI_OK;
  const tri_pipeline_lists training = training_lists(p);
  TRI_CALL(tri_pipeline_plan_depth(&training, TRI_CHANNEL_MOST_DEPTH, &depth));
  TRI_CHECK(*out > 0 && depth > 0, TRI_ERR_UNSUPPORTED,
            "schedule %s of %d stages, %d chunks a stage and %d micro-batches needs more than %d "
            "messages under way between two stages: take another parallel.schedule",
            tri_pipeline_kind_name(p->options.kind), p->n_stages, p->options.n_virtual,
            p->options.n_microbatches, TRI_CHANNEL_MOST_DEPTH);
  if (depth > *out) *out = depth;
  return TRI_OK;
}

static tri_status reserve_channels(tri_pipeline *p, int depth)
{
  for (int d = 0; d < N_DIRECTIONS; d++) {
    TRI_CALL(tri_channel_reserve(&p->out[d], depth, p->options.message_bytes));
    TRI_CALL(tri_channel_reserve(&p->in[d], 1, p->options.message_bytes));
  }
  return TRI_OK;
}

static int count_buffers(const tri_pipeline *p, int depth)
{
  const tri_pipeline_lists forward = forward_lists(p, 4 * p->n_stages);
  const int n = tri_pipeline_plan_buffers(&forward, p->stage, depth);
  if (p->schedule == NULL) return n;
  const tri_pipeline_lists training = training_lists(p);
  const int n_training = tri_pipeline_plan_buffers(&training, p->stage, depth);
  return n_training > n ? n_training : n;
}

static tri_status make_pool(tri_pipeline *p)
{
  size_t *offsets = NULL;
  tri_status status = TRI_OK;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, p->n_buffers + 1, &offsets));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, p->n_buffers + 1, &p->pool));
  for (int i = 0; i < p->n_buffers; i++)
    offsets[i] = tri_arena_reserve(&p->arena, p->options.message_bytes);
  TRI_CALL_GOTO(done, tri_arena_commit(&p->arena));
  for (int i = 0; i < p->n_buffers; i++)
    p->pool[i] = tri_arena_at(&p->arena, offsets[i]);
  p->n_free = p->n_buffers;

done:
  TRI_FREE(&offsets);
  return status;
}

static tri_status make_inputs(tri_pipeline *p)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, p->options.n_virtual, &p->inputs));
  if (p->schedule == NULL) return TRI_OK;
  for (int c = 0; c < p->options.n_virtual; c++)
    TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, p->schedule->stages[p->stage].n_slots[c], &p->inputs[c]));
  return TRI_OK;
}

static tri_status make_local_queues(tri_pipeline *p)
{
  if (p->n_stages > 1) return TRI_OK;
  const int64_t n = p->options.n_microbatches;
  for (int d = 0; d < N_DIRECTIONS; d++) {
    p->local[d].capacity = (n < 1 ? 1 : n) * p->options.n_virtual;
    TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, p->local[d].capacity, &p->local[d].buffers));
  }
  return TRI_OK;
}

static tri_status set_up(tri_pipeline *p)
{
  int depth = 0;
  TRI_CALL(plan_depth(p, &depth));
  TRI_CALL(reserve_channels(p, depth));
  p->n_buffers = count_buffers(p, depth);
  TRI_CALL(make_pool(p));
  TRI_CALL(make_inputs(p));
  return make_local_queues(p);
}

tri_status tri_pipeline_create(tri_comm *comm, tri_stream *stream,
                               const tri_pipeline_options *options, tri_pipeline **out)
{
  tri_pipeline *p = NULL;
  tri_status status = TRI_NEW(TRI_MODULE_PARALLEL, 1, &p);
  if (status == TRI_OK) {
    *p = (tri_pipeline){.comm = comm,
                        .stream = stream,
                        .options = *options,
                        .stage = tri_comm_rank(comm),
                        .n_stages = tri_comm_size(comm)};
    tri_arena_begin(&p->arena, tri_stream_device(stream), "pipeline");
    status = make_schedule(p);
  }
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "pipeline schedule", status));
  TRI_CALL_GOTO(err_destroy, open_channels(p));
  TRI_CALL_GOTO(err_destroy, tri_comm_agree(comm, "pipeline memory", set_up(p)));
  *out = p;
  return TRI_OK;

err_destroy:
  tri_pipeline_destroy(&p);
  return status;
}

tri_status tri_pipeline_finish(tri_pipeline *p)
{
  for (int d = 0; d < N_DIRECTIONS; d++) {
    // In an order that all stages share: of a channel both ends are there at the same time.
    tri_channel *const ends[] = {&p->in[d], &p->out[d]};
    const int first = p->stage % 2 == 0;
    TRI_CALL(tri_channel_finish(ends[first]));
    TRI_CALL(tri_channel_finish(ends[1 - first]));
  }
  return TRI_OK;
}

void tri_pipeline_destroy(tri_pipeline **pipeline)
{
  tri_pipeline *p = *pipeline;
  if (p == NULL) return;
  for (int d = 0; d < N_DIRECTIONS; d++) {
    tri_channel_close(&p->in[d]);
    tri_channel_close(&p->out[d]);
  }
  tri_arena_end(&p->arena);
  for (int d = 0; d < N_DIRECTIONS; d++) {
    tri_channel_release(&p->in[d]);
    tri_channel_release(&p->out[d]);
    TRI_FREE(&p->local[d].buffers);
  }
  for (int c = 0; p->inputs != NULL && c < p->options.n_virtual; c++)
    TRI_FREE(&p->inputs[c]);
  TRI_FREE(&p->inputs);
  TRI_FREE(&p->pool);
  tri_pipeline_schedule_destroy(&p->schedule);
  TRI_FREE(pipeline);
}

const tri_pipeline_schedule *tri_pipeline_get_schedule(const tri_pipeline *p)
{
  return p->schedule;
}

int tri_pipeline_stage_number(const tri_pipeline *p)
{
  return p->stage;
}

void tri_pipeline_get_memory(const tri_pipeline *p, tri_pipeline_memory *out)
{
  *out = (tri_pipeline_memory){.n_buffers = p->n_buffers, .pool_bytes = p->arena.size_bytes};
  for (int d = 0; d < N_DIRECTIONS; d++) {
    const tri_channel *const ends[] = {&p->in[d], &p->out[d]};
    for (int e = 0; e < 2; e++) {
      tri_transport_facts facts;
      if (ends[e]->transport == NULL) continue;
      tri_transport_get_facts(ends[e]->transport, &facts);
      out->staging_bytes += facts.staging_bytes;
    }
  }
}

double tri_pipeline_wait_seconds(const tri_pipeline *p)
{
  return p->wait_seconds;
}

int64_t tri_pipeline_bytes_sent(const tri_pipeline *p)
{
  int64_t bytes = 0;
  for (int d = 0; d < N_DIRECTIONS; d++) {
    if (p->out[d].comm != NULL) bytes += tri_comm_bytes_sent(p->out[d].comm);
  }
  return bytes;
}

// --- buffers

static void *take_buffer(tri_pipeline *p)
{
  TRI_ASSERT(p->n_free > 0); // tri_pipeline_plan_buffers walked this list
  return p->pool[--p->n_free];
}

static void release_buffer(tri_pipeline *p, void *buffer)
{
  if (buffer != NULL) p->pool[p->n_free++] = buffer;
}

static void push_local(local_queue *queue, void *buffer)
{
  TRI_ASSERT(queue->end - queue->first < queue->capacity);
  queue->buffers[queue->end++ % queue->capacity] = buffer;
}

static void *pop_local(local_queue *queue)
{
  TRI_ASSERT(queue->first < queue->end);
  return queue->buffers[queue->first++ % queue->capacity];
}

// --- transfers

tri_status tri_pipeline_progress(tri_pipeline *p)
{
  for (int d = 0; d < N_DIRECTIONS; d++) {
    TRI_CALL(tri_channel_progress(&p->in[d]));
    TRI_CALL(tri_channel_progress(&p->out[d]));
  }
  return TRI_OK;
}

static bool sends_under_way(const tri_pipeline *p)
{
  for (int d = 0; d < N_DIRECTIONS; d++) {
    if (p->out[d].n > 0) return true;
  }
  return false;
}

// Waits for the oldest message of a channel. Other channels move on meanwhile: what this rank sends
// may have to leave it before anybody can answer.
static tri_status wait_oldest(tri_pipeline *p, tri_channel *channel)
{
  const double began = tri_clock_seconds();
  TRI_CALL(tri_pipeline_progress(p));
  while (!tri_channel_oldest_done(channel) && sends_under_way(p) &&
         tri_clock_seconds() - began < p->options.limit_seconds) {
    sched_yield();
    TRI_CALL(tri_pipeline_progress(p));
  }
  TRI_CALL(tri_channel_wait_oldest(channel));
  p->wait_seconds += tri_clock_seconds() - began;
  return TRI_OK;
}

// The oldest message is taken out once it is done.
static tri_status take_oldest(tri_pipeline *p, tri_channel *channel, void **buffer)
{
  TRI_CALL(wait_oldest(p, channel));
  return tri_channel_take(channel, p->stream, buffer);
}

// Begins to receive what action `at` awaits from another stage.
static tri_status post_receive(tri_pipeline *p, const tri_pipeline_lists *lists, int at)
{
  tri_pipeline_transfer transfer;
  if (at >= tri_pipeline_lists_length(lists, p->stage)) return TRI_OK;
  const tri_pipeline_action action = tri_pipeline_lists_action(lists, p->stage, at);
  if (!tri_pipeline_schedule_receive(&p->shape, p->stage, &action, &transfer)) return TRI_OK;
  if (transfer.peer.stage == p->stage) return TRI_OK;
  return tri_channel_start(&p->in[transfer.gradient], p->stream, take_buffer(p),
                           p->options.message_bytes);
}

// What `action` awaits, from a stage or a chunk of this one; NULL: nothing.
static tri_status collect(tri_pipeline *p, const tri_pipeline_action *action, void **out)
{
  tri_pipeline_transfer transfer;
  *out = NULL;
  if (!tri_pipeline_schedule_receive(&p->shape, p->stage, action, &transfer)) return TRI_OK;
  if (transfer.peer.stage != p->stage) return take_oldest(p, &p->in[transfer.gradient], out);
  *out = pop_local(&p->local[transfer.gradient]);
  return TRI_OK;
}

// Sends a buffer on, or releases it where the model ends.
static tri_status pass_on(tri_pipeline *p, const tri_pipeline_action *action, void *buffer)
{
  tri_pipeline_transfer transfer;
  if (!tri_pipeline_schedule_send(&p->shape, p->stage, action, &transfer)) {
    release_buffer(p, buffer);
    return TRI_OK;
  }
  if (transfer.peer.stage == p->stage) {
    push_local(&p->local[transfer.gradient], buffer);
    return TRI_OK;
  }
  tri_channel *channel = &p->out[transfer.gradient];
  if (channel->n == channel->depth) {
    void *sent = NULL;
    TRI_CALL(take_oldest(p, channel, &sent));
    release_buffer(p, sent);
  }
  return tri_channel_start(channel, p->stream, buffer, p->options.message_bytes);
}

static tri_status finish_sends(tri_pipeline *p)
{
  for (int d = 0; d < N_DIRECTIONS; d++) {
    while (p->out[d].n > 0) {
      void *sent = NULL;
      TRI_CALL(take_oldest(p, &p->out[d], &sent));
      release_buffer(p, sent);
    }
  }
  return TRI_OK;
}

// --- actions

typedef struct pipeline_run {
  tri_pipeline *p;
  bool training;
  tri_pipeline_compute compute;
  void *user;
} pipeline_run;

static tri_status do_forward(const pipeline_run *run, const tri_pipeline_action *action,
                             void *input)
{
  tri_pipeline *p = run->p;
  tri_pipeline_place next;
  const tri_pipeline_place place = {p->stage, action->chunk};
  void *output = tri_pipeline_schedule_next(&p->shape, place, &next) ? take_buffer(p) : NULL;
  const tri_pipeline_call call = {.action = action, .input = input, .output = output};
  TRI_CALL(run->compute(run->user, &call));
  if (run->training)
    p->inputs[action->chunk][action->slot] = input;
  else
    release_buffer(p, input);
  return pass_on(p, action, output);
}

static tri_status do_backward(const pipeline_run *run, const tri_pipeline_action *action,
                              void *gradient)
{
  tri_pipeline *p = run->p;
  void *input = p->inputs[action->chunk][action->slot];
  if (gradient == NULL) gradient = take_buffer(p);
  const tri_pipeline_call call = {.action = action, .input = input, .gradient = gradient};
  TRI_CALL(run->compute(run->user, &call));
  if (action->work == TRI_PIPELINE_BACKWARD) release_buffer(p, input);
  return pass_on(p, action, gradient);
}

static tri_status do_backward_weight(const pipeline_run *run, const tri_pipeline_action *action)
{
  void *input = run->p->inputs[action->chunk][action->slot];
  const tri_pipeline_call call = {.action = action, .input = input};
  TRI_CALL(run->compute(run->user, &call));
  release_buffer(run->p, input);
  return TRI_OK;
}

static tri_status do_action(const pipeline_run *run, const tri_pipeline_action *action,
                            void *arrived)
{
  switch (action->work) {
  case TRI_PIPELINE_FORWARD: return do_forward(run, action, arrived);
  case TRI_PIPELINE_BACKWARD:
  case TRI_PIPELINE_BACKWARD_INPUT: return do_backward(run, action, arrived);
  case TRI_PIPELINE_BACKWARD_WEIGHT: return do_backward_weight(run, action);
  }
  return TRI_ERROR(TRI_ERR_INTERNAL, "work %d of a pipeline is none", (int)action->work);
}

static tri_status walk(const pipeline_run *run, const tri_pipeline_lists *lists)
{
  tri_pipeline *p = run->p;
  const int n = tri_pipeline_lists_length(lists, p->stage);
  TRI_CALL(post_receive(p, lists, 0));
  for (int at = 0; at < n; at++) {
    const tri_pipeline_action action = tri_pipeline_lists_action(lists, p->stage, at);
    void *arrived = NULL;
    TRI_CALL(collect(p, &action, &arrived));
    TRI_CALL(post_receive(p, lists, at + 1));
    TRI_CALL(do_action(run, &action, arrived));
  }
  TRI_CALL(finish_sends(p));
  TRI_ASSERT(p->n_free == p->n_buffers);
  return TRI_OK;
}

tri_status tri_pipeline_run(tri_pipeline *p, tri_pipeline_compute compute, void *user)
{
  const pipeline_run run = {p, true, compute, user};
  const tri_pipeline_lists lists = training_lists(p);
  return p->schedule == NULL ? TRI_OK : walk(&run, &lists);
}

tri_status tri_pipeline_run_forward(tri_pipeline *p, int n, tri_pipeline_compute compute,
                                    void *user)
{
  const pipeline_run run = {p, false, compute, user};
  const tri_pipeline_lists lists = forward_lists(p, n);
  return walk(&run, &lists);
}
