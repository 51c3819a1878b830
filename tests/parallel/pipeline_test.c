// ranks: 1 2 3 4
// What passes through a pipeline is right whatever the schedule, the micro-batches, the chunks and
// the transport: an invented chain of virtual stages whose every number is known, exactly.
//
// pipeline_test [DEVICE TRANSPORT …]: "cpu host staged" by default; "cuda:rank" gives each rank a
// device of its own. The host waits for the device only after all steps of a case, so that on late
// streams a missing event shows.
#include "trireme/parallel/pipeline.h"

#include "test.h"
#include "trireme/base/memory.h"

enum { N = 1500, MOST_MICROBATCHES = 9, MOST_VIRTUAL = 3, N_STEPS = 2 };

static tri_comm *world;
static tri_device *device;
static tri_stream *stream;
static const tri_kernels *kernels;
static int n_stages, stage;
static float *pattern;                                             // device (N): element i is i
static float *gradients[N_STEPS][MOST_VIRTUAL][MOST_MICROBATCHES]; // device (N): after backward
static float *inputs[N_STEPS][MOST_VIRTUAL][MOST_MICROBATCHES];    // device (N): at its end
static float *host;                                                // pinned (N)

// The chain: virtual stage 0 makes 100 m + 10000 step + i, each adds its own number; the last one
// begins the gradient with 7 m + i, each adds its input to it. Whole numbers below 2^24.
static float own_number(int virtual_stage)
{
  return (float)(3 * virtual_stage + 1);
}

static float input_of(int virtual_stage, int step, int m, int i)
{
  float x = (float)(100 * m + 10000 * step + i);
  for (int j = 0; j < virtual_stage; j++)
    x += own_number(j);
  return x;
}

static float gradient_after(int virtual_stage, int n_virtual_stages, int step, int m, int i)
{
  float g = (float)(7 * m + i);
  for (int j = n_virtual_stages - 1; j >= virtual_stage && j > 0; j--)
    g += input_of(j, step, m, i);
  return g;
}

typedef struct chain {
  tri_pipeline *pipeline;
  int step, n_virtual;
  int n_calls;
  bool training;
} chain;

static int virtual_stage_of(const tri_pipeline_action *action)
{
  return action->chunk * n_stages + stage;
}

static tri_status copy(float *out, const void *from)
{
  return tri_stream_copy_on_device(stream, out, from, N * sizeof(float));
}

static tri_status forward(const chain *c, const tri_pipeline_call *call)
{
  const int j = virtual_stage_of(call->action), m = call->action->microbatch;
  EXPECT((call->input == NULL) == (j == 0));
  EXPECT((call->output == NULL) == (j == n_stages * c->n_virtual - 1));
  if (!c->training && call->input != NULL)
    TRI_CALL(copy(inputs[c->step][call->action->chunk][m], call->input));
  if (call->output == NULL) return TRI_OK;
  const float first = own_number(j) + (j > 0 ? 0.0f : (float)(100 * m + 10000 * c->step));
  TRI_CALL(kernels->fill(stream, call->output, first, N));
  return kernels->add(stream, call->output, call->output, j > 0 ? call->input : pattern, N);
}

static tri_status backward(const chain *c, const tri_pipeline_call *call)
{
  const tri_pipeline_action *action = call->action;
  const int j = virtual_stage_of(action), m = action->microbatch;
  if (j == n_stages * c->n_virtual - 1) {
    TRI_CALL(kernels->fill(stream, call->gradient, (float)(7 * m), N));
    TRI_CALL(kernels->add(stream, call->gradient, call->gradient, pattern, N));
  }
  if (j > 0) TRI_CALL(kernels->add(stream, call->gradient, call->gradient, call->input, N));
  return copy(gradients[c->step][action->chunk][m], call->gradient);
}

static tri_status compute(void *user, const tri_pipeline_call *call)
{
  chain *c = user;
  const tri_pipeline_action *action = call->action;
  c->n_calls++;
  TRI_CALL(tri_pipeline_progress(c->pipeline));
  if (action->work == TRI_PIPELINE_FORWARD) return forward(c, call);
  if (action->work != TRI_PIPELINE_BACKWARD_WEIGHT) TRI_CALL(backward(c, call));
  if (action->work == TRI_PIPELINE_BACKWARD_INPUT || call->input == NULL) return TRI_OK;
  return copy(inputs[c->step][action->chunk][action->microbatch], call->input);
}

static void clear(float *array)
{
  EXPECT_OK(kernels->fill(stream, array, -1.0f, N));
}

static void clear_results(int n_virtual, int n)
{
  for (int step = 0; step < N_STEPS; step++) {
    for (int c = 0; c < n_virtual; c++) {
      for (int m = 0; m < n; m++) {
        clear(gradients[step][c][m]);
        clear(inputs[step][c][m]);
      }
    }
  }
}

static const float *fetch(const float *array)
{
  EXPECT_OK(tri_stream_copy_to_host(stream, host, array, N * sizeof(float)));
  EXPECT_OK(tri_stream_synchronize(stream));
  return host;
}

static void expect_inputs(int n_virtual, int n, int step)
{
  int wrong = 0;
  for (int c = 0; c < n_virtual; c++) {
    const int j = c * n_stages + stage;
    for (int m = 0; j > 0 && m < n; m++) {
      const float *values = fetch(inputs[step][c][m]);
      for (int i = 0; i < N; i++)
        wrong += values[i] != input_of(j, step, m, i);
    }
  }
  EXPECT(wrong == 0);
}

static void expect_gradients(int n_virtual, int n, int step)
{
  int wrong = 0;
  for (int c = 0; c < n_virtual; c++) {
    for (int m = 0; m < n; m++) {
      const float *values = fetch(gradients[step][c][m]);
      for (int i = 0; i < N; i++)
        wrong +=
            values[i] != gradient_after(c * n_stages + stage, n_stages * n_virtual, step, m, i);
    }
  }
  EXPECT(wrong == 0);
}

static void expect_forward_alone(tri_pipeline *pipeline, int n_virtual, int n)
{
  chain c = {.pipeline = pipeline, .n_virtual = n_virtual};
  clear_results(n_virtual, n);
  EXPECT_OK(tri_pipeline_run_forward(pipeline, n, compute, &c));
  EXPECT(c.n_calls == n * n_virtual);
  expect_inputs(n_virtual, n, 0);
}

static void run_case(const char *transport, tri_pipeline_kind kind, int n_virtual, int n)
{
  const tri_pipeline_options options = {.kind = kind,
                                        .n_virtual = n_virtual,
                                        .n_microbatches = n,
                                        .message_bytes = N * sizeof(float),
                                        .transport = transport,
                                        .limit_seconds = 60};
  tri_pipeline *pipeline = NULL;
  EXPECT_OK(tri_pipeline_create(world, stream, &options, &pipeline));
  if (pipeline == NULL) return;
  const tri_pipeline_schedule *schedule = tri_pipeline_get_schedule(pipeline);
  clear_results(n_virtual, n);
  for (int step = 0; step < N_STEPS; step++) {
    chain c = {.pipeline = pipeline, .step = step, .n_virtual = n_virtual, .training = true};
    const int64_t before = tri_memory_allocations();
    EXPECT_OK(tri_pipeline_run(pipeline, compute, &c));
    EXPECT(tri_memory_allocations() == before);
    EXPECT(c.n_calls == (n == 0 ? 0 : schedule->stages[stage].n_actions));
  }
  for (int step = 0; step < N_STEPS; step++) {
    expect_inputs(n_virtual, n, step);
    expect_gradients(n_virtual, n, step);
  }
  expect_forward_alone(pipeline, n_virtual, MOST_MICROBATCHES);
  expect_forward_alone(pipeline, n_virtual, 1);
  EXPECT_OK(tri_pipeline_finish(pipeline));
  tri_pipeline_destroy(&pipeline);
}

static const char *transport_name;

// A slow build runs the fewest micro-batches in which every kind of action occurs.
#ifdef TEST_QUICK
static const int counts[] = {5};
#else
static const int counts[] = {0, 1, 2, 5, MOST_MICROBATCHES};
#endif

static void run_kind(tri_pipeline_kind kind, int first_virtual, int last_virtual)
{
  for (int v = first_virtual; v <= last_virtual; v++) {
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
      run_case(transport_name, kind, v, counts[i]);
  }
}

TEST(gpipe)
{
  run_kind(TRI_PIPELINE_GPIPE, 1, 2);
}

TEST(one_forward_one_backward)
{
  run_kind(TRI_PIPELINE_1F1B, 1, 1);
}

TEST(interleaved)
{
  run_kind(TRI_PIPELINE_INTERLEAVED, 2, MOST_VIRTUAL);
}

TEST(zb_h1)
{
  run_kind(TRI_PIPELINE_ZB_H1, 1, 1);
}

// As many bytes as messages cross the borders of stages.
TEST(bytes_sent_are_those_of_the_messages)
{
  const tri_pipeline_options options = {.kind = TRI_PIPELINE_1F1B,
                                        .n_virtual = 1,
                                        .n_microbatches = 5,
                                        .message_bytes = N * sizeof(float),
                                        .transport = transport_name,
                                        .limit_seconds = 60};
  tri_pipeline *pipeline = NULL;
  chain c = {.n_virtual = 1, .training = true};
  EXPECT_OK(tri_pipeline_create(world, stream, &options, &pipeline));
  if (pipeline == NULL) return;
  c.pipeline = pipeline;
  const int64_t before = tri_pipeline_bytes_sent(pipeline);
  EXPECT_OK(tri_pipeline_run(pipeline, compute, &c));
  const int n_borders = (stage > 0) + (stage < n_stages - 1);
  const int64_t wanted = (int64_t)n_borders * 5 * N * (int64_t)sizeof(float);
  if (strcmp(transport_name, "nccl") != 0)
    EXPECT(tri_pipeline_bytes_sent(pipeline) - before == wanted);
  EXPECT_OK(tri_pipeline_finish(pipeline));
  tri_pipeline_destroy(&pipeline);
}

TEST(what_cannot_work_is_refused)
{
  tri_pipeline *pipeline = NULL;
  tri_pipeline_options options = {.kind = TRI_PIPELINE_1F1B,
                                  .n_virtual = 2,
                                  .n_microbatches = 1,
                                  .message_bytes = N * sizeof(float),
                                  .transport = transport_name,
                                  .limit_seconds = 60};
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "1f1b", tri_pipeline_create(world, stream, &options, &pipeline));
  EXPECT(pipeline == NULL);
}

static void run_transport(const char *name)
{
  transport_name = name;
  if (test_rank() == 0) printf("== %s\n", name);
  TEST_RUN(gpipe);
  TEST_RUN(one_forward_one_backward);
  TEST_RUN(interleaved);
  TEST_RUN(zb_h1);
  TEST_RUN(bytes_sent_are_those_of_the_messages);
  TEST_RUN(what_cannot_work_is_refused);
}

static void for_all_results(void (*act)(float **))
{
  for (int step = 0; step < N_STEPS; step++) {
    for (int c = 0; c < MOST_VIRTUAL; c++) {
      for (int m = 0; m < MOST_MICROBATCHES; m++) {
        act(&gradients[step][c][m]);
        act(&inputs[step][c][m]);
      }
    }
  }
}

static void make(float **array)
{
  EXPECT_OK(tri_device_alloc(device, N * sizeof(float), (void **)array));
}

static void forget(float **array)
{
  tri_device_free(device, (void **)array);
}

static bool open_all(const char *name)
{
  const tri_device_options options = {.kernels = "reference", .n_threads = 1};
  char own_name[32];
  test_name = "start";
  EXPECT_OK(tri_comm_create_world(60, &world));
  if (world == NULL) return false;
  stage = tri_comm_rank(world);
  n_stages = tri_comm_size(world);
  snprintf(own_name, sizeof own_name, "cuda:%d", tri_comm_local_rank(world));
  EXPECT_OK(tri_device_open(strcmp(name, "cuda:rank") == 0 ? own_name : name, &options, &device));
  if (device == NULL) return false;
  EXPECT_OK(tri_stream_create(device, &stream));
  if (stream == NULL) return false;
  kernels = tri_device_kernels(device);
  EXPECT_OK(tri_device_alloc_host(device, N * sizeof(float), (void **)&host));
  make(&pattern);
  for (int i = 0; i < N; i++)
    host[i] = (float)i;
  EXPECT_OK(tri_stream_copy_to_device(stream, pattern, host, N * sizeof(float)));
  EXPECT_OK(tri_stream_synchronize(stream));
  return true;
}

int main(int argc, char **argv)
{
  const char *const usual[] = {"cpu", "host", "staged"};
  const char *const *names = argc > 1 ? (const char *const *)argv + 1 : usual;
  const int n_names = argc > 1 ? argc - 1 : 3;
  if (!open_all(names[0])) return 1;
  for_all_results(make);
  for (int i = 1; i < n_names; i++)
    run_transport(names[i]);
  for_all_results(forget);
  forget(&pattern);
  tri_device_free_host(device, (void **)&host);
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
  return test_end();
}
