// The linear layers as oneDNN's products: against the reference, no allocation once prepared, what
// is said where there is no bf16 and where the instruction set is another one.
#include "device/kernel_cases.h"
#include "test.h"
#include "trireme/base/memory.h"

typedef struct opened {
  tri_device *device;
  tri_stream *stream;
} opened;

static void open_device(const char *kernels, int n_threads, opened *out)
{
  const tri_device_options options = {.kernels = kernels, .n_threads = n_threads};
  *out = (opened){0};
  EXPECT_OK(tri_device_open("cpu", &options, &out->device));
  EXPECT_OK(tri_stream_create(out->device, &out->stream));
}

static void close_device(opened *it)
{
  tri_stream_destroy(&it->stream);
  tri_device_close(&it->device);
}

static kernel_side side_of(const opened *it, const char *name)
{
  return (kernel_side){.name = name,
                       .kernels = tri_device_kernels(it->device),
                       .device = it->device,
                       .stream = it->stream};
}

// A machine with AVX-512 has bf16 products; on any other the error says what to do.
static bool has_bf16(const opened *it)
{
  tri_device_facts facts;
  tri_device_get_facts(it->device, &facts);
  const tri_kernels *k = tri_device_kernels(it->device);
  if (strncmp(facts.isa, "avx512", strlen("avx512")) == 0) {
    EXPECT_OK(k->linear_prepare(it->stream, 4, 5, 6, TRI_DTYPE_BF16));
    return true;
  }
  const char *const text = "oneDNN has no bf16 products on this machine: use cpu.kernels=tuned";
  tri_bf16 x[16] = {0};
  float dw[16] = {0};
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, text, k->linear_prepare(it->stream, 4, 5, 6, TRI_DTYPE_BF16));
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, text,
               k->linear_forward(it->stream, x + 8, NULL, x, x, NULL, 2, 2, 2, TRI_DTYPE_BF16));
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, text,
               k->linear_backward_input(it->stream, x + 8, x, x, x, 2, 2, 2, TRI_DTYPE_BF16));
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, text,
               k->linear_backward_weight(it->stream, dw, dw + 8, x, x, 2, 2, 2, TRI_DTYPE_BF16));
  return false;
}

TEST(agrees_with_the_reference)
{
  for (int n_threads = 1; n_threads <= 3; n_threads++) {
    opened reference, onednn;
    open_device("onednn", n_threads, &onednn);
    open_device("reference", 2, &reference);
    const kernel_comparison comparison = {
        .sides = {side_of(&reference, "reference"), side_of(&onednn, "onednn")},
        .f32_only = !has_bf16(&onednn)};
    EXPECT_OK(kernel_cases_linear(&comparison));
    EXPECT_OK(kernel_cases_refusals(&comparison.sides[1]));
    close_device(&reference);
    close_device(&onednn);
  }
}

TEST(no_allocation_once_prepared)
{
  enum { N = 65, IC = 48, OC = 130, LARGEST = N * OC };
  opened it;
  open_device("onednn", 2, &it);
  const tri_kernels *k = tri_device_kernels(it.device);
  // Zeros of either type; the CPU's device memory is host memory.
  float *arrays[8];
  for (int i = 0; i < 8; i++)
    arrays[i] = calloc(LARGEST, sizeof(float));
  float **a = arrays;
  for (int t = 0; t < (has_bf16(&it) ? 2 : 1); t++) {
    const tri_dtype dtype = t == 0 ? TRI_DTYPE_F32 : TRI_DTYPE_BF16;
    EXPECT_OK(k->linear_prepare(it.stream, N, IC, OC, dtype));
    const int64_t before = tri_memory_allocations();
    for (int flag = 0; flag < 2; flag++) {
      EXPECT_OK(k->linear_forward(it.stream, a[0], flag ? a[1] : NULL, a[2], a[3],
                                  flag ? a[4] : NULL, N, IC, OC, dtype));
      EXPECT_OK(k->linear_backward_input(it.stream, a[5], a[0], a[3], flag ? a[2] : NULL, N, IC, OC,
                                         dtype));
      EXPECT_OK(k->linear_backward_weight(it.stream, a[6], flag ? a[7] : NULL, a[0], a[2], N, IC,
                                          OC, dtype));
    }
    EXPECT(tri_memory_allocations() == before);
  }
  for (int i = 0; i < 8; i++)
    free(arrays[i]);
  close_device(&it);
}

TEST(says_what_it_is)
{
  opened it;
  open_device("onednn", 2, &it);
  tri_device_facts facts;
  tri_device_get_facts(it.device, &facts);
  EXPECT(strstr(facts.description, "kernels, oneDNN ") != NULL);
  EXPECT(strstr(facts.description, " products, 2 threads") != NULL);
  close_device(&it);
}

TEST(one_instruction_set_per_process)
{
  opened it;
  open_device("onednn", 1, &it);
  tri_device_facts facts;
  tri_device_get_facts(it.device, &facts);
  tri_device *other = NULL;
  if (strcmp(facts.isa, "baseline") != 0)
    EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "takes one per process",
                 tri_device_open(
                     "cpu", &(tri_device_options){.kernels = "onednn", .isa = "baseline"}, &other));
  EXPECT(other == NULL);
  close_device(&it);
}

TEST(everything_is_released)
{
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  TEST_RUN(agrees_with_the_reference);
  TEST_RUN(no_allocation_once_prepared);
  TEST_RUN(says_what_it_is);
  TEST_RUN(one_instruction_set_per_process);
  TEST_RUN(everything_is_released);
  return test_end();
}
