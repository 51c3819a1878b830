// ranks: 1 2 3 4
// Weights that no rank holds whole: each block that is taken has those of its last renewal, in
// whatever order blocks are taken and foretold, and the bytes sent are those of the blocks that
// were not there.
#include "trireme/parallel/block_weights.h"

#include "parallel/weight_places.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { N_BLOCKS = 7, MOST_TAKES = 64 };

// A block larger than a bucket, one with fewer chunks than ranks, sizes that slices do not divide.
static const int64_t chunks_of[N_BLOCKS] = {21, 4, 1, 9, 3, 6, 1};

static tri_parameter tied_array = {.offset = 2 * TRI_NORM_CHUNK, .count = 1000, .block = 0};
static int64_t offsets[N_BLOCKS + 1];
static tri_model model;
static tri_comm *world;
static tri_device *device;
static tri_stream *stream;

static void invent_model(int tied, tri_dtype dtype)
{
  for (int b = 0; b < N_BLOCKS; b++)
    offsets[b + 1] = offsets[b] + chunks_of[b] * TRI_NORM_CHUNK;
  model = (tri_model){.n_blocks = N_BLOCKS,
                      .dtype = dtype,
                      .parameters = {.list = &tied_array,
                                     .n = 1,
                                     .flat_count = offsets[N_BLOCKS],
                                     .n_blocks = N_BLOCKS,
                                     .offsets = offsets,
                                     .tied_count = 1000,
                                     .tied = tied}};
}

static uint16_t bits_of(int renewal, int64_t element)
{
  return (uint16_t)tri_random_u64((uint64_t)renewal, (uint64_t)element);
}

typedef struct rig {
  tri_transport *transport;
  tri_data_parallel *dp;
  tri_block_weights *weights;
  void *owned, *seen; // device
  char *host;
  const tri_owned_range *ranges;
  int n_ranges, renewal;
} rig;

static bool open_rig(rig *r, const char *transport, int tied, tri_dtype dtype)
{
  const tri_data_parallel_options options = {.n_leaves = 2,
                                             .leaf_microbatches = 1,
                                             .n_microbatches = 2,
                                             .bucket_bytes = 5 * TRI_NORM_CHUNK * 4,
                                             .in_flight = 2,
                                             .zero = 3};
  *r = (rig){0};
  invent_model(tied, dtype);
  const size_t bytes = (size_t)offsets[N_BLOCKS] * sizeof(float);
  EXPECT_OK(tri_transport_create(world, device, transport, NULL, &r->transport));
  EXPECT_OK(tri_data_parallel_create(r->transport, stream, &model, &options, &r->dp));
  if (r->dp == NULL) return false;
  EXPECT_OK(tri_block_weights_create(world, stream, &model, r->dp, transport, &r->weights));
  if (r->weights == NULL) return false;
  r->n_ranges = tri_data_parallel_owned(r->dp, &r->ranges);
  EXPECT_OK(tri_device_alloc(device, bytes, &r->owned));
  EXPECT_OK(tri_device_alloc(device, bytes, &r->seen));
  EXPECT_OK(tri_device_alloc_host(device, bytes, (void **)&r->host));
  return true;
}

static void close_rig(rig *r)
{
  EXPECT_OK(tri_block_weights_finish(r->weights));
  EXPECT_OK(tri_transport_finish(r->transport));
  tri_block_weights_destroy(&r->weights);
  tri_transport_destroy(&r->transport);
  tri_data_parallel_destroy(&r->dp);
  tri_device_free(device, &r->owned);
  tri_device_free(device, &r->seen);
  tri_device_free_host(device, (void **)&r->host);
}

static void put(char *array, int64_t i, int renewal, int64_t element)
{
  const size_t size = tri_dtype_size(model.dtype);
  const uint32_t bits = bits_of(renewal, element);
  memcpy(array + (size_t)i * size, &bits, size);
}

static void renew(rig *r)
{
  const size_t size = tri_dtype_size(model.dtype);
  int64_t n = 0;
  r->renewal++;
  for (int i = 0; i < r->n_ranges; i++) {
    for (int64_t e = r->ranges[i].first; e < r->ranges[i].end; e++)
      put(r->host, n++, r->renewal, e);
  }
  EXPECT_OK(tri_stream_copy_to_device(stream, r->owned, r->host, (size_t)n * size));
  EXPECT_OK(tri_stream_synchronize(stream));
  tri_block_weights_renew(r->weights, r->owned);
}

// Elements from `element` on, of which the rank has just been given `array`.
static void expect_weights(rig *r, const void *array, int64_t element, int64_t n)
{
  const size_t size = tri_dtype_size(model.dtype);
  char wanted[sizeof(float)];
  int wrong = 0;
  EXPECT(array != NULL);
  if (array == NULL) return;
  EXPECT_OK(tri_stream_copy_to_host(stream, r->host, array, (size_t)n * size));
  EXPECT_OK(tri_stream_synchronize(stream));
  for (int64_t i = 0; i < n; i++) {
    put(wanted, 0, r->renewal, element + i);
    wrong += memcmp(r->host + (size_t)i * size, wanted, size) != 0;
  }
  EXPECT(wrong == 0);
}

static void take(rig *r, int block, int next)
{
  const void *weights = NULL, *tied = NULL;
  const bool uses_tied = block == N_BLOCKS - 1 && model.parameters.tied >= 0;
  const int64_t before = tri_memory_allocations();
  EXPECT_OK(tri_block_weights_take(r->weights, block, next, &weights, &tied));
  EXPECT_OK(tri_block_weights_progress(r->weights));
  EXPECT(tri_memory_allocations() == before);
  expect_weights(r, weights, offsets[block], offsets[block + 1] - offsets[block]);
  EXPECT((tied != NULL) == uses_tied);
  if (uses_tied) expect_weights(r, tied, tied_array.offset, tied_array.count);
}

// Bytes that this rank gives others of its slices of a block, gathered so many times.
static int64_t bytes_of(const rig *r, int block, int n_gathers)
{
  int64_t own = 0;
  for (int i = 0; i < r->n_ranges; i++) {
    const tri_owned_range *range = &r->ranges[i];
    const int64_t from = range->first > offsets[block] ? range->first : offsets[block];
    const int64_t to = range->end < offsets[block + 1] ? range->end : offsets[block + 1];
    if (from < to) own += to - from;
  }
  return n_gathers * (tri_comm_size(world) - 1) * own * (int64_t)tri_dtype_size(model.dtype);
}

// Takes blocks, each foretold by the one before, between two renewals.
static void run_takes(rig *r, const int *takes, int n)
{
  int gathers[N_BLOCKS] = {0};
  int64_t wanted = 0;
  const int64_t before = tri_block_weights_bytes_sent(r->weights);
  renew(r);
  for (int i = 0; i < n; i++)
    take(r, takes[i], i + 1 < n ? takes[i + 1] : -1);
  tri_block_weights_count(N_BLOCKS, model.parameters.tied < 0 ? -1 : 0, takes, n, gathers);
  for (int block = 0; block < N_BLOCKS; block++)
    wanted += bytes_of(r, block, gathers[block]);
  EXPECT(tri_block_weights_bytes_sent(r->weights) - before == wanted);
}

// Micro-batches of forward and backward passes, as on one stage.
static int list_passes(int n_microbatches, int *takes)
{
  int n = 0;
  for (int m = 0; m < n_microbatches; m++) {
    for (int block = 0; block < N_BLOCKS; block++)
      takes[n++] = block;
    for (int block = N_BLOCKS - 1; block >= 0; block--)
      takes[n++] = block;
  }
  return n;
}

static void run_all(const char *transport)
{
  int takes[MOST_TAKES];
  rig r;
  for (int tied = 0; tied >= -1; tied--) {
    for (int half = 0; half < 2; half++) {
      if (!open_rig(&r, transport, tied, half ? TRI_DTYPE_BF16 : TRI_DTYPE_F32)) return;
      run_takes(&r, takes, list_passes(1, takes));
      run_takes(&r, takes, list_passes(3, takes));
      for (int seed = 0; seed < 4; seed++) {
        for (int i = 0; i < MOST_TAKES; i++)
          takes[i] = (int)(tri_random_u64((uint64_t)seed, (uint64_t)i) % N_BLOCKS);
        run_takes(&r, takes, MOST_TAKES);
      }
      close_rig(&r);
    }
  }
}

TEST(blocks_have_the_weights_of_the_last_renewal)
{
  run_all("staged");
  run_all("host");
}

// What was foretold and is not taken does no harm.
TEST(what_is_foretold_may_not_come)
{
  rig r;
  if (!open_rig(&r, "host", 0, TRI_DTYPE_F32)) return;
  for (int i = 0; i < 20; i++) {
    if (i % 3 == 0) renew(&r);
    take(&r, i % N_BLOCKS, 3 * i % N_BLOCKS);
  }
  close_rig(&r);
}

// By hand: five blocks that take turns, m micro-batches. All are gathered once, forward; the last
// two are still there for backward, the first two for the next forward.
TEST(what_is_still_there_is_not_gathered_again)
{
  int takes[MOST_TAKES], gathers[N_BLOCKS] = {0};
  tri_block_weights_count(N_BLOCKS, 0, takes, list_passes(4, takes), gathers);
  static const int wanted[N_BLOCKS] = {1, 5, 5, 8, 4, 4, 1};
  for (int block = 0; block < N_BLOCKS; block++)
    EXPECT(gathers[block] == wanted[block]);
}

int main(void)
{
  const tri_device_options options = {.kernels = "reference", .n_threads = 1};
  EXPECT_OK(tri_comm_create_world(60, &world));
  EXPECT_OK(tri_device_open("cpu", &options, &device));
  EXPECT_OK(tri_stream_create(device, &stream));
  if (stream == NULL) return 1;
  TEST_RUN(what_is_still_there_is_not_gathered_again);
  if (tri_comm_size(world) > 1) {
    TEST_RUN(blocks_have_the_weights_of_the_last_renewal);
    TEST_RUN(what_is_foretold_may_not_come);
  }
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
  return test_end();
}
