// ranks: 1 2 3 4
// The gradient of a global batch is the same bits whatever the ranks, the overlap, the buckets and
// the slots: compared with the definition, computed on every rank alone from invented gradients.
#include "trireme/parallel/data_parallel.h"

#include <math.h>

#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { N_BLOCKS = 5, MOST_MICROBATCHES = 11 };

// Block sizes that buckets and slices do not divide; a block may be much larger than a bucket.
static const int64_t block_counts[N_BLOCKS] = {20000, 64, 4097, 960, 333};

static tri_parameter parameter_list[N_BLOCKS];
static tri_model model;
static int64_t flat_count;
static tri_comm *world;
static tri_device *device;
static tri_stream *stream;
static tri_transport *transport;

static void invent_model(void)
{
  flat_count = 0;
  for (int b = 0; b < N_BLOCKS; b++) {
    parameter_list[b] = (tri_parameter){.offset = flat_count, .count = block_counts[b], .block = b};
    flat_count +=
        (block_counts[b] + TRI_PARAMETER_ALIGN - 1) / TRI_PARAMETER_ALIGN * TRI_PARAMETER_ALIGN;
  }
  model =
      (tri_model){.n_blocks = N_BLOCKS,
                  .parameters = {.list = parameter_list, .n = N_BLOCKS, .flat_count = flat_count}};
}

// The gradient element that micro-batch m contributes: wide in magnitude, so that any other order
// of sums shows.
static float invented(int step, int m, int64_t element)
{
  const uint64_t bits = tri_random_u64((uint64_t)(step * 1000 + m), (uint64_t)element);
  return ldexpf((float)(int32_t)bits, (int)(bits >> 40) % 20 - 40);
}

static float definition(int step, const tri_data_parallel_options *options, int first, int end,
                        int64_t element)
{
  if (end - first == 1) {
    float sum = 0.0f;
    const int last = (first + 1) * options->leaf_microbatches;
    for (int m = first * options->leaf_microbatches; m < last && m < options->n_microbatches; m++) {
      sum += invented(step, m, element);
    }
    return sum;
  }
  const int half = 1 << (31 - __builtin_clz((unsigned)(end - first - 1)));
  return definition(step, options, first, first + half, element) +
         definition(step, options, first + half, end, element);
}

static void backward_of(tri_data_parallel *dp, int step, int m)
{
  float *gradients = NULL;
  EXPECT_OK(tri_data_parallel_gradients(dp, m, &gradients));
  for (int block = N_BLOCKS - 1; block >= 0; block--) {
    const tri_parameter *p = &parameter_list[block];
    for (int64_t i = p->offset; i < p->offset + p->count; i++)
      gradients[i] += invented(step, m, i);
    EXPECT_OK(tri_data_parallel_block_done(dp, m, block));
  }
}

static void run_step(tri_data_parallel *dp, const tri_data_parallel_options *options, int step)
{
  int first, end, wrong = 0;
  double own[MOST_MICROBATCHES], sum = 0, wanted[MOST_MICROBATCHES];
  tri_data_parallel_share(dp, &first, &end);
  const int64_t before = tri_memory_allocations();
  EXPECT_OK(tri_data_parallel_begin(dp));
  for (int m = first; m < end; m++)
    backward_of(dp, step, m);
  const float *gradient = NULL;
  EXPECT_OK(tri_data_parallel_wait(dp, &gradient));
  for (int m = first; m < end; m++)
    own[m - first] = sin(m + 1.0);
  EXPECT_OK(tri_data_parallel_sum(dp, "test", own, &sum));
  EXPECT(tri_memory_allocations() == before);
  for (int b = 0; b < N_BLOCKS; b++) {
    const tri_parameter *p = &parameter_list[b];
    for (int64_t i = p->offset; i < p->offset + p->count; i += 7) {
      wrong += gradient[i] != definition(step, options, 0, options->n_leaves, i);
    }
  }
  EXPECT(wrong == 0);
  for (int leaf = 0; leaf < options->n_leaves; leaf++) {
    wanted[leaf] = 0;
    for (int m = leaf * options->leaf_microbatches;
         m < (leaf + 1) * options->leaf_microbatches && m < options->n_microbatches; m++) {
      wanted[leaf] += sin(m + 1.0);
    }
  }
  EXPECT(sum == tri_sum_tree_double(wanted, options->n_leaves));
}

static void run_case(int n_microbatches, int group, bool overlap, int64_t bucket_bytes,
                     int in_flight)
{
  const tri_data_parallel_options options = {.n_leaves = (n_microbatches + group - 1) / group,
                                             .leaf_microbatches = group,
                                             .n_microbatches = n_microbatches,
                                             .overlap = overlap,
                                             .bucket_bytes = bucket_bytes,
                                             .in_flight = in_flight};
  tri_data_parallel *dp = NULL;
  EXPECT_OK(tri_data_parallel_create(transport, stream, &model, &options, &dp));
  if (dp == NULL) return;
  for (int step = 0; step < 2; step++)
    run_step(dp, &options, step);
  tri_data_parallel_destroy(&dp);
}

// The counts include fewer leaves than ranks: some ranks have an empty share.
TEST(gradient_is_the_definition)
{
  static const int counts[] = {1, 2, 3, 5, 8, MOST_MICROBATCHES};
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    for (int group = 1; group <= 3; group++)
      run_case(counts[c], group, true, 1 << 14, 2);
  }
}

// Through host memory, as devices with memory of their own need it.
TEST(staged_transport_changes_nothing)
{
  tri_transport *const host = transport;
  EXPECT_OK(tri_transport_create(world, device, "staged", NULL, &transport));
  for (int in_flight = 1; in_flight <= 3; in_flight += 2) {
    run_case(7, 1, true, 1 << 14, in_flight);
    run_case(2, 1, false, 1, in_flight);
    run_case(MOST_MICROBATCHES, 2, true, 1 << 20, in_flight);
  }
  tri_transport_destroy(&transport);
  transport = host;
}

TEST(overlap_buckets_and_slots_change_nothing)
{
  for (int in_flight = 1; in_flight <= 5; in_flight += 2) {
    for (int64_t bucket_bytes = 1; bucket_bytes < 1 << 20; bucket_bytes *= 64) {
      run_case(7, 1, true, bucket_bytes, in_flight);
      run_case(7, 1, false, bucket_bytes, in_flight);
    }
  }
}

TEST(bad_options_are_refused)
{
  tri_data_parallel_options options = {
      .n_leaves = 3, .leaf_microbatches = 1, .n_microbatches = 2, .in_flight = 1};
  tri_data_parallel *dp = NULL;
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "do not make a batch",
               tri_data_parallel_create(transport, stream, &model, &options, &dp));
  EXPECT(dp == NULL);
  options = (tri_data_parallel_options){
      .n_leaves = 1, .leaf_microbatches = 1, .n_microbatches = 1, .in_flight = 1, .fast = true};
  if (tri_comm_size(world) == 1) return;
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "parallel.reduce: exact",
               tri_data_parallel_create(transport, stream, &model, &options, &dp));
}

int main(void)
{
  invent_model();
  const tri_device_options options = {.kernels = "reference", .n_threads = 1};
  if (tri_comm_create_world(60, &world) != TRI_OK ||
      tri_device_open("cpu", &options, &device) != TRI_OK ||
      tri_stream_create(device, &stream) != TRI_OK ||
      tri_transport_create(world, device, "auto", NULL, &transport) != TRI_OK) {
    printf("not ok start: %s\n", tri_error_message());
    return 1;
  }
  TEST_RUN(gradient_is_the_definition);
  TEST_RUN(staged_transport_changes_nothing);
  TEST_RUN(overlap_buckets_and_slots_change_nothing);
  TEST_RUN(bad_options_are_refused);
  tri_transport_destroy(&transport);
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
  return test_end();
}
