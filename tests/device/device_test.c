// Devices, memory, arenas, copies and events: what a program sees of the CPU device, and what it is
// told when it asks for what is not there.
#include "trireme/device/device.h"

#include "device/cpu/cpu.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/device/arena.h"

static tri_device *device;
static tri_stream *stream;

TEST(devices_that_are_not_there_are_refused)
{
  tri_device *none = NULL;
  if (!tri_device_built("cuda")) {
    EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "./configure --with-cuda",
                 tri_device_open("cuda", NULL, &none));
    EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "'cuda:1'", tri_device_open("cuda:1", NULL, &none));
  }
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "'gpu'", tri_device_open("gpu", NULL, &none));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "'cudax'", tri_device_open("cudax", NULL, &none));
  EXPECT(none == NULL);
}

TEST(options_that_cannot_be_met_are_refused)
{
  tri_device *none = NULL;
  const tri_device_options unknown_isa = {.isa = "sse"};
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "cpu.isa is 'sse'", tri_device_open("cpu", &unknown_isa, &none));
  const tri_device_options unknown_kernels = {.kernels = "fast"};
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "cpu.kernels is 'fast'",
               tri_device_open("cpu", &unknown_kernels, &none));
  const tri_device_options no_threads = {.n_threads = -1};
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "-1", tri_device_open("cpu", &no_threads, &none));
  EXPECT(none == NULL);
}

// Every set up to the machine's can be asked for, every wider one is an error that names what there
// is.
TEST(instruction_sets_of_this_machine_can_be_asked_for)
{
  static const char *const names[] = {"baseline", "avx2", "avx512", "avx512_bf16"};
  const tri_cpu_isa widest = tri_cpu_detect_isa();
  for (tri_cpu_isa isa = TRI_CPU_BASELINE; isa <= TRI_CPU_AVX512_BF16; isa++) {
    EXPECT(strcmp(tri_cpu_isa_name(isa), names[isa]) == 0);
    const tri_device_options options = {.isa = names[isa], .n_threads = 1};
    tri_device *opened = NULL;
    if (isa > widest) {
      EXPECT_ERROR(TRI_ERR_UNSUPPORTED, tri_cpu_isa_name(widest),
                   tri_device_open("cpu", &options, &opened));
      EXPECT(opened == NULL);
      continue;
    }
    EXPECT_OK(tri_device_open("cpu", &options, &opened));
    tri_device_facts facts;
    tri_device_get_facts(opened, &facts);
    EXPECT(strcmp(facts.isa, tri_cpu_isa_name(isa)) == 0);
    EXPECT(strstr(facts.description, tri_cpu_isa_name(isa)) != NULL);
    EXPECT(facts.bf16_native == (isa == TRI_CPU_AVX512_BF16));
    tri_device_close(&opened);
    EXPECT(opened == NULL);
  }
}

// All entries of both tables: they are pointers, one behind the other.
static void expect_complete(const tri_kernels *table)
{
  enum { ENTRIES = sizeof(tri_kernels) / sizeof(void (*)(void)) };
  void (*entries[ENTRIES])(void);
  memcpy(entries, table, sizeof entries);
  for (size_t i = 0; i < ENTRIES; i++)
    EXPECT(entries[i] != NULL);
}

TEST(tables_are_complete)
{
  const tri_device_options options = {.kernels = "reference", .n_threads = 2};
  tri_device *plain = NULL;
  expect_complete(tri_device_kernels(device));
  EXPECT_OK(tri_device_open("cpu", &options, &plain));
  expect_complete(tri_device_kernels(plain));
  tri_device_facts facts;
  tri_device_get_facts(plain, &facts);
  EXPECT(strcmp(facts.name, "cpu") == 0 && facts.n_threads == 2 && facts.host_memory);
  EXPECT(!facts.bf16_native);
  EXPECT(strstr(facts.description, "reference kernels, 2 threads") != NULL);
  EXPECT(facts.memory_free_bytes > 0 && facts.memory_free_bytes <= facts.memory_bytes);
  tri_device_close(&plain);
}

TEST(memory_is_aligned_and_counted)
{
  static const size_t sizes[] = {0, 1, 255, 257, 1000, (4u << 20) - 1, 4u << 20, (70u << 20) + 5};
  const int64_t before = tri_memory_blocks(TRI_MODULE_DEVICE);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    const int64_t allocations = tri_memory_allocations();
    void *memory = NULL, *host = NULL;
    EXPECT_OK(tri_device_alloc(device, sizes[s], &memory));
    EXPECT_OK(tri_device_alloc_host(device, sizes[s], &host));
    EXPECT(memory != NULL && host != NULL && memory != host);
    EXPECT((uintptr_t)memory % 256 == 0 && (uintptr_t)host % 256 == 0);
    EXPECT(sizes[s] < 4u << 20 || (uintptr_t)memory % (2u << 20) == 0);
    EXPECT(tri_memory_blocks(TRI_MODULE_DEVICE) == before + 2);
    EXPECT(tri_memory_allocations() > allocations);
    tri_device_free(device, &memory);
    tri_device_free_host(device, &host);
    EXPECT(memory == NULL && host == NULL);
    EXPECT(tri_memory_blocks(TRI_MODULE_DEVICE) == before);
  }
  void *nothing = NULL;
  tri_device_free(device, &nothing);
}

#ifdef TRI_DEBUG
TEST(memory_is_poisoned)
{
  enum { N = 1000 };
  void *memory = NULL;
  unsigned char host[N];
  EXPECT_OK(tri_device_alloc(device, N, &memory));
  EXPECT_OK(tri_stream_copy_to_host(stream, host, memory, N));
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == 0xff);
  tri_device_free(device, &memory);
}
#endif

// Asked for before it is touched: a request beyond the machine is an error, not a kill.
TEST(more_than_there_is_is_an_error)
{
  tri_device_facts facts;
  tri_device_get_facts(device, &facts);
  const size_t wanted = facts.memory_bytes + 1;
  char text[64];
  snprintf(text, sizeof text, "%zu bytes wanted", wanted);
  void *memory = NULL;
  EXPECT_ERROR(TRI_ERR_MEMORY, text, tri_device_alloc(device, wanted, &memory));
  EXPECT(strstr(tri_error_message(), "bytes free") != NULL);
  EXPECT_ERROR(TRI_ERR_MEMORY, "bytes free", tri_device_alloc(device, SIZE_MAX, &memory));
  EXPECT(memory == NULL);
}

TEST(arena_pieces_are_apart_and_aligned)
{
  tri_arena arena;
  tri_arena_begin(&arena, device, "test pieces");
  static const size_t sizes[] = {1, 0, 256, 257, 3};
  static const size_t offsets[] = {0, 256, 256, 512, 1024};
  for (int i = 0; i < 5; i++)
    EXPECT(tri_arena_reserve(&arena, sizes[i]) == offsets[i]);
  EXPECT(arena.size_bytes == 1280);
  EXPECT_OK(tri_arena_commit(&arena));
  EXPECT((char *)tri_arena_at(&arena, 1024) - (char *)tri_arena_at(&arena, 0) == 1024);
  tri_arena_end(&arena);
  tri_arena_end(&arena);
}

TEST(arena_that_does_not_fit_names_its_kind)
{
  tri_arena arena;
  tri_arena_begin(&arena, device, "parameters");
  (void)tri_arena_reserve(&arena, (size_t)1 << 62);
  EXPECT_ERROR(TRI_ERR_MEMORY, "memory for parameters: 4611686018427387904 bytes wanted",
               tri_arena_commit(&arena));
  tri_arena_end(&arena);

  // The sum of the pieces does not wrap around.
  tri_arena_begin(&arena, device, "moments");
  (void)tri_arena_reserve(&arena, 512);
  (void)tri_arena_reserve(&arena, SIZE_MAX - 1);
  (void)tri_arena_reserve(&arena, 1000);
  EXPECT_ERROR(TRI_ERR_MEMORY, "memory for moments", tri_arena_commit(&arena));
  tri_arena_end(&arena);

  tri_arena zeroed = {0};
  tri_arena_end(&zeroed);
}

TEST(copies_go_there_and_back)
{
  static const size_t sizes[] = {0, 1, 31, 257, 1000};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    const size_t n = sizes[s];
    unsigned char from[1001], to[1001];
    for (size_t i = 0; i < sizeof from; i++)
      from[i] = (unsigned char)(i * 7);
    memset(to, 0x55, sizeof to);
    void *a = NULL, *b = NULL;
    EXPECT_OK(tri_device_alloc(device, n, &a));
    EXPECT_OK(tri_device_alloc(device, n, &b));
    EXPECT_OK(tri_stream_copy_to_device(stream, a, from, n));
    EXPECT_OK(tri_stream_copy_on_device(stream, b, a, n));
    EXPECT_OK(tri_stream_copy_to_host(stream, to, b, n));
    EXPECT_OK(tri_stream_synchronize(stream));
    EXPECT(memcmp(from, to, n) == 0 && to[n] == 0x55);
    tri_device_free(device, &a);
    tri_device_free(device, &b);
  }
}

TEST(events_order_two_streams)
{
  tri_stream *other = NULL;
  tri_event *event = NULL;
  bool done = false;
  EXPECT_OK(tri_stream_create(device, &other));
  EXPECT(tri_stream_device(other) == device);
  EXPECT_OK(tri_event_create(device, &event));
  float host[4] = {1, 2, 3, 4};
  void *memory = NULL;
  EXPECT_OK(tri_device_alloc(device, sizeof host, &memory));
  EXPECT_OK(tri_device_kernels(device)->fill(stream, memory, 9.0f, 4));
  EXPECT_OK(tri_event_record(event, stream));
  EXPECT_OK(tri_event_wait(event, other));
  EXPECT_OK(tri_stream_copy_to_host(other, host, memory, sizeof host));
  EXPECT_OK(tri_event_record(event, other));
  EXPECT_OK(tri_event_synchronize(event));
  EXPECT_OK(tri_event_query(event, &done));
  EXPECT(done && host[0] == 9.0f && host[3] == 9.0f);
  tri_device_free(device, &memory);
  tri_event_destroy(&event);
  tri_stream_destroy(&other);
  EXPECT(event == NULL && other == NULL);
  tri_event_destroy(&event);
  tri_stream_destroy(&other);
}

TEST(everything_is_released)
{
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  tri_device_close(&device);
  EXPECT_OK(tri_memory_check_balance());
}

// What is not given back shows at the end.
TEST(a_leak_shows)
{
  tri_device *leaky = NULL;
  void *memory = NULL;
  EXPECT_OK(tri_device_open("cpu", NULL, &leaky));
  EXPECT_OK(tri_device_alloc(leaky, 10, &memory));
  EXPECT_ERROR(TRI_ERR_INTERNAL, "module device still holds", tri_memory_check_balance());
  tri_device_free(leaky, &memory);
  tri_device_close(&leaky);
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  if (tri_device_open("cpu", NULL, &device) != TRI_OK) return 1;
  if (tri_stream_create(device, &stream) != TRI_OK) return 1;
  TEST_RUN(devices_that_are_not_there_are_refused);
  TEST_RUN(options_that_cannot_be_met_are_refused);
  TEST_RUN(instruction_sets_of_this_machine_can_be_asked_for);
  TEST_RUN(tables_are_complete);
  TEST_RUN(memory_is_aligned_and_counted);
#ifdef TRI_DEBUG
  TEST_RUN(memory_is_poisoned);
#endif
  TEST_RUN(more_than_there_is_is_an_error);
  TEST_RUN(arena_pieces_are_apart_and_aligned);
  TEST_RUN(arena_that_does_not_fit_names_its_kind);
  TEST_RUN(copies_go_there_and_back);
  TEST_RUN(events_order_two_streams);
  TEST_RUN(everything_is_released);
  TEST_RUN(a_leak_shows);
  return test_end();
}
