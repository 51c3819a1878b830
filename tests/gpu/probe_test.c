// timeout: 60
// The tensor-core and copy instructions behind kernels/portable.cuh, each by its whole table: which
// lane holds what must be as the kernels, and the emulation, take it to be.
#include "probe.h"

#include "test.h"
#include "trireme/device/cuda.h"

static tri_device *device;
static tri_stream *stream;
static cudaStream_t native;

static void *room(size_t size_bytes)
{
  void *memory = NULL;
  EXPECT_OK(tri_device_alloc(device, size_bytes, &memory));
  if (memory == NULL) exit(1);
  return memory;
}

// By pinned memory, as the backend wants it.
enum { STAGE_BYTES = 4096 };
static void *stage;

static void upload(void *to, const void *from, size_t size_bytes)
{
  memcpy(stage, from, size_bytes);
  EXPECT_OK(tri_stream_copy_to_device(stream, to, stage, size_bytes));
  EXPECT_OK(tri_stream_synchronize(stream));
}

static void download(void *to, const void *from, size_t size_bytes)
{
  EXPECT_OK(tri_stream_copy_to_host(stream, stage, from, size_bytes));
  EXPECT_OK(tri_stream_synchronize(stream));
  memcpy(to, stage, size_bytes);
}

// B = E(k, n), so D is column k of A in column n, whatever the other columns are.
static void check_basis(int f16, int k, int n, void *const arrays[3])
{
  float A[256], B[128], D[128];
  for (int i = 0; i < 256; i++)
    A[i] = (float)((i * 7 + i / 16) % 251);
  for (int i = 0; i < 128; i++)
    B[i] = i == k * 8 + n ? 1.0f : 0.0f;
  upload(arrays[0], A, sizeof A);
  upload(arrays[1], B, sizeof B);
  EXPECT(probe_mma(native, f16, arrays[2], arrays[0], arrays[1]) == cudaSuccess);
  download(D, arrays[2], sizeof D);
  int wrong = 0;
  for (int i = 0; i < 128; i++)
    wrong += D[i] != (i % 8 == n ? A[i / 8 * 16 + k] : 0.0f);
  EXPECT(wrong == 0);
}

static void check_mma(int f16)
{
  void *arrays[3] = {room(256 * sizeof(float)), room(128 * sizeof(float)),
                     room(128 * sizeof(float))};
  for (int i = 0; i < 128; i++)
    check_basis(f16, i / 8, i % 8, arrays);
  for (int i = 0; i < 3; i++)
    tri_device_free(device, &arrays[i]);
}

TEST(mma_bf16_of_every_basis_matrix)
{
  check_mma(0);
}

TEST(mma_f16_of_every_basis_matrix)
{
  check_mma(1);
}

TEST(ldmatrix_gives_every_lane_its_words)
{
  enum { ALL = 128 + 128 + 64 + 64 };
  uint32_t words[ALL];
  uint32_t *memory = room(sizeof words);
  EXPECT(probe_ldmatrix(native, memory, memory + 128, memory + 256, memory + 320) == cudaSuccess);
  download(words, memory, sizeof words);
  for (unsigned lane = 0; lane < 32; lane++)
    for (unsigned m = 0; m < 4; m++) {
      const unsigned row = (m * 8 + lane / 4) * 8 + lane % 4 * 2;
      const unsigned column = (m * 8 + lane % 4 * 2) * 8 + lane / 4;
      const uint32_t plain = row | (row + 1) << 16, transposed = column | (column + 8) << 16;
      EXPECT(words[lane * 4 + m] == plain);
      EXPECT(words[128 + lane * 4 + m] == transposed);
      if (m >= 2) continue;
      EXPECT(words[256 + lane * 2 + m] == plain);
      EXPECT(words[320 + lane * 2 + m] == transposed);
    }
  tri_device_free(device, (void **)&memory);
}

TEST(cp_async_brings_each_group_before_its_wait_returns)
{
  enum { N = 2 * PROBE_ASYNC_FLOATS };
  float in[N], out[N];
  for (int i = 0; i < N; i++)
    in[i] = (float)i;
  float *from = room(sizeof in), *to = room(sizeof out);
  for (int repeat = 0; repeat < 20; repeat++) {
    upload(from, in, sizeof in);
    EXPECT(probe_cp_async(native, to, from) == cudaSuccess);
    download(out, to, sizeof out);
    for (int i = 0; i < N; i++)
      EXPECT(out[i] == in[i] + 1.0f);
    in[repeat] += 1000.0f;
  }
  tri_device_free(device, (void **)&to);
  tri_device_free(device, (void **)&from);
}

int main(void)
{
  if (tri_device_open("cuda", NULL, &device) != TRI_OK ||
      tri_stream_create(device, &stream) != TRI_OK ||
      tri_device_alloc_host(device, STAGE_BYTES, &stage) != TRI_OK) {
    printf("not ok probe_test: %s\n", tri_error_message());
    return 1;
  }
  native = tri_cuda_native_stream(stream);
  TEST_RUN(mma_bf16_of_every_basis_matrix);
  TEST_RUN(mma_f16_of_every_basis_matrix);
  TEST_RUN(ldmatrix_gives_every_lane_its_words);
  TEST_RUN(cp_async_brings_each_group_before_its_wait_returns);
  tri_device_free_host(device, &stage);
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  return test_end();
}
