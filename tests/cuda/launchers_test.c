// The launchers of kernels/ on the emulated device, without the backend in front of them: every
// kernel against the CPU reference, and the same bits whatever the order in which threads and
// blocks run; attention also as a device without bf16 tensor cores runs it. Built and run by
// launchers.sh.
//
// The arrays are those of the CPU device. The linear layers are put together as the backend does
// where cuBLASLt takes nothing.
#include "cuda/launchers_direct.h"
#include "device/cpu/reference.h"
#include "device/kernel_cases.h"
#include "kernels/launchers.h"
#include "test.h"

static tri_launch launch = {.compute_capability = 90};
static tri_device *device;
static tri_stream *ascending, *reordered; // of the two sides: kernels of the second run in …
static int order;                         // … this order
static uint64_t seed;
static int n_launches;

// What an earlier kernel left in the workspace is NaN: whoever reads it shows.
static const tri_launch *start(const tri_stream *stream)
{
  enum { SEEN = 4 << 20 };
  memset(launch.workspace, 0xff, SEEN);
  emu_set_order(stream == reordered ? order : 0, seed);
  n_launches++;
  return &launch;
}

static tri_status status_of(cudaError_t error)
{
  TRI_CHECK(error == cudaSuccess, TRI_ERR_INTERNAL, "the launcher returned error %d", (int)error);
  return TRI_OK;
}

// One entry of the table on one launcher: ENTRY(name, (parameters), arguments).
#define PARAMETERS(...) (struct tri_stream * stream, __VA_ARGS__)
#define ENTRY(name, parameters, ...) \
  static tri_status name parameters \
  { \
    return status_of(tri_launch_##name(start(stream), __VA_ARGS__)); \
  }

ENTRY(fill, PARAMETERS(float *out, float value, int64_t n), out, value, n)
ENTRY(convert,
      PARAMETERS(void *out, tri_dtype out_dtype, const void *x, tri_dtype x_dtype, int64_t n), out,
      out_dtype, x, x_dtype, n)
ENTRY(add, PARAMETERS(float *out, const float *a, const float *b, int64_t n), out, a, b, n)
ENTRY(sum_squares, PARAMETERS(double *out, const float *x, int64_t n), out, x, n)
ENTRY(sum, PARAMETERS(double *out, const float *x, int64_t n), out, x, n)
ENTRY(embedding_forward,
      PARAMETERS(void *out, const int32_t *tokens, const void *wte, const void *wpe, int64_t B,
                 int64_t T, int64_t C, int64_t first_token, int64_t V, int64_t first_position,
                 tri_dtype dtype, const tri_dropout *dropout),
      out, tokens, wte, wpe, B, T, C, first_token, V, first_position, dtype, dropout)
ENTRY(embedding_backward,
      PARAMETERS(float *dwte, float *dwpe, const void *dout, const int32_t *tokens, int64_t B,
                 int64_t T, int64_t C, int64_t first_token, int64_t V, tri_dtype dtype,
                 const tri_dropout *dropout),
      dwte, dwpe, dout, tokens, B, T, C, first_token, V, dtype, dropout)
ENTRY(positions_forward,
      PARAMETERS(void *out, const void *x, const void *wpe, int64_t N, int64_t T, int64_t C,
                 int64_t first_position, tri_dtype dtype, const tri_dropout *dropout),
      out, x, wpe, N, T, C, first_position, dtype, dropout)
ENTRY(positions_backward,
      PARAMETERS(void *dx, float *dwpe, const void *dout, int64_t N, int64_t T, int64_t C,
                 tri_dtype dtype, const tri_dropout *dropout),
      dx, dwpe, dout, N, T, C, dtype, dropout)
ENTRY(layernorm_forward,
      PARAMETERS(void *out, float *mean, float *rstd, const void *x, const void *w, const void *b,
                 int64_t N, int64_t C, float eps, tri_dtype dtype),
      out, mean, rstd, x, w, b, N, C, eps, dtype)
ENTRY(layernorm_backward,
      PARAMETERS(void *dx, float *dw, float *db, const void *dout, const void *x, const void *w,
                 const float *mean, const float *rstd, int64_t N, int64_t C, tri_dtype dtype),
      dx, dw, db, dout, x, w, mean, rstd, N, C, dtype)
ENTRY(residual_layernorm_forward,
      PARAMETERS(void *residual, void *out, float *mean, float *rstd, const void *x,
                 const void *delta, const void *w, const void *b, int64_t N, int64_t T, int64_t C,
                 float eps, tri_dtype dtype, const tri_dropout *dropout),
      residual, out, mean, rstd, x, delta, w, b, N, T, C, eps, dtype, dropout)
ENTRY(residual_forward,
      PARAMETERS(void *out, const void *x, const void *delta, int64_t N, int64_t T, int64_t C,
                 tri_dtype dtype, const tri_dropout *dropout),
      out, x, delta, N, T, C, dtype, dropout)
ENTRY(residual_backward,
      PARAMETERS(void *ddelta, const void *dout, int64_t N, int64_t T, int64_t C, tri_dtype dtype,
                 const tri_dropout *dropout),
      ddelta, dout, N, T, C, dtype, dropout)
ENTRY(attention_forward,
      PARAMETERS(void *out, float *lse, const void *qkv, int64_t B, int64_t T, int64_t H, int64_t D,
                 tri_dtype dtype, const tri_dropout *dropout),
      out, lse, qkv, B, T, H, D, dtype, dropout)
ENTRY(attention_backward,
      PARAMETERS(void *dqkv, float *delta, const void *dout, const void *qkv, const void *out,
                 const float *lse, int64_t B, int64_t T, int64_t H, int64_t D, tri_dtype dtype,
                 const tri_dropout *dropout),
      dqkv, delta, dout, qkv, out, lse, B, T, H, D, dtype, dropout)
ENTRY(attention_decode,
      PARAMETERS(void *out, void *k_cache, void *v_cache, const void *qkv, int64_t position,
                 int64_t B, int64_t T_max, int64_t H, int64_t D, tri_dtype dtype),
      out, k_cache, v_cache, qkv, position, B, T_max, H, D, dtype)
ENTRY(cross_entropy_forward,
      PARAMETERS(float *losses, const void *logits, const int32_t *targets, int64_t N, int64_t V,
                 int64_t Vp, tri_dtype dtype),
      losses, logits, targets, N, V, Vp, dtype)
ENTRY(cross_entropy_backward,
      PARAMETERS(float *losses, void *logits, const int32_t *targets, float scale, int64_t N,
                 int64_t V, int64_t Vp, tri_dtype dtype),
      losses, logits, targets, scale, N, V, Vp, dtype)
ENTRY(cross_entropy_statistics,
      PARAMETERS(float *statistics, const void *logits, const int32_t *targets, int64_t N,
                 int64_t V, int64_t Vp, int64_t first_token, tri_dtype dtype),
      statistics, logits, targets, N, V, Vp, first_token, dtype)
ENTRY(cross_entropy_combine,
      PARAMETERS(float *losses, float *softmax, const float *statistics, const int32_t *targets,
                 int64_t count, int64_t N),
      losses, softmax, statistics, targets, count, N)
ENTRY(cross_entropy_gradient,
      PARAMETERS(void *logits, const float *softmax, const int32_t *targets, float scale, int64_t N,
                 int64_t V, int64_t Vp, int64_t first_token, tri_dtype dtype),
      logits, softmax, targets, scale, N, V, Vp, first_token, dtype)
ENTRY(adamw,
      PARAMETERS(float *p, tri_bf16 *p_bf16, float *m, float *v, const float *g, int64_t n,
                 float lr, float beta1, float beta2, float eps, float weight_decay,
                 float grad_scale, float correction1, float correction2),
      p, p_bf16, m, v, g, n, lr, beta1, beta2, eps, weight_decay, grad_scale, correction1,
      correction2)

// As the backend does where cuBLASLt takes nothing: a bias that is added to a rounded bf16 product
// would round twice, so the product adds it; for f32 it is added after.
static tri_status linear_forward(struct tri_stream *stream, void *out, void *gelu, const void *x,
                                 const void *w, const void *bias, int64_t N, int64_t IC, int64_t OC,
                                 tri_dtype dtype)
{
  const bool after = dtype == TRI_DTYPE_F32;
  if (IC == 0) return TRI_OK;
  TRI_CALL(status_of(
      tri_launch_product_forward(start(stream), out, x, w, after ? NULL : bias, N, IC, OC, dtype)));
  return status_of(
      tri_launch_bias_gelu(start(stream), out, gelu, after ? bias : NULL, N, OC, dtype));
}

static tri_status linear_backward_input(struct tri_stream *stream, void *dx, const void *dout,
                                        const void *w, const void *pre, int64_t N, int64_t IC,
                                        int64_t OC, tri_dtype dtype)
{
  if (OC == 0) return TRI_OK;
  TRI_CALL(
      status_of(tri_launch_product_backward_input(start(stream), dx, dout, w, N, IC, OC, dtype)));
  if (pre == NULL) return TRI_OK;
  return status_of(tri_launch_gelu_backward(start(stream), dx, pre, N * IC, dtype));
}

static tri_status linear_backward_weight(struct tri_stream *stream, float *dw, float *dbias,
                                         const void *dout, const void *x, int64_t N, int64_t IC,
                                         int64_t OC, tri_dtype dtype)
{
  TRI_CALL(
      status_of(tri_launch_product_backward_weight(start(stream), dw, dout, x, N, IC, OC, dtype)));
  if (N == 0 || IC == 0 || dbias == NULL) return TRI_OK;
  return status_of(tri_launch_bias_backward(start(stream), dbias, dout, N, OC, dtype));
}

static const tri_kernels EMULATED = {
    .fill = fill,
    .convert = convert,
    .add = add,
    .sum_squares = sum_squares,
    .sum = sum,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .positions_forward = positions_forward,
    .positions_backward = positions_backward,
    .layernorm_forward = layernorm_forward,
    .layernorm_backward = layernorm_backward,
    .residual_layernorm_forward = residual_layernorm_forward,
    .residual_forward = residual_forward,
    .residual_backward = residual_backward,
    .linear_prepare = tri_cpu_linear_prepare,
    .linear_forward = linear_forward,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .attention_decode = attention_decode,
    .cross_entropy_forward = cross_entropy_forward,
    .cross_entropy_backward = cross_entropy_backward,
    .cross_entropy_statistics = cross_entropy_statistics,
    .cross_entropy_combine = cross_entropy_combine,
    .cross_entropy_gradient = cross_entropy_gradient,
    .adamw = adamw,
};

static tri_status all_cases(const kernel_comparison *comparison)
{
  TRI_CALL(kernel_cases_elementwise(comparison));
  TRI_CALL(kernel_cases_embedding(comparison));
  TRI_CALL(kernel_cases_layernorm(comparison));
  TRI_CALL(kernel_cases_residual(comparison));
  TRI_CALL(kernel_cases_linear(comparison));
  TRI_CALL(kernel_cases_attention(comparison));
  TRI_CALL(kernel_cases_attention_decode(comparison));
  TRI_CALL(kernel_cases_cross_entropy(comparison));
  TRI_CALL(kernel_cases_adamw(comparison));
  return TRI_OK;
}

static kernel_comparison with_the_reference(void)
{
  order = 0;
  return (kernel_comparison){
      .sides = {{"reference", tri_device_kernels(device), device, ascending, 0},
                {"emulated", &EMULATED, device, reordered, 0}}};
}

TEST(agrees_with_the_reference)
{
  const kernel_comparison comparison = with_the_reference();
  EXPECT_OK(all_cases(&comparison));
  EXPECT(tensor_core_use_so_far().products > 0);
}

// The last devices that have no tensor cores for bf16.
TEST(attention_without_tensor_cores_agrees_too)
{
  const kernel_comparison comparison = with_the_reference();
  const uint64_t products = tensor_core_use_so_far().products;
  launch.compute_capability = 75;
  EXPECT_OK(kernel_cases_attention(&comparison));
  launch.compute_capability = 90;
  EXPECT(tensor_core_use_so_far().products == products);
}

// Last: of all that ran before.
TEST(ldmatrix_meets_no_bank_conflicts)
{
  EXPECT(tensor_core_use_so_far().bank_conflicts == 0);
}

static void compare_orders(int with_order, uint64_t with_seed)
{
  order = with_order;
  seed = with_seed;
  const kernel_comparison comparison = {.sides = {{"ascending", &EMULATED, device, ascending, 0},
                                                  {"reordered", &EMULATED, device, reordered, 0}},
                                        .same_bits = true};
  EXPECT_OK(all_cases(&comparison));
}

TEST(descending_order_gives_the_same_bits)
{
  compare_orders(1, 1);
}

TEST(warp_priorities_give_the_same_bits)
{
  compare_orders(3, 1);
  compare_orders(3, 2);
}

// "one": only in ascending order, for sanitizers, which see more in one order than results tell.
int main(int argc, char **argv)
{
  launch.workspace = aligned_alloc(256, TRI_CUDA_WORKSPACE_BYTES);
  const tri_device_options options = {.kernels = "reference"};
  if (launch.workspace == NULL || tri_device_open("cpu", &options, &device) != TRI_OK ||
      tri_stream_create(device, &ascending) != TRI_OK ||
      tri_stream_create(device, &reordered) != TRI_OK) {
    printf("not ok launchers_test: %s\n", tri_error_message());
    return 1;
  }
  TEST_RUN(agrees_with_the_reference);
  TEST_RUN(attention_without_tensor_cores_agrees_too);
  if (argc < 2 || strcmp(argv[1], "one") != 0) {
    TEST_RUN(descending_order_gives_the_same_bits);
    TEST_RUN(warp_priorities_give_the_same_bits);
  }
  TEST_RUN(ldmatrix_meets_no_bank_conflicts);
  printf("%d launches\n", n_launches);
  tri_stream_destroy(&reordered);
  tri_stream_destroy(&ascending);
  tri_device_close(&device);
  free(launch.workspace);
  return test_end();
}
