// ranks: 1 2 3 4
// The gradient of a global batch is the same bits whatever the ranks, the transport, the overlap,
// the buckets and the slots: compared with the definition, computed on every rank alone from
// invented gradients.
//
// data_parallel_test [DEVICE TRANSPORT …]: "cpu host staged" by default; "cuda:rank" gives each
// rank a device of its own. The host waits for the device only after all steps of a case, so that
// on late streams a missing event shows.
#include "trireme/parallel/data_parallel.h"

#include <math.h>

#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { N_BLOCKS = 5, MOST_MICROBATCHES = 11 };
// Steps differ in their gradients; those of the last are whole numbers, whose sum has no order.
enum { N_STEPS = 3, WHOLE_STEP = 2 };

// Block sizes that buckets and slices do not divide; a block may be much larger than a bucket.
static const int64_t block_counts[N_BLOCKS] = {20000, 64, 4097, 960, 333};

static tri_parameter parameter_list[N_BLOCKS];
static int64_t offsets[N_BLOCKS + 1];
static tri_model model;
static int64_t flat_count; // of the flat space and the second use of the first array after it
static tri_comm *world;
static tri_device *device;
static tri_stream *stream;
static tri_transport *transport;
static float *gradients_of[N_STEPS][MOST_MICROBATCHES]; // device: flat_count each
static float *results[N_STEPS];                         // pinned: flat_count each

// The first array is tied: its second use is in the last block.
static void invent_model(void)
{
  flat_count = 0;
  for (int b = 0; b < N_BLOCKS; b++) {
    offsets[b] = flat_count;
    parameter_list[b] = (tri_parameter){.offset = flat_count, .count = block_counts[b], .block = b};
    flat_count += (block_counts[b] + TRI_NORM_CHUNK - 1) / TRI_NORM_CHUNK * TRI_NORM_CHUNK;
  }
  offsets[N_BLOCKS] = flat_count;
  model = (tri_model){.n_blocks = N_BLOCKS,
                      .parameters = {.list = parameter_list,
                                     .n = N_BLOCKS,
                                     .flat_count = flat_count,
                                     .n_blocks = N_BLOCKS,
                                     .offsets = offsets,
                                     .tied_count = block_counts[0]}};
  flat_count += block_counts[0];
}

// The gradient element that micro-batch m contributes: wide in magnitude, so that any other order
// of sums shows.
static float invented(int step, int m, int64_t element)
{
  const uint64_t bits = tri_random_u64((uint64_t)(step * 1000 + m), (uint64_t)element);
  if (step == WHOLE_STEP) return (float)((int)(bits % 2001) - 1000);
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

static void add_invented(float *into, int step, int m, int64_t first, int64_t count)
{
  EXPECT_OK(
      tri_device_kernels(device)->add(stream, into, into, gradients_of[step][m] + first, count));
}

// Blocks [first, end) of the i-th micro-batch of this rank. What is computed in the place of one
// that is not there must not count.
static void backward_of(tri_data_parallel *dp, int step, int i, int first, int end)
{
  const int number = tri_data_parallel_microbatch(dp, i);
  const int m = number < 0 ? MOST_MICROBATCHES - 1 : number;
  for (int block = end - 1; block >= first; block--) {
    const tri_parameter *p = &parameter_list[block];
    float *gradients = NULL, *again = NULL, *tied = NULL;
    EXPECT_OK(tri_data_parallel_gradients(dp, i, block, &gradients, &tied));
    if (block == N_BLOCKS - 1) add_invented(tied, step, m, offsets[N_BLOCKS], block_counts[0]);
    EXPECT_OK(tri_data_parallel_gradients(dp, i, block, &again, &tied));
    EXPECT(again == gradients);
    add_invented(gradients, step, m, p->offset, p->count);
    EXPECT_OK(tri_data_parallel_block_done(dp, i, block));
  }
}

// All micro-batches of this rank, with chunks each ahead of the one before by one, as in a
// pipeline.
static void run_share(tri_data_parallel *dp, const tri_data_parallel_options *options, int step)
{
  const int n = options->first_blocks == NULL ? 1 : options->n_chunks;
  const int count = tri_data_parallel_count(dp);
  for (int turn = 0; turn < count + n - 1; turn++) {
    for (int chunk = n - 1; chunk >= 0; chunk--) {
      const int i = turn - (n - 1 - chunk);
      const int from = n == 1 ? 0 : options->first_blocks[chunk];
      if (i >= 0 && i < count)
        backward_of(dp, step, i, from,
                    chunk == n - 1 ? N_BLOCKS : options->first_blocks[chunk + 1]);
    }
  }
}

static void expect_sum_of_numbers(tri_data_parallel *dp, const tri_data_parallel_options *options)
{
  double own[MOST_MICROBATCHES], sum = 0, wanted[MOST_MICROBATCHES];
  for (int i = 0; i < tri_data_parallel_count(dp); i++)
    own[i] = sin(tri_data_parallel_microbatch(dp, i) + 1.0);
  EXPECT_OK(tri_data_parallel_sum(dp, "test", own, &sum));
  for (int leaf = 0; leaf < options->n_leaves; leaf++) {
    wanted[leaf] = 0;
    for (int m = leaf * options->leaf_microbatches;
         m < (leaf + 1) * options->leaf_microbatches && m < options->n_microbatches; m++) {
      wanted[leaf] += sin(m + 1.0);
    }
  }
  EXPECT(sum == tri_sum_tree_double(wanted, options->n_leaves));
}

// What this rank has of the gradient, on the way to the host, at its place in the flat space.
static void fetch(tri_data_parallel *dp, int step, const float *gradient, const float *tied)
{
  const tri_owned_range *owned;
  const int n = tri_data_parallel_owned(dp, &owned);
  for (int r = 0; r < n; r++)
    EXPECT_OK(tri_stream_copy_to_host(stream, results[step] + owned[r].first,
                                      gradient + owned[r].gradient_at,
                                      (size_t)(owned[r].end - owned[r].first) * sizeof(float)));
  EXPECT((tied != NULL) == (model.parameters.tied < 0));
  if (tied != NULL)
    EXPECT_OK(tri_stream_copy_to_host(stream, results[step] + offsets[N_BLOCKS], tied,
                                      (size_t)block_counts[0] * sizeof(float)));
}

static void run_step(tri_data_parallel *dp, const tri_data_parallel_options *options, int step)
{
  const int64_t before = tri_memory_allocations();
  EXPECT_OK(tri_data_parallel_begin(dp));
  run_share(dp, options, step);
  float *gradient = NULL, *tied = NULL;
  EXPECT_OK(tri_data_parallel_wait(dp, &gradient, &tied));
  fetch(dp, step, gradient, tied);
  expect_sum_of_numbers(dp, options);
  EXPECT(tri_memory_allocations() == before);
}

// Whether this rank was given the element's sum.
static bool is_owned(tri_data_parallel *dp, int64_t element)
{
  const tri_owned_range *ranges;
  const int n = tri_data_parallel_owned(dp, &ranges);
  for (int i = 0; i < n; i++) {
    if (element >= ranges[i].first && element < ranges[i].end) return true;
  }
  return false;
}

static void expect_definition(tri_data_parallel *dp, const tri_data_parallel_options *options,
                              int step)
{
  const int n = options->n_leaves;
  const bool held = model.parameters.tied >= 0;
  int wrong = 0;
  for (int64_t i = 0; !held && i < block_counts[0]; i += 7)
    wrong += results[step][offsets[N_BLOCKS] + i] !=
             definition(step, options, 0, n, offsets[N_BLOCKS] + i);
  for (int b = 0; b < N_BLOCKS; b++) {
    const tri_parameter *p = &parameter_list[b];
    for (int64_t i = 0; i < p->count; i += 7) {
      float wanted = definition(step, options, 0, n, p->offset + i);
      if (b == 0 && held) wanted += definition(step, options, 0, n, offsets[N_BLOCKS] + i);
      wrong += is_owned(dp, p->offset + i) && results[step][p->offset + i] != wanted;
    }
  }
  EXPECT(wrong == 0);
}

static void run_options(const tri_data_parallel_options *options)
{
  const int first_step = options->fast ? WHOLE_STEP : 0;
  tri_data_parallel *dp = NULL;
  EXPECT_OK(tri_data_parallel_create(transport, stream, &model, options, &dp));
  if (dp == NULL) return;
  for (int step = first_step; step < N_STEPS; step++)
    run_step(dp, options, step);
  EXPECT_OK(tri_data_parallel_synchronize(dp));
  EXPECT_OK(tri_stream_synchronize(stream));
  for (int step = first_step; step < N_STEPS; step++)
    expect_definition(dp, options, step);
  tri_data_parallel_destroy(&dp);
}

static tri_data_parallel_options case_of(int n_microbatches, int group, bool overlap,
                                         int64_t bucket_bytes, int in_flight)
{
  return (tri_data_parallel_options){.n_leaves = (n_microbatches + group - 1) / group,
                                     .leaf_microbatches = group,
                                     .n_microbatches = n_microbatches,
                                     .overlap = overlap,
                                     .bucket_bytes = bucket_bytes,
                                     .in_flight = in_flight};
}

static void run_case(int n_microbatches, int group, bool overlap, int64_t bucket_bytes,
                     int in_flight)
{
  const tri_data_parallel_options options =
      case_of(n_microbatches, group, overlap, bucket_bytes, in_flight);
  run_options(&options);
}

// A slow build runs the fewest cases in which every kind of step occurs.
#ifdef TEST_QUICK
static const int counts[] = {1, 5};
enum { MOST_GROUP = 1, MOST_IN_FLIGHT = 1 };
#else
static const int counts[] = {1, 2, 3, 5, 8, MOST_MICROBATCHES};
enum { MOST_GROUP = 3, MOST_IN_FLIGHT = 5 };
#endif

// The counts include fewer leaves than ranks: some ranks have an empty share.
TEST(gradient_is_the_definition)
{
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    for (int group = 1; group <= MOST_GROUP; group++)
      run_case(counts[c], group, true, 1 << 14, 2);
  }
}

TEST(overlap_buckets_and_slots_change_nothing)
{
  for (int in_flight = 1; in_flight <= MOST_IN_FLIGHT; in_flight += 2) {
    for (int64_t bucket_bytes = 1; bucket_bytes < 1 << 20; bucket_bytes *= 64) {
      run_case(7, 1, true, bucket_bytes, in_flight);
      run_case(7, 1, false, bucket_bytes, in_flight);
    }
  }
}

// Chunks of a pipeline stage run apart, each ahead of the one before.
TEST(chunks_change_nothing)
{
  static const int first_blocks[] = {0, 2, 3};
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    tri_data_parallel_options options = case_of(counts[c], MOST_GROUP, true, 1 << 17, 2);
    options.first_blocks = first_blocks;
    options.n_chunks = 3;
    run_options(&options);
  }
}

// Every element has one owner; what the owners have comes to all.
static void expect_owners(tri_data_parallel *dp)
{
  const int64_t flat = model.parameters.flat_count;
  const size_t bytes = (size_t)flat * sizeof(float);
  const tri_owned_range *ranges;
  float *array = NULL;
  int64_t at = 0, total = 0;
  int wrong = 0;
  const int n = tri_data_parallel_owned(dp, &ranges);
  float *host = results[WHOLE_STEP];
  memset(host, 0, bytes);
  for (int i = 0; i < n; i++) {
    EXPECT(ranges[i].at == at && ranges[i].first % TRI_NORM_CHUNK == 0);
    EXPECT(i == 0 || ranges[i].first >= ranges[i - 1].end);
    for (int64_t e = ranges[i].first; e < ranges[i].end; e++)
      host[e] = (float)(e % 1000 + 1);
    at += ranges[i].end - ranges[i].first;
  }
  int64_t *owned = calloc((size_t)tri_comm_size(world), sizeof *owned);
  EXPECT_OK(tri_comm_all_gather(world, "owned", &at, sizeof at, owned));
  for (int r = 0; r < tri_comm_size(world); r++)
    total += owned[r];
  EXPECT(total == flat);
  free(owned);
  EXPECT_OK(tri_device_alloc(device, bytes, (void **)&array));
  EXPECT_OK(tri_stream_copy_to_device(stream, array, host, bytes));
  EXPECT_OK(tri_data_parallel_gather_weights(dp, array, TRI_DTYPE_F32));
  EXPECT_OK(tri_stream_copy_to_host(stream, host, array, bytes));
  EXPECT_OK(tri_data_parallel_synchronize(dp));
  EXPECT_OK(tri_stream_synchronize(stream));
  for (int64_t e = 0; e < flat; e++)
    wrong += host[e] != (float)(e % 1000 + 1);
  EXPECT(wrong == 0);
  tri_device_free(device, (void **)&array);
}

TEST(owners_have_the_sums_and_give_all_to_all)
{
  for (int64_t bucket_bytes = 1 << 14; bucket_bytes <= 1 << 20; bucket_bytes *= 64) {
    tri_data_parallel_options options = case_of(5, 1, true, bucket_bytes, 2);
    tri_data_parallel *dp = NULL;
    for (options.zero = 1; options.zero <= 2; options.zero++) {
      run_options(&options);
      EXPECT_OK(tri_data_parallel_create(transport, stream, &model, &options, &dp));
      if (dp == NULL) return;
      if (tri_comm_size(world) > 1) expect_owners(dp);
      tri_data_parallel_destroy(&dp);
    }
  }
}

// No rank has a whole gradient: in all that may differ, uneven rounds and ranks without a
// micro-batch included, and where the array of the second use is held or not.
TEST(slices_alone_have_the_same_sums)
{
  static const int first_blocks[] = {0, 2, 3};
  for (int tied = 0; tied >= -1; tied--) {
    model.parameters.tied = tied;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
      for (int group = 1; group <= MOST_GROUP; group++) {
        tri_data_parallel_options options =
            case_of(counts[c], group, c % 2 == 0, group == 1 ? 1 << 14 : 1 << 20, 1 + (int)c % 3);
        options.zero = 2;
        run_options(&options);
        options.first_blocks = first_blocks;
        options.n_chunks = 3;
        run_options(&options);
      }
    }
  }
  model.parameters.tied = 0;
}

// The library's sum, or an error that says what to take instead.
TEST(fast_sums_are_right_or_refused)
{
  tri_transport_facts facts;
  tri_data_parallel *dp = NULL;
  tri_data_parallel_options options = {.leaf_microbatches = 1,
                                       .overlap = true,
                                       .bucket_bytes = 1 << 14,
                                       .in_flight = 2,
                                       .fast = true};
  tri_transport_get_facts(transport, &facts);
  for (int n = 1; n <= MOST_MICROBATCHES; n += 3) {
    options.n_leaves = options.n_microbatches = n;
    if (facts.sums || tri_comm_size(world) == 1)
      run_options(&options);
    else
      EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "parallel.reduce: exact",
                   tri_data_parallel_create(transport, stream, &model, &options, &dp));
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
}

static void run_transport(const char *name)
{
  test_name = name;
  EXPECT_OK(tri_transport_create(world, device, name, NULL, &transport));
  if (transport == NULL) {
    test_failures++;
    return;
  }
  if (test_rank() == 0) printf("== %s\n", name);
  TEST_RUN(gradient_is_the_definition);
  TEST_RUN(overlap_buckets_and_slots_change_nothing);
  TEST_RUN(chunks_change_nothing);
  TEST_RUN(owners_have_the_sums_and_give_all_to_all);
  TEST_RUN(slices_alone_have_the_same_sums);
  TEST_RUN(fast_sums_are_right_or_refused);
  TEST_RUN(bad_options_are_refused);
  EXPECT_OK(tri_transport_finish(transport));
  tri_transport_destroy(&transport);
}

// All gradients that there will be, on the device.
static void invent_gradients(void)
{
  const size_t bytes = (size_t)flat_count * sizeof(float);
  float *host = NULL;
  EXPECT_OK(tri_device_alloc_host(device, bytes, (void **)&host));
  for (int step = 0; step < N_STEPS; step++) {
    EXPECT_OK(tri_device_alloc_host(device, bytes, (void **)&results[step]));
    for (int m = 0; m < MOST_MICROBATCHES; m++) {
      EXPECT_OK(tri_device_alloc(device, bytes, (void **)&gradients_of[step][m]));
      for (int64_t i = 0; i < flat_count; i++)
        host[i] = invented(step, m, i);
      EXPECT_OK(tri_stream_copy_to_device(stream, gradients_of[step][m], host, bytes));
      EXPECT_OK(tri_stream_synchronize(stream));
    }
  }
  tri_device_free_host(device, (void **)&host);
}

static void forget_gradients(void)
{
  for (int step = 0; step < N_STEPS; step++) {
    tri_device_free_host(device, (void **)&results[step]);
    for (int m = 0; m < MOST_MICROBATCHES; m++)
      tri_device_free(device, (void **)&gradients_of[step][m]);
  }
}

static bool open_all(const char *name)
{
  const tri_device_options options = {.kernels = "reference", .n_threads = 1};
  char own_name[32];
  test_name = "start";
  EXPECT_OK(tri_comm_create_world(60, &world));
  if (world == NULL) return false;
  snprintf(own_name, sizeof own_name, "cuda:%d", tri_comm_local_rank(world));
  EXPECT_OK(tri_device_open(strcmp(name, "cuda:rank") == 0 ? own_name : name, &options, &device));
  if (device == NULL) return false;
  EXPECT_OK(tri_stream_create(device, &stream));
  return stream != NULL;
}

int main(int argc, char **argv)
{
  const char *const usual[] = {"cpu", "host", "staged"};
  const char *const *names = argc > 1 ? (const char *const *)argv + 1 : usual;
  const int n_names = argc > 1 ? argc - 1 : 3;
  invent_model();
  if (!open_all(names[0])) return 1;
  invent_gradients();
  for (int i = 1; i < n_names; i++)
    run_transport(names[i]);
  forget_gradients();
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
  return test_end();
}
