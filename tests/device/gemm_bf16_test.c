// Products whose panels hold pairs of bf16, with the instruction of the bf16 units replaced by two
// multiply-adds so that any machine runs them, against the same products with widened bf16.
#include <math.h>

#include "device/cpu/gemm.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

extern const tri_gemm_kernels tri_gemm_bf16_widened;

static const float POISON = 12345.0f;

static tri_bf16 *take_bf16(int64_t n, uint64_t key)
{
  float *values = malloc((size_t)n * sizeof *values);
  tri_bf16 *out = malloc((size_t)n * sizeof *out);
  tri_random_normal(key, 0, n, 0.0f, 1.0f, values);
  for (int64_t i = 0; i < n; i++)
    out[i] = tri_bf16_from_float(values[i]);
  free(values);
  return out;
}

static float *take_f32(int64_t n, uint64_t key)
{
  float *out = malloc((size_t)(n + 1) * sizeof *out);
  tri_random_normal(key, 0, n, 0.0f, 1.0f, out);
  out[n] = POISON;
  return out;
}

static void run(const tri_gemm_kernels *kernels, const tri_gemm *gemm)
{
  float *scratch = tri_calloc(TRI_MODULE_TEST, tri_gemm_scratch_floats(kernels, gemm, 2), 4);
  EXPECT(scratch != NULL);
  tri_gemm_run(kernels, gemm, 2, scratch);
  tri_free(scratch);
}

static void expect_near(const float *a, const float *b, int64_t n, double tolerance)
{
  for (int64_t i = 0; i < n; i++)
    EXPECT_NEAR(a[i], b[i], tolerance);
  EXPECT(a[n] == POISON && b[n] == POISON);
}

// Each layout of each operand, with and without what is added to C.
static void compare(int64_t M, int64_t N, int64_t K)
{
  tri_bf16 *a = take_bf16(M * K, 1), *b = take_bf16(K * N, 2);
  float *bias = take_f32(N, 3);
  for (int layout = 0; layout < 8; layout++) {
    float *c[2] = {take_f32(M * N, 4), take_f32(M * N, 4)};
    float *sums[2] = {take_f32(M, 5), take_f32(M, 5)};
    const bool a_rows = layout & 1, b_rows = layout & 2, add = layout & 4;
    tri_gemm gemm = {.M = M, .N = N, .K = K, .c_dtype = TRI_DTYPE_F32, .add = add};
    gemm.a = (tri_gemm_operand){a, a_rows ? K : 1, a_rows ? 1 : M, TRI_DTYPE_BF16};
    gemm.b = (tri_gemm_operand){b, b_rows ? N : 1, b_rows ? 1 : K, TRI_DTYPE_BF16};
    gemm.bias = add ? NULL : bias;
    for (int which = 0; which < 2; which++) {
      gemm.c = c[which];
      gemm.a_sums = sums[which];
      run(which == 0 ? &tri_gemm_f32_baseline : &tri_gemm_bf16_widened, &gemm);
    }
    // Terms are products of normal numbers: partial sums of K of them stay below 5 sqrt(K), each
    // of K + 1 roundings is at most 2^-24 of that, on either side.
    const double tolerance = 2.0 * (double)(K + 1) * 0x1p-24 * 5.0 * sqrt((double)K);
    expect_near(c[0], c[1], M * N, tolerance);
    expect_near(sums[0], sums[1], M, tolerance);
    for (int which = 0; which < 2; which++) {
      free(c[which]);
      free(sums[which]);
    }
  }
  free(a);
  free(b);
  free(bias);
}

TEST(pairs_agree_with_widened_elements)
{
  compare(1, 1, 1);
  compare(33, 31, 32);
  compare(31, 33, 257);
  compare(5, 100, 1000);
  compare(250, 390, 33);
}

int main(void)
{
  TEST_RUN(pairs_agree_with_widened_elements);
  return test_end();
}
