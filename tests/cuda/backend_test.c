// timeout: 600
// The CUDA backend on the doubles: memory, copies, streams, events, and every kernel of the table
// against the CPU reference, on queues that run as late as they may.
//
// tests/gpu builds this file for a real GPU (TEST_REAL_GPU): all but what only the doubles tell.
#include "device/kernel_cases.h"
#ifndef TEST_REAL_GPU
#include "doubles.h"
#endif
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/device/cuda.h"
#include "trireme/device/graph.h"

static tri_device *cpu, *cuda;
static tri_stream *cpu_stream, *cuda_stream;

typedef tri_status (*cases)(const kernel_comparison *comparison);

static void compare(cases run)
{
  const kernel_comparison comparison = {
      .sides = {{"reference", tri_device_kernels(cpu), cpu, cpu_stream, 0},
                {"cuda", tri_device_kernels(cuda), cuda, cuda_stream, 0}}};
  EXPECT_OK(run(&comparison));
}

TEST(elementwise_agrees)
{
  compare(kernel_cases_elementwise);
}

TEST(embedding_agrees)
{
  compare(kernel_cases_embedding);
}

TEST(layernorm_agrees)
{
  compare(kernel_cases_layernorm);
}

TEST(residual_agrees)
{
  compare(kernel_cases_residual);
}

TEST(linear_agrees)
{
  compare(kernel_cases_linear);
}

TEST(attention_agrees)
{
  compare(kernel_cases_attention);
}

TEST(attention_decode_agrees)
{
  compare(kernel_cases_attention_decode);
}

TEST(cross_entropy_agrees)
{
  compare(kernel_cases_cross_entropy);
}

TEST(adamw_agrees)
{
  compare(kernel_cases_adamw);
}

// The table is complete, and refuses what the contract refuses.
TEST(refusals)
{
  const kernel_side side = {"cuda", tri_device_kernels(cuda), cuda, cuda_stream, 0};
  EXPECT_OK(kernel_cases_refusals(&side));
}

static void expect_facts(void)
{
  tri_device_facts facts;
  tri_device_get_facts(cuda, &facts);
  EXPECT(strcmp(facts.name, "cuda") == 0);
#ifdef TEST_REAL_GPU
  EXPECT(strncmp(facts.isa, "sm_", 3) == 0);
  printf("%s\n", facts.description);
#else
  EXPECT(strcmp(facts.isa, "sm_90") == 0);
#endif
  EXPECT(!facts.host_memory);
  EXPECT(facts.bf16_native);
  EXPECT(facts.memory_bytes > 0 && facts.memory_free_bytes <= facts.memory_bytes);
}

TEST(facts_are_those_of_the_device)
{
  expect_facts();
}

TEST(names_and_numbers)
{
  tri_device *device = NULL;
  tri_device_place places[TRI_DEVICE_MAX_PLACES];
  int n = -1;
  EXPECT(tri_device_built("cuda"));
  EXPECT_OK(tri_device_list("cuda", places, &n));
#ifdef TEST_REAL_GPU
  EXPECT(n >= 1);
  EXPECT(strlen(places[0].bus_id) == strlen("0000:01:00.0"));
#else
  EXPECT(n == 1);
  EXPECT(strcmp(places[0].bus_id, "0000:01:00.0") == 0);
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "sees 1 CUDA device", tri_device_open("cuda:1", NULL, &device));
#endif
  EXPECT_OK(tri_device_list("cpu", places, &n));
  EXPECT(n == 0);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "cuda:x", tri_device_open("cuda:x", NULL, &device));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "cuda:-1", tri_device_open("cuda:-1", NULL, &device));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no number", tri_device_open("cpu:0", NULL, &device));
}

static uint64_t whole_device_waits(void)
{
#ifdef TEST_REAL_GPU
  return 0; // only the doubles count them
#else
  return double_device_synchronizations();
#endif
}

// Work on one stream waits for a mark on another, and the host for both, at no more than that.
TEST(events_order_streams)
{
  enum { N = 1000 };
  tri_stream *other = NULL;
  tri_event *event = NULL;
  float *host = NULL, *x = NULL, *y = NULL;
  bool done = false;
  EXPECT_OK(tri_stream_create(cuda, &other));
  EXPECT_OK(tri_event_create(cuda, &event));
  EXPECT_OK(tri_device_alloc(cuda, N * sizeof *x, (void **)&x));
  EXPECT_OK(tri_device_alloc(cuda, N * sizeof *y, (void **)&y));
  EXPECT_OK(tri_device_alloc_host(cuda, N * sizeof *host, (void **)&host));
  EXPECT_OK(tri_stream_synchronize(cuda_stream));
  const uint64_t before = whole_device_waits();
  EXPECT_OK(tri_device_kernels(cuda)->fill(cuda_stream, x, 3.0f, N));
  EXPECT_OK(tri_event_record(event, cuda_stream));
  EXPECT_OK(tri_event_wait(event, other));
  EXPECT_OK(tri_stream_copy_on_device(other, y, x, N * sizeof *x));
  EXPECT_OK(tri_stream_copy_to_host(other, host, y, N * sizeof *y));
  EXPECT_OK(tri_event_record(event, other));
  EXPECT_OK(tri_event_synchronize(event));
  EXPECT_OK(tri_event_query(event, &done));
  EXPECT(done);
  EXPECT(host[0] == 3.0f && host[N - 1] == 3.0f);
  EXPECT(whole_device_waits() == before);
  tri_device_free_host(cuda, (void **)&host);
  tri_device_free(cuda, (void **)&y);
  tri_device_free(cuda, (void **)&x);
  tri_event_destroy(&event);
  tri_stream_destroy(&other);
}

// Recorded work runs at its launches, with the event in it marking each; what a recording does not
// take is an error, and the stream is as good as before.
TEST(graphs_are_launched_again_and_again)
{
  enum { N = 300 };
  const tri_kernels *k = tri_device_kernels(cuda);
  tri_stream *other = NULL;
  tri_event *event = NULL;
  tri_graph *graph = NULL;
  float *host = NULL, *x = NULL, *one = NULL;
  EXPECT(tri_graph_supported(cuda) && !tri_graph_supported(cpu));
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "does not record", tri_graph_begin(cpu_stream));
  EXPECT_OK(tri_stream_create(cuda, &other));
  EXPECT_OK(tri_event_create(cuda, &event));
  EXPECT_OK(tri_device_alloc(cuda, N * sizeof *x, (void **)&x));
  EXPECT_OK(tri_device_alloc(cuda, N * sizeof *one, (void **)&one));
  EXPECT_OK(tri_device_alloc_host(cuda, N * sizeof *host, (void **)&host));
  EXPECT_OK(k->fill(cuda_stream, x, 5.0f, N));
  EXPECT_OK(k->fill(cuda_stream, one, 1.0f, N));
  EXPECT_OK(tri_graph_begin(cuda_stream));
  EXPECT_OK(k->add(cuda_stream, x, x, one, N));
  EXPECT_OK(tri_event_record(event, cuda_stream));
  EXPECT_OK(k->add(cuda_stream, one, one, one, N));
  EXPECT_OK(tri_graph_end(cuda_stream, &graph));
  for (int i = 0; i < 3; i++) {
    EXPECT_OK(tri_graph_launch(graph, cuda_stream));
    EXPECT_OK(tri_event_wait(event, other));
    EXPECT_OK(tri_stream_copy_to_host(other, host, x, N * sizeof *x));
    EXPECT_OK(tri_stream_synchronize(other));
    EXPECT(host[0] == 5.0f + (float)((2 << i) - 1) && host[N - 1] == host[0]);
  }
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "different devices", tri_graph_launch(graph, cpu_stream));
  tri_graph_destroy(&graph);
  EXPECT_OK(tri_graph_begin(cuda_stream));
  EXPECT_ERROR(TRI_ERR_DEVICE, "StreamCapture", tri_stream_synchronize(cuda_stream));
  EXPECT_ERROR(TRI_ERR_DEVICE, "StreamCapture", tri_graph_end(cuda_stream, &graph));
  EXPECT_OK(tri_stream_synchronize(cuda_stream));
  tri_device_free_host(cuda, (void **)&host);
  tri_device_free(cuda, (void **)&one);
  tri_device_free(cuda, (void **)&x);
  tri_event_destroy(&event);
  tri_stream_destroy(&other);
}

TEST(too_much_memory_is_refused_in_numbers)
{
  void *memory = NULL;
  EXPECT_ERROR(TRI_ERR_MEMORY, "1125899906842624 bytes wanted",
               tri_device_alloc(cuda, (size_t)1 << 50, &memory));
  EXPECT_OK(tri_device_alloc(cuda, 0, &memory));
  tri_device_free(cuda, &memory);
}

int main(void)
{
  setenv("TRI_DOUBLE_SCHEDULE", "lazy", 0);
  const tri_device_options reference = {.kernels = "reference"};
  if (tri_device_open("cpu", &reference, &cpu) != TRI_OK ||
      tri_device_open("cuda", NULL, &cuda) != TRI_OK ||
      tri_stream_create(cpu, &cpu_stream) != TRI_OK ||
      tri_stream_create(cuda, &cuda_stream) != TRI_OK) {
    printf("not ok backend_test: %s\n", tri_error_message());
    return 1;
  }
  TEST_RUN(facts_are_those_of_the_device);
  TEST_RUN(names_and_numbers);
  TEST_RUN(events_order_streams);
  TEST_RUN(graphs_are_launched_again_and_again);
  TEST_RUN(too_much_memory_is_refused_in_numbers);
  TEST_RUN(refusals);
  TEST_RUN(elementwise_agrees);
  TEST_RUN(embedding_agrees);
  TEST_RUN(layernorm_agrees);
  TEST_RUN(residual_agrees);
  TEST_RUN(linear_agrees);
  TEST_RUN(attention_agrees);
  TEST_RUN(attention_decode_agrees);
  TEST_RUN(cross_entropy_agrees);
  TEST_RUN(adamw_agrees);
  tri_stream_destroy(&cuda_stream);
  tri_stream_destroy(&cpu_stream);
  tri_device_close(&cuda);
  tri_device_close(&cpu);
  return test_end();
}
