// Every collective against what it must give, on any number of ranks.
// ranks: 1 2 3 4
// timeout: 60
#include "comm/comm_private.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/telemetry/clock.h"

static tri_comm *world;

// What rank r holds at byte i.
static uint8_t byte_of(int rank, size_t i)
{
  return (uint8_t)(rank * 71 + (int)(i % 251) * 13 + 5);
}

static void fill(uint8_t *data, size_t n, int rank)
{
  for (size_t i = 0; i < n; i++)
    data[i] = byte_of(rank, i);
}

static bool holds(const uint8_t *data, size_t n, int rank)
{
  for (size_t i = 0; i < n; i++)
    if (data[i] != byte_of(rank, i)) return false;
  return true;
}

static const size_t SIZES[] = {0, 1, 31, 32, 33, 257, 1000, 100003};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0], POISON = 0xee, GUARD = 8 };
static int n_sizes = N_SIZES; // that the tests use now

TEST(world_knows_its_ranks)
{
  EXPECT(tri_comm_rank(world) == test_rank());
  EXPECT(tri_comm_size(world) >= 1);
  EXPECT(tri_comm_local_rank(world) == tri_comm_rank(world)); // one host
  EXPECT(tri_comm_local_size(world) == tri_comm_size(world));
  EXPECT(strlen(tri_comm_library()) > 0 && strchr(tri_comm_library(), '\n') == NULL);
  tri_comm *none = NULL;
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "0 s", tri_comm_create_world(0, &none));
}

TEST(broadcast_gives_root_bytes_to_all)
{
  for (int root = 0; root < tri_comm_size(world); root++)
    for (int k = 0; k < n_sizes; k++) {
      const size_t n = SIZES[k];
      uint8_t *data = tri_calloc(TRI_MODULE_TEST, n + GUARD, 1);
      memset(data, POISON, n + GUARD);
      if (tri_comm_rank(world) == root) fill(data, n, root + 1);
      EXPECT_OK(tri_comm_broadcast(world, "bytes", data, n, root));
      EXPECT(holds(data, n, root + 1));
      EXPECT(data[n] == POISON);
      tri_free(data);
    }
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "root -1", tri_comm_broadcast(world, "bytes", NULL, 0, -1));
}

TEST(all_gather_gives_blocks_in_rank_order)
{
  const int size = tri_comm_size(world);
  for (int k = 0; k < n_sizes; k++) {
    const size_t n = SIZES[k];
    uint8_t *block = tri_calloc(TRI_MODULE_TEST, n, 1);
    uint8_t *out = tri_calloc(TRI_MODULE_TEST, n * (size_t)size + GUARD, 1);
    fill(block, n, tri_comm_rank(world));
    memset(out, POISON, n * (size_t)size + GUARD);
    EXPECT_OK(tri_comm_all_gather(world, "blocks", block, n, out));
    for (int r = 0; r < size; r++)
      EXPECT(holds(out + (size_t)r * n, n, r));
    EXPECT(out[n * (size_t)size] == POISON);
    tri_free(block);
    tri_free(out);
  }
}

// Rank r brings r * base bytes, so rank 0 brings none.
static void expect_gather(int root, size_t base)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  const size_t n = (size_t)rank * base;
  uint8_t *block = tri_calloc(TRI_MODULE_TEST, n, 1);
  int64_t *sizes = NULL;
  void *out = NULL;
  fill(block, n, rank);
  EXPECT_OK(tri_comm_gather(world, "blocks", block, n, root, &sizes, &out));
  EXPECT((sizes != NULL) == (rank == root) && (out != NULL) == (rank == root));
  size_t offset = 0;
  for (int r = 0; rank == root && r < size; r++) {
    EXPECT(sizes[r] == (int64_t)((size_t)r * base));
    EXPECT(holds((uint8_t *)out + offset, (size_t)r * base, r));
    offset += (size_t)r * base;
  }
  tri_free(block);
  tri_free(sizes);
  tri_free(out);
}

TEST(gather_gives_blocks_of_any_size_to_root)
{
  for (int root = 0; root < tri_comm_size(world); root++)
    for (int k = 0; k < n_sizes; k++)
      expect_gather(root, SIZES[k]);
}

// The path of messages above what one MPI call takes, at a size that fits a test.
TEST(chunks_do_not_change_results)
{
  const size_t usual = world->chunk_bytes;
  const size_t chunks[] = {1, 7, 256, 33333};
  for (int i = 0; i < 4; i++) {
    world->chunk_bytes = chunks[i];
    n_sizes = chunks[i] < 1000 ? N_SIZES - 1 : N_SIZES;
    broadcast_gives_root_bytes_to_all();
    all_gather_gives_blocks_in_rank_order();
    gather_gives_blocks_of_any_size_to_root();
  }
  world->chunk_bytes = usual;
  n_sizes = N_SIZES;
}

TEST(max_is_over_all_ranks)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  int64_t most = 0;
  EXPECT_OK(tri_comm_max(world, "flag", rank == size - 1 ? INT64_MAX - 1 : 3, &most));
  EXPECT(most == INT64_MAX - 1);
  EXPECT_OK(tri_comm_max(world, "flag", -5 - rank, &most));
  EXPECT(most == -5);
  EXPECT_OK(tri_comm_max(world, "flag", INT64_MIN, &most));
  EXPECT(most == INT64_MIN);
}

TEST(split_orders_by_key_and_counts_apart)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  tri_comm *half = NULL;
  EXPECT_OK(tri_comm_split(world, "half", rank % 2, -rank, &half));
  EXPECT(tri_comm_size(half) == (size + 1 - rank % 2) / 2);
  // Keys fall with the rank, so the order is turned round.
  EXPECT(tri_comm_rank(half) == tri_comm_size(half) - 1 - rank / 2);
  EXPECT(tri_comm_operations(half) == 0);
  int64_t most = 0;
  EXPECT_OK(tri_comm_max(half, "rank", rank, &most));
  EXPECT(most % 2 == rank % 2 && most + 2 >= size);
  EXPECT(tri_comm_operations(half) == 1);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "colour -1", tri_comm_split(world, "none", -1, 0, &half));
  tri_comm_destroy(&half);
  EXPECT(half == NULL);
  tri_comm_destroy(&half);
}

// Equal colours on all: the old order stays, and names do not make communicators one.
TEST(split_keeps_the_old_order_for_equal_keys)
{
  tri_comm *a = NULL, *b = NULL;
  EXPECT_OK(tri_comm_split(world, "twin", 3, 0, &a));
  EXPECT_OK(tri_comm_split(world, "twin", 3, 0, &b));
  EXPECT(tri_comm_rank(a) == tri_comm_rank(world) && tri_comm_size(b) == tri_comm_size(world));
  EXPECT(a->id != b->id);
  tri_comm_destroy(&a);
  tri_comm_destroy(&b);
}

TEST(agree_names_the_culprit)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  for (int culprit = 0; culprit < size; culprit++) {
    tri_error_clear();
    tri_status status = TRI_OK;
    if (rank == culprit) status = TRI_ERROR(TRI_ERR_IO, "disk %d is full", culprit);
    char wanted[128];
    snprintf(wanted, sizeof wanted, "rank %d: input/output error: disk %d is full", culprit,
             culprit);
    if (rank == culprit)
      EXPECT_ERROR(TRI_ERR_IO, "disk", tri_comm_agree(world, "disk", status));
    else
      EXPECT_ERROR(TRI_ERR_PEER, wanted, tri_comm_agree(world, "disk", status));
    // The error text goes on unchanged through an agreement further out.
    status = rank == culprit ? TRI_ERR_IO : TRI_ERR_PEER;
    if (rank == culprit)
      EXPECT_ERROR(TRI_ERR_IO, "disk", tri_comm_agree(world, "disk", status));
    else
      EXPECT_ERROR(TRI_ERR_PEER, wanted, tri_comm_agree(world, "disk", status));
  }
  EXPECT_OK(tri_comm_agree(world, "disk", TRI_OK));
}

TEST(agree_takes_the_lowest_of_two_culprits)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  if (size < 3) return;
  tri_status status = TRI_OK;
  if (rank >= 1) status = TRI_ERROR(rank == 1 ? TRI_ERR_FORMAT : TRI_ERR_CONFIG, "bad %d", rank);
  if (rank == 0)
    EXPECT_ERROR(TRI_ERR_PEER, "rank 1: damaged file: bad 1",
                 tri_comm_agree(world, "file", status));
  else if (rank == 1)
    EXPECT_ERROR(TRI_ERR_FORMAT, "bad 1", tri_comm_agree(world, "file", status));
  else
    EXPECT_ERROR(TRI_ERR_CONFIG, "bad", tri_comm_agree(world, "file", status));
}

TEST(agree_passes_a_peer_on_when_nobody_owns_the_error)
{
  const int size = tri_comm_size(world);
  const bool speaks = tri_comm_rank(world) == size - 1;
  tri_status status = speaks ? TRI_ERROR(TRI_ERR_PEER, "rank 9: it broke") : TRI_OK;
  EXPECT_ERROR(TRI_ERR_PEER, "rank 9: it broke", tri_comm_agree(world, "peer", status));
}

TEST(operations_bytes_and_waits_are_counted)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  const int64_t operations = tri_comm_operations(world), bytes = tri_comm_bytes_sent(world);
  const double waits = tri_comm_wait_seconds(world);
  uint8_t data[100] = {0}, all[400];
  EXPECT_OK(tri_comm_barrier(world, "start"));
  EXPECT_OK(tri_comm_broadcast(world, "data", data, 100, 0));
  EXPECT_OK(tri_comm_all_gather(world, "data", data, 100, all));
  EXPECT(tri_comm_operations(world) == operations + 3);
  EXPECT(tri_comm_bytes_sent(world) == bytes + (rank == 0 ? 200 : 100) * (size - 1));
  EXPECT(tri_comm_wait_seconds(world) >= waits);

  // The others wait for rank 0 for 50 ms.
  EXPECT_OK(tri_comm_barrier(world, "start"));
  const double before = tri_comm_wait_seconds(world), start = tri_clock_seconds();
  while (rank == 0 && tri_clock_seconds() - start < 0.05)
    tri_comm_rest(0.01);
  EXPECT_OK(tri_comm_barrier(world, "late"));
  const double waited = tri_comm_wait_seconds(world) - before;
  if (rank != 0) EXPECT(waited > 0.02 && waited < 5);
}

int main(void)
{
  if (tri_comm_create_world(30, &world) != TRI_OK) {
    printf("not ok create_world: %s\n", tri_error_message());
    return 1;
  }
  TEST_RUN(world_knows_its_ranks);
  TEST_RUN(broadcast_gives_root_bytes_to_all);
  TEST_RUN(all_gather_gives_blocks_in_rank_order);
  TEST_RUN(gather_gives_blocks_of_any_size_to_root);
  TEST_RUN(chunks_do_not_change_results);
  TEST_RUN(max_is_over_all_ranks);
  TEST_RUN(split_orders_by_key_and_counts_apart);
  TEST_RUN(split_keeps_the_old_order_for_equal_keys);
  TEST_RUN(agree_names_the_culprit);
  TEST_RUN(agree_takes_the_lowest_of_two_culprits);
  TEST_RUN(agree_passes_a_peer_on_when_nobody_owns_the_error);
  TEST_RUN(operations_bytes_and_waits_are_counted);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
  return test_end();
}
