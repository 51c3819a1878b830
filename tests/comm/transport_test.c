// ranks: 1 2 3 4
// timeout: 120
// Every transport moves every byte to its place, in stream order: an all-to-all with several groups
// open on two streams, any order of completion, sizes of zero and more, no allocation in a step.
//
// transport_test [DEVICE TRANSPORT …]: "cpu host staged" by default; "cuda:rank" gives each rank a
// device of its own. Device memory is touched by copies only, so that the same program runs on a
// device whose streams run late.
#include "comm/transport_private.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { MAX_RANKS = 4, N_GROUPS = 5, N_TAGS = 2, POISON = 0xee, GUARD = 8 };
enum { MAX_BYTES = 5000, SLOT_BYTES = MAX_BYTES + GUARD, N_SLOTS = MAX_RANKS * N_TAGS };
enum { SIDE_BYTES = N_SLOTS * SLOT_BYTES };

static tri_comm *world;
static tri_device *device;
static tri_transport *transport; // the one under test
static bool in_stream_order;     // groups are done at once
static bool own_device;          // no two ranks share one

// The buffers of one group, a slot for each peer and tag: on the device, and pinned.
typedef struct group {
  char *sent, *received;           // device
  uint8_t *pattern, *poison, *out; // pinned
  tri_message sends[N_SLOTS], receives[N_SLOTS];
  tri_stream *stream, *writer; // of the group; that fills what it sends
  tri_event *written;
  tri_transfer *transfer;
} group;

static group groups[N_GROUPS];
static tri_stream *streams[2], *writer;

static uint8_t byte_of(int from, int to, int tag, int64_t turn, size_t i)
{
  return (uint8_t)((uint64_t)(from * 31 + to * 17 + tag * 7) + (uint64_t)turn * 3 + i % 241);
}

// Sizes differ by pair, tag and turn, zero included.
static size_t size_of(int from, int to, int tag, int64_t turn)
{
  const size_t sizes[] = {0, 1, 33, 257, 1000, 4096, MAX_BYTES};
  return sizes[(uint64_t)(from * 5 + to * 3 + tag + turn) % 7];
}

static void open_group(group *g, int index)
{
  g->stream = streams[index % 2];
  g->writer = writer;
  EXPECT_OK(tri_device_alloc(device, SIDE_BYTES, (void **)&g->sent));
  EXPECT_OK(tri_device_alloc(device, SIDE_BYTES, (void **)&g->received));
  EXPECT_OK(tri_device_alloc_host(device, SIDE_BYTES, (void **)&g->pattern));
  EXPECT_OK(tri_device_alloc_host(device, SIDE_BYTES, (void **)&g->poison));
  EXPECT_OK(tri_device_alloc_host(device, SIDE_BYTES, (void **)&g->out));
  EXPECT_OK(tri_event_create(device, &g->written));
  memset(g->poison, POISON, SIDE_BYTES);
}

static void close_group(group *g)
{
  tri_device_free(device, (void **)&g->sent);
  tri_device_free(device, (void **)&g->received);
  tri_device_free_host(device, (void **)&g->pattern);
  tri_device_free_host(device, (void **)&g->poison);
  tri_device_free_host(device, (void **)&g->out);
  tri_event_destroy(&g->written);
}

// What the group sends is written on another stream, for which its own waits by an event.
static void write_buffers(group *g)
{
  EXPECT_OK(tri_stream_copy_to_device(g->writer, g->sent, g->pattern, SIDE_BYTES));
  EXPECT_OK(tri_event_record(g->written, g->writer));
  EXPECT_OK(tri_event_wait(g->written, g->stream));
  EXPECT_OK(tri_stream_copy_to_device(g->stream, g->received, g->poison, SIDE_BYTES));
}

// Starts turn `turn` on a group: every pair exchanges a message for each tag, itself too.
static void start(group *g, int64_t turn)
{
  tri_comm *comm = tri_transport_comm(transport);
  const int rank = tri_comm_rank(comm), size = tri_comm_size(comm);
  int n = 0;
  for (int peer = 0; peer < size; peer++)
    for (int tag = 0; tag < N_TAGS; tag++, n++) {
      const size_t at = (size_t)n * SLOT_BYTES, n_sent = size_of(rank, peer, tag, turn);
      for (size_t i = 0; i < n_sent; i++)
        g->pattern[at + i] = byte_of(rank, peer, tag, turn, i);
      g->sends[n] = (tri_message){g->sent + at, n_sent, peer, tag};
      g->receives[n] = (tri_message){g->received + at, size_of(peer, rank, tag, turn), peer, tag};
    }
  write_buffers(g);
  EXPECT_OK(tri_transport_start(transport, "all to all", g->stream, g->sends, n, g->receives, n,
                                &g->transfer));
}

// The group is done: what is queued now sees what arrived, and may overwrite what was sent.
static void expect_received(group *g, int64_t turn)
{
  tri_comm *comm = tri_transport_comm(transport);
  const int rank = tri_comm_rank(comm);
  EXPECT_OK(tri_stream_copy_to_device(g->stream, g->sent, g->poison, SIDE_BYTES));
  EXPECT_OK(tri_stream_copy_to_host(g->stream, g->out, g->received, SIDE_BYTES));
  EXPECT_OK(tri_event_record(g->written, g->stream));
  EXPECT_OK(tri_transport_synchronize(transport, g->written));
  for (int n = 0; n < tri_comm_size(comm) * N_TAGS; n++) {
    const uint8_t *received = g->out + (size_t)n * SLOT_BYTES;
    const int peer = n / N_TAGS, tag = n % N_TAGS;
    const size_t size = size_of(peer, rank, tag, turn);
    size_t wrong = 0;
    for (size_t i = 0; i < size; i++)
      wrong += received[i] != byte_of(peer, rank, tag, turn, i);
    EXPECT(wrong == 0);
    EXPECT(received[size] == POISON);
  }
}

static void end(group *g, bool by_test)
{
  bool done = false;
  if (!by_test) EXPECT_OK(tri_transport_wait(&g->transfer));
  while (by_test && !done && test_failed_here == 0) {
    EXPECT_OK(tri_transport_test(&g->transfer, &done));
    EXPECT(done || !in_stream_order);
  }
  EXPECT(g->transfer == NULL);
}

// Ends the groups in an order of this rank's own, half by test, half by wait.
static void run_turns(int n_rounds)
{
  const uint64_t key =
      tri_random_key((uint64_t)tri_comm_rank(tri_transport_comm(transport)), "order");
  for (int round = 0; round < n_rounds; round++) {
    const int64_t first = round * N_GROUPS;
    for (int i = 0; i < N_GROUPS; i++)
      start(&groups[i], first + i);
    EXPECT_OK(tri_transport_poll(transport));
    for (int k = 0; k < N_GROUPS; k++) {
      const uint64_t i = tri_random_permute(key + (uint64_t)round, N_GROUPS, (uint64_t)k);
      end(&groups[i], k % 2 == 1);
      expect_received(&groups[i], first + (int64_t)i);
    }
  }
}

static void reserve(void)
{
  EXPECT_OK(tri_transport_reserve(transport, 1, 1, 1, 1));
  EXPECT_OK(tri_transport_reserve(transport, N_GROUPS, 2 * N_SLOTS, SIDE_BYTES, SIDE_BYTES));
}

TEST(groups_open_at_once_keep_apart)
{
  run_turns(6);
}

// A group that is done leaves its place in the pool, though its stream may have much to do yet.
TEST(a_pool_of_one_serves_two_streams)
{
  EXPECT_OK(tri_transport_reserve(transport, 1, 2 * N_SLOTS, SIDE_BYTES, SIDE_BYTES));
  for (int i = 0; i < N_GROUPS; i++) {
    start(&groups[i], i);
    end(&groups[i], i % 2 == 1);
  }
  for (int i = 0; i < N_GROUPS; i++)
    expect_received(&groups[i], i);
  reserve();
}

TEST(steps_allocate_nothing)
{
  const int64_t before = tri_memory_allocations();
  run_turns(2);
  EXPECT(tri_memory_allocations() == before);
}

TEST(groups_are_numbered_and_their_bytes_counted)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  const int64_t operations = tri_comm_operations(world), bytes = tri_comm_bytes_sent(world);
  int64_t sent = 0;
  for (int n = 0; n < size * N_TAGS; n++)
    if (n / N_TAGS != rank) sent += (int64_t)size_of(rank, n / N_TAGS, n % N_TAGS, 3);
  start(&groups[0], 3);
  end(&groups[0], false);
  expect_received(&groups[0], 3);
  EXPECT(tri_comm_operations(world) == operations + 1);
  EXPECT(tri_comm_bytes_sent(world) == bytes + sent);
}

static void expect_sums(void)
{
  enum { N = 1000 };
  tri_comm *comm = tri_transport_comm(transport);
  group *g = &groups[0];
  float *in = (float *)g->pattern, *out = (float *)g->out, *data = (float *)g->received;
  // Ranks of the job add their own numbers: the sum tells which of them took part.
  const int own = 1 << tri_comm_rank(world);
  int all = 0;
  for (int r = 0; r < tri_comm_size(comm); r++)
    all += 1 << comm->job_ranks[r];
  for (int i = 0; i < N; i++)
    in[i] = (float)(own * (i + 1));
  EXPECT_OK(tri_stream_copy_to_device(g->stream, data, in, N * sizeof(float)));
  EXPECT_OK(tri_transport_all_reduce_sum_f32(transport, "sum", g->stream, data, N));
  EXPECT_OK(tri_stream_copy_to_host(g->stream, out, data, N * sizeof(float)));
  EXPECT_OK(tri_event_record(g->written, g->stream));
  EXPECT_OK(tri_transport_synchronize(transport, g->written));
  for (int i = 0; i < N; i++)
    EXPECT(out[i] == (float)(all * (i + 1)));
}

TEST(sums_are_there_or_refused)
{
  tri_transport_facts facts;
  tri_transport_get_facts(transport, &facts);
  if (facts.sums) {
    expect_sums();
    return;
  }
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "moves data and adds nothing",
               tri_transport_all_reduce_sum_f32(transport, "sum", groups[0].stream,
                                                (float *)groups[0].received, 1));
}

TEST(a_split_communicator_has_its_own)
{
  tri_comm *half = NULL;
  tri_transport *whole = transport, *child = NULL;
  EXPECT_OK(tri_comm_split(world, "half", tri_comm_rank(world) % 2, -tri_comm_rank(world), &half));
  EXPECT_OK(tri_transport_create(half, device, whole->operations->name, whole, &child));
  if (child == NULL) return;
  transport = child;
  reserve();
  run_turns(1);
  if (child->facts.sums) expect_sums();
  transport = whole;
  run_turns(1);
  EXPECT_OK(tri_transport_finish(child));
  tri_transport_destroy(&child);
  tri_comm_destroy(&half);
}

TEST(wrong_groups_are_refused)
{
  group *g = &groups[0];
  tri_transfer *transfer = NULL, *open[N_GROUPS] = {NULL};
  tri_message message = {g->sent, 8, tri_comm_size(world), 0};
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "peer",
               tri_transport_start(transport, "bad", g->stream, &message, 1, NULL, 0, &transfer));
  message = (tri_message){g->sent, SIDE_BYTES + 1, 0, 0};
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "reserved",
               tri_transport_start(transport, "bad", g->stream, NULL, 0, &message, 1, &transfer));
  EXPECT_ERROR(
      TRI_ERR_ARGUMENT, "messages reserved",
      tri_transport_start(transport, "bad", g->stream, g->sends, 1000, NULL, 0, &transfer));
  for (int i = 0; i < N_GROUPS; i++)
    EXPECT_OK(tri_transport_start(transport, "nothing", g->stream, NULL, 0, NULL, 0, &open[i]));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "all 5 groups",
               tri_transport_start(transport, "bad", g->stream, NULL, 0, NULL, 0, &transfer));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "open groups", tri_transport_reserve(transport, 1, 1, 1, 1));
  for (int i = 0; i < N_GROUPS; i++)
    EXPECT_OK(tri_transport_wait(&open[i]));
  EXPECT(transfer == NULL);
}

static void run_transport(const char *name)
{
  tri_transport_facts facts;
  test_name = name;
  test_failed_here = 0;
  EXPECT_OK(tri_transport_create(world, device, name, NULL, &transport));
  test_failures += test_failed_here;
  if (transport == NULL) return;
  tri_transport_get_facts(transport, &facts);
  in_stream_order = strncmp(facts.name, "nccl", 4) == 0;
  if (test_rank() == 0) printf("== %s: %s\n", facts.name, facts.reason);
  reserve();
  TEST_RUN(groups_open_at_once_keep_apart);
  TEST_RUN(a_pool_of_one_serves_two_streams);
  TEST_RUN(steps_allocate_nothing);
  TEST_RUN(groups_are_numbered_and_their_bytes_counted);
  TEST_RUN(a_split_communicator_has_its_own);
  TEST_RUN(sums_are_there_or_refused);
  TEST_RUN(wrong_groups_are_refused);
  EXPECT_OK(tri_transport_finish(transport));
  tri_transport_destroy(&transport);
}

static void expect_choice(const char *name, const char *reason)
{
  tri_transport *automatic = NULL;
  EXPECT_OK(tri_transport_create(world, device, "auto", NULL, &automatic));
  if (automatic == NULL) return;
  EXPECT(strncmp(automatic->facts.name, name, strlen(name)) == 0);
  EXPECT(strstr(automatic->facts.reason, reason) != NULL);
  EXPECT_OK(tri_transport_finish(automatic));
  tri_transport_destroy(&automatic);
}

// What cannot work is an error, never another transport.
TEST(choices_are_kept)
{
  tri_transport *none = NULL;
  tri_device_facts facts;
  const bool alone = tri_comm_size(world) == 1;
  tri_device_get_facts(device, &facts);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no transport is called 'pigeons'",
               tri_transport_create(world, device, "pigeons", NULL, &none));
  if (facts.host_memory) {
    EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "transport nccl",
                 tri_transport_create(world, device, "nccl", NULL, &none));
    expect_choice("host", alone ? "one rank" : "is host memory");
    return;
  }
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "is not host memory",
               tri_transport_create(world, device, "host", NULL, &none));
  if (alone) {
    expect_choice("staged", "one rank");
  } else if (own_device) {
    expect_choice("nccl", "a GPU of its own");
  } else {
    EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "ranks 0 and 1 share GPU",
                 tri_transport_create(world, device, "nccl", NULL, &none));
    expect_choice("staged", "ranks 0 and 1 share GPU");
  }
  EXPECT(none == NULL);
}

// Each rank sends the next one byte less than that awaits: the last test, since it breaks the job.
TEST(unequal_sizes_are_an_error)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  group *g = &groups[0];
  const tri_message send = {g->sent, 15, (rank + 1) % size, 0};
  const tri_message receive = {g->received, 16, (rank + size - 1) % size, 0};
  EXPECT_OK(tri_transport_create(world, device, "staged", NULL, &transport));
  EXPECT_OK(tri_transport_reserve(transport, 1, 2, 16, 16));
  EXPECT_OK(tri_transport_start(transport, "ring", g->stream, &send, 1, &receive, 1, &g->transfer));
  EXPECT_ERROR(TRI_ERR_COMM, "sent 15 bytes where 16 are awaited",
               tri_transport_wait(&g->transfer));
  EXPECT_ERROR(TRI_ERR_COMM, "is not begun", tri_comm_barrier(world, "after"));
  world->side->broken = false; // the messages are gone, so the job is as good as new
  world->n_open = 0;
  transport->transfers[0]->open = false;
  tri_transport_destroy(&transport);
}

static bool open_all(const char *name)
{
  const tri_device_options options = {.kernels = "reference", .n_threads = 1};
  char own_name[32];
  EXPECT_OK(tri_comm_create_world(60, &world));
  if (world == NULL) return false;
  own_device = strcmp(name, "cuda:rank") == 0;
  snprintf(own_name, sizeof own_name, "cuda:%d", tri_comm_local_rank(world));
  EXPECT_OK(tri_device_open(own_device ? own_name : name, &options, &device));
  if (device == NULL) return false;
  EXPECT_OK(tri_stream_create(device, &streams[0]));
  EXPECT_OK(tri_stream_create(device, &streams[1]));
  EXPECT_OK(tri_stream_create(device, &writer));
  for (int i = 0; i < N_GROUPS; i++)
    open_group(&groups[i], i);
  return true;
}

static void close_all(void)
{
  for (int i = 0; i < N_GROUPS; i++)
    close_group(&groups[i]);
  tri_stream_destroy(&writer);
  tri_stream_destroy(&streams[0]);
  tri_stream_destroy(&streams[1]);
  tri_device_close(&device);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
}

int main(int argc, char **argv)
{
  const char *const usual[] = {"cpu", "host", "staged"};
  const char *const *names = argc > 1 ? (const char *const *)argv + 1 : usual;
  const int n_names = argc > 1 ? argc - 1 : 3;
  test_name = "start";
  if (!open_all(names[0])) return 1;
  for (int i = 1; i < n_names; i++)
    run_transport(names[i]);
  TEST_RUN(choices_are_kept);
  TEST_RUN(unequal_sizes_are_an_error);
  close_all();
  return test_end();
}
