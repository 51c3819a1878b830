// ranks: 2 3 4
// What goes between the shares of a model: rows gathered, rows of sums in the order of the ranks,
// gradients of arrays that all hold; exact, over each transport.
//
// tensor_test [DEVICE TRANSPORT …]: as pipeline_test.
#include "trireme/parallel/tensor.h"

#include <math.h>

#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { N = 700, MOST_RANKS = 4, N_ARRAYS = 300, ARRAY = 37 };

static tri_comm *world;
static tri_device *device;
static tri_stream *stream;
static tri_transport *transport;
static tri_tensor *tensor;
static int rank, size;

static float value_of(int r, int i)
{
  const uint64_t bits = tri_random_u64((uint64_t)r + 1, (uint64_t)i);
  return ldexpf((float)(int32_t)bits, (int)(bits >> 40) % 12 - 30);
}

static float rounded(float x)
{
  return tri_bf16_to_float(tri_bf16_from_float(x));
}

// Pinned memory, and device memory with the same content once it is queued.
typedef struct pair {
  void *host, *device;
  size_t bytes;
} pair;

static pair make(size_t bytes)
{
  pair p = {.bytes = bytes};
  EXPECT_OK(tri_device_alloc_host(device, bytes, &p.host));
  EXPECT_OK(tri_device_alloc(device, bytes, &p.device));
  return p;
}

static void forget(pair *p)
{
  tri_device_free_host(device, &p->host);
  tri_device_free(device, &p->device);
}

static void upload(const pair *p)
{
  EXPECT_OK(tri_stream_copy_to_device(stream, p->device, p->host, p->bytes));
}

static void download(const pair *p)
{
  EXPECT_OK(tri_stream_copy_to_host(stream, p->host, p->device, p->bytes));
  EXPECT_OK(tri_stream_synchronize(stream));
}

static void store(tri_dtype dtype, void *array, int i, float value)
{
  if (dtype == TRI_DTYPE_F32)
    ((float *)array)[i] = value;
  else
    ((tri_bf16 *)array)[i] = tri_bf16_from_float(value);
}

static float load(tri_dtype dtype, const void *array, int i)
{
  if (dtype == TRI_DTYPE_F32) return ((const float *)array)[i];
  return tri_bf16_to_float(((const tri_bf16 *)array)[i]);
}

static void expect_gather(tri_dtype dtype, int n)
{
  const tri_seams *seams = tri_tensor_seams(tensor);
  pair part = make((size_t)N * sizeof(float));
  pair whole = make((size_t)(N * size) * sizeof(float));
  int wrong = 0;
  for (int i = 0; i < n; i++)
    store(dtype, part.host, i, value_of(rank, i));
  upload(&part);
  EXPECT_OK(seams->gather(seams->user, stream, whole.device, part.device, n, dtype));
  download(&whole);
  for (int r = 0; r < size; r++) {
    for (int i = 0; i < n; i++) {
      const float wanted = dtype == TRI_DTYPE_F32 ? value_of(r, i) : rounded(value_of(r, i));
      wrong += load(dtype, whole.host, r * n + i) != wanted;
    }
  }
  EXPECT(wrong == 0);
  forget(&part);
  forget(&whole);
}

static float wanted_sum(tri_dtype dtype, int i)
{
  float sum = 0.0f;
  for (int r = 0; r < size; r++) {
    const float x = dtype == TRI_DTYPE_F32 ? value_of(r, i) : rounded(value_of(r, i));
    sum = r == 0 ? x : sum + x;
  }
  return dtype == TRI_DTYPE_F32 ? sum : rounded(sum);
}

static void expect_scatter_sum(tri_dtype dtype, int n)
{
  const tri_seams *seams = tri_tensor_seams(tensor);
  pair part = make((size_t)N * sizeof(float));
  pair whole = make((size_t)(N * size) * sizeof(float));
  int wrong = 0;
  for (int i = 0; i < n * size; i++)
    store(dtype, whole.host, i, value_of(rank, i));
  upload(&whole);
  EXPECT_OK(seams->scatter_sum(seams->user, stream, part.device, whole.device, n, dtype));
  download(&part);
  for (int i = 0; i < n; i++)
    wrong += load(dtype, part.host, i) != wanted_sum(dtype, rank * n + i);
  EXPECT(wrong == 0);
  forget(&part);
  forget(&whole);
}

TEST(rows_are_gathered)
{
  for (int n = 1; n <= N; n += N - 1) {
    expect_gather(TRI_DTYPE_F32, n);
    expect_gather(TRI_DTYPE_BF16, n);
  }
}

TEST(sums_are_in_the_order_of_ranks)
{
  for (int n = 1; n <= N; n += N - 1) {
    expect_scatter_sum(TRI_DTYPE_F32, n);
    expect_scatter_sum(TRI_DTYPE_BF16, n);
  }
}

// Many arrays, some longer than what goes at once, some that are no addends.
TEST(gradients_of_whole_arrays_are_summed)
{
  static tri_parameter list[N_ARRAYS];
  tri_parameters parameters = {.list = list, .n = N_ARRAYS};
  int64_t end = 0;
  for (int a = 0; a < N_ARRAYS; a++) {
    list[a] = (tri_parameter){
        .offset = end, .count = a % 50 == 3 ? 2 * N + a : ARRAY, .partial_gradient = a % 3 != 2};
    end += list[a].count + 5;
  }
  pair gradients = make((size_t)end * sizeof(float));
  float *values = gradients.host;
  for (int64_t i = 0; i < end; i++)
    values[i] = value_of(rank, (int)i);
  upload(&gradients);
  const int64_t before = tri_memory_allocations();
  const tri_owned_range owned = {0, end, 0, 0};
  EXPECT_OK(tri_tensor_sum_gradients(tensor, &parameters, &owned, 1, gradients.device));
  EXPECT(tri_memory_allocations() == before);
  download(&gradients);
  int wrong = 0;
  int64_t i = 0;
  for (int a = 0; a < N_ARRAYS; a++) {
    const int64_t array_end = list[a].offset + list[a].count;
    for (; i < array_end; i++)
      wrong += values[i] != (list[a].partial_gradient ? wanted_sum(TRI_DTYPE_F32, (int)i)
                                                      : value_of(rank, (int)i));
    for (; i < array_end + 5; i++)
      wrong += values[i] != value_of(rank, (int)i);
  }
  EXPECT(wrong == 0);
  forget(&gradients);
}

static void run_transport(const char *name)
{
  test_name = name;
  if (test_rank() == 0) printf("== %s\n", name);
  EXPECT_OK(tri_transport_create(world, device, name, NULL, &transport));
  if (transport == NULL) return;
  EXPECT_OK(tri_tensor_create(transport, stream, N, &tensor));
  if (tensor != NULL) {
    TEST_RUN(rows_are_gathered);
    TEST_RUN(sums_are_in_the_order_of_ranks);
    TEST_RUN(gradients_of_whole_arrays_are_summed);
  }
  EXPECT_OK(tri_transport_finish(transport));
  tri_transport_destroy(&transport);
  tri_tensor_destroy(&tensor);
}

static bool open_all(const char *name)
{
  const tri_device_options options = {.kernels = "reference", .n_threads = 1};
  char own_name[32];
  test_name = "start";
  EXPECT_OK(tri_comm_create_world(60, &world));
  if (world == NULL) return false;
  rank = tri_comm_rank(world);
  size = tri_comm_size(world);
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
  if (!open_all(names[0])) return 1;
  for (int i = 1; i < n_names; i++)
    run_transport(names[i]);
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
  return test_end();
}
