// The reference kernels: the same bits with 1 and 3 threads, in every case, and the arguments they
// refuse.
#include "device/kernel_cases.h"
#include "test.h"
#include "trireme/base/memory.h"

static kernel_comparison comparison;

TEST(elementwise_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_elementwise(&comparison));
}

TEST(embedding_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_embedding(&comparison));
}

TEST(layernorm_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_layernorm(&comparison));
}

TEST(residual_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_residual(&comparison));
}

TEST(linear_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_linear(&comparison));
}

TEST(attention_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_attention(&comparison));
}

TEST(attention_decode_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_attention_decode(&comparison));
}

TEST(cross_entropy_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_cross_entropy(&comparison));
}

TEST(adamw_does_not_depend_on_threads)
{
  EXPECT_OK(kernel_cases_adamw(&comparison));
}

TEST(bad_arguments_are_refused)
{
  EXPECT_OK(kernel_cases_refusals(&comparison.sides[0]));
}

TEST(everything_is_released)
{
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  const tri_device_options options = {.kernels = "reference"};
  tri_device *device = NULL;
  tri_stream *stream = NULL;
  if (tri_device_open("cpu", &options, &device) != TRI_OK) return 1;
  if (tri_stream_create(device, &stream) != TRI_OK) return 1;
  comparison.same_bits = true;
  comparison.sides[0] = (kernel_side){.name = "1 thread",
                                      .kernels = tri_device_kernels(device),
                                      .device = device,
                                      .stream = stream,
                                      .n_threads = 1};
  comparison.sides[1] = comparison.sides[0];
  comparison.sides[1].name = "3 threads";
  comparison.sides[1].n_threads = 3;
  TEST_RUN(elementwise_does_not_depend_on_threads);
  TEST_RUN(embedding_does_not_depend_on_threads);
  TEST_RUN(layernorm_does_not_depend_on_threads);
  TEST_RUN(residual_does_not_depend_on_threads);
  TEST_RUN(linear_does_not_depend_on_threads);
  TEST_RUN(attention_does_not_depend_on_threads);
  TEST_RUN(attention_decode_does_not_depend_on_threads);
  TEST_RUN(cross_entropy_does_not_depend_on_threads);
  TEST_RUN(adamw_does_not_depend_on_threads);
  TEST_RUN(bad_arguments_are_refused);
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  TEST_RUN(everything_is_released);
  return test_end();
}
