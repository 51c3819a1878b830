// The vector kernels, for every instruction set that this machine has: against the reference, the
// same bits with 1, 2 and 3 threads, and the bounds of their exp and their roundings.
#include <math.h>

#include "config.h"
#include "device/cpu/cpu.h"
#include "device/kernel_cases.h"
#include "device/vector_pieces.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

// A device with its stream.
typedef struct opened {
  tri_device *device;
  tri_stream *stream;
  const tri_kernels *kernels;
} opened;

static tri_cpu_isa isa; // under test

static opened open_cpu(const char *kernels, int n_threads)
{
  const tri_device_options options = {
      .isa = tri_cpu_isa_name(isa), .kernels = kernels, .n_threads = n_threads};
  opened it = {0};
  EXPECT_OK(tri_device_open("cpu", &options, &it.device));
  EXPECT_OK(tri_stream_create(it.device, &it.stream));
  it.kernels = tri_device_kernels(it.device);
  return it;
}

static void close_cpu(opened *it)
{
  tri_stream_destroy(&it->stream);
  tri_device_close(&it->device);
}

static kernel_side side_of(const char *name, const opened *it)
{
  return (kernel_side){
      .name = name, .kernels = it->kernels, .device = it->device, .stream = it->stream};
}

// --- against the reference

typedef tri_status (*cases)(const kernel_comparison *comparison);

static void compare(cases run)
{
  opened plain = open_cpu("reference", 1), tuned = open_cpu("tuned", 1);
  const kernel_comparison comparison = {
      .sides = {side_of("reference", &plain), side_of(tri_cpu_isa_name(isa), &tuned)}};
  EXPECT_OK(run(&comparison));
  close_cpu(&plain);
  close_cpu(&tuned);
}

TEST(elementwise_agrees)
{
  compare(kernel_cases_elementwise);
}

TEST(embedding_agrees)
{
  compare(kernel_cases_embedding);
}

TEST(layernorm_agrees)
{
  compare(kernel_cases_layernorm);
}

TEST(residual_agrees)
{
  compare(kernel_cases_residual);
}

TEST(attention_agrees)
{
  compare(kernel_cases_attention);
}

TEST(attention_decode_agrees)
{
  compare(kernel_cases_attention_decode);
}

TEST(cross_entropy_agrees)
{
  compare(kernel_cases_cross_entropy);
}

TEST(adamw_agrees)
{
  compare(kernel_cases_adamw);
}

TEST(bad_arguments_are_refused)
{
  opened tuned = open_cpu("tuned", 1);
  const kernel_side side = side_of(tri_cpu_isa_name(isa), &tuned);
  EXPECT_OK(kernel_cases_refusals(&side));
  float x[1] = {0};
  EXPECT_ERROR(
      TRI_ERR_ARGUMENT, "513",
      tuned.kernels->attention_forward(tuned.stream, x, x, x, 1, 1, 1, 513, TRI_DTYPE_F32, NULL));
  close_cpu(&tuned);
}

// Arrays from 8 MiB on are written past the caches.
TEST(large_fill_stays_in_its_array)
{
  enum { SIZE = 2 * 1024 * 1024 + 13 };
  opened tuned = open_cpu("tuned", 2);
  void *memory = NULL;
  EXPECT_OK(tri_device_alloc(tuned.device, (SIZE + 2) * sizeof(float), &memory));
  float *x = memory;
  for (int shift = 0; shift < 2; shift++) {
    memset(x, 0, (SIZE + 2) * sizeof *x);
    EXPECT_OK(tuned.kernels->fill(tuned.stream, x + shift, 3.0f, SIZE));
    int64_t n = 0;
    for (int i = 0; i < SIZE; i++)
      n += x[shift + i] == 3.0f;
    EXPECT(n == SIZE && x[shift + SIZE] == 0.0f && (shift == 0 || x[0] == 0.0f));
  }
  tri_device_free(tuned.device, &memory);
  close_cpu(&tuned);
}

// --- the same bits with any number of threads

// Large enough that every kernel shares its work out.
enum { B = 3, T = 70, H = 3, D = 40, C = 3 * D, N = B * T, VOCABULARY = 113 };

static float *normal(const char *name, int64_t n)
{
  float *x = NULL;
  EXPECT_OK(TRI_NEW(TRI_MODULE_DEVICE, (size_t)n, &x));
  tri_random_normal(tri_random_key(1, name), 0, n, 0.0f, 1.0f, x);
  return x;
}

// Everything that one pass over the kernels writes, in one block.
typedef struct outputs {
  float hidden[4][N * C], mean[N], rstd[N];
  float dwte[VOCABULARY * C], dwpe[T * C], dw[C], db[C];
  float attended[N * C], lse[B * H * T], delta[B * H * T], dqkv[3 * N * C];
  float losses[N], logits[N * C];
  float positioned[N * C], dx[N * C], dpositions[T * C];
  float statistics[3 * N], softmax[2 * N], part_losses[N], part_logits[N * C];
  float p[N * C], m[N * C], v[N * C];
  tri_bf16 p_bf16[N * C];
  double squares[(N * C + TRI_NORM_CHUNK - 1) / TRI_NORM_CHUNK], total;
} outputs;

static void run_all(const opened *it, outputs *out, const float *x, const float *y,
                    const float *qkv, const int32_t *tokens)
{
  const tri_kernels *k = it->kernels;
  tri_stream *s = it->stream;
  const tri_dropout drop = {.p = 0.25f, .key = 5, .first_sample = 11};
  const tri_dtype f32 = TRI_DTYPE_F32;
  const float *w = y, *bias = y + C;
  EXPECT_OK(k->fill(s, out->dwte, 0.5f, VOCABULARY * C));
  EXPECT_OK(k->fill(s, out->hidden[3], 0.25f, N * C));
  EXPECT_OK(
      k->embedding_forward(s, out->hidden[0], tokens, x, y, B, T, C, 0, VOCABULARY, 3, f32, &drop));
  EXPECT_OK(k->embedding_backward(s, out->dwte, out->dwpe, x, tokens, B, T, C, 0, VOCABULARY, f32,
                                  &drop));
  EXPECT_OK(k->residual_layernorm_forward(s, out->hidden[1], out->hidden[2], out->mean, out->rstd,
                                          x, y, w, bias, N, T, C, 1e-5f, f32, &drop));
  EXPECT_OK(k->layernorm_backward(s, out->hidden[3], out->dw, out->db, y, out->hidden[1], w,
                                  out->mean, out->rstd, N, C, f32));
  EXPECT_OK(k->attention_forward(s, out->attended, out->lse, qkv, B, T, H, D, f32, &drop));
  EXPECT_OK(k->attention_backward(s, out->dqkv, out->delta, x, qkv, out->attended, out->lse, B, T,
                                  H, D, f32, &drop));
  EXPECT_OK(k->convert(s, out->p_bf16, TRI_DTYPE_BF16, x, f32, N * C));
  EXPECT_OK(k->convert(s, out->logits, f32, out->p_bf16, TRI_DTYPE_BF16, N * C));
  EXPECT_OK(
      k->cross_entropy_backward(s, out->losses, out->logits, tokens, 0.5f, N, VOCABULARY, C, f32));
  EXPECT_OK(k->positions_forward(s, out->positioned, x, y, N, T, C, 3, f32, &drop));
  EXPECT_OK(k->positions_backward(s, out->dx, out->dpositions, x, N, T, C, f32, &drop));
  EXPECT_OK(k->convert(s, out->part_logits, f32, out->p_bf16, TRI_DTYPE_BF16, N * C));
  EXPECT_OK(k->cross_entropy_statistics(s, out->statistics, out->part_logits, tokens, N, VOCABULARY,
                                        C, 0, f32));
  EXPECT_OK(
      k->cross_entropy_combine(s, out->part_losses, out->softmax, out->statistics, tokens, 1, N));
  EXPECT_OK(k->cross_entropy_gradient(s, out->part_logits, out->softmax, tokens, 0.5f, N,
                                      VOCABULARY, C, 0, f32));
  EXPECT_OK(k->add(s, out->p, x, y, N * C));
  EXPECT_OK(k->adamw(s, out->p, out->p_bf16, out->m, out->v, x, N * C, 1e-3f, 0.9f, 0.95f, 1e-8f,
                     0.1f, 0.5f, 0.1f, 0.05f));
  EXPECT_OK(k->sum_squares(s, out->squares, x, N * C));
  EXPECT_OK(k->sum(s, &out->total, x, N * C));
}

TEST(bits_do_not_depend_on_threads)
{
  float *x = normal("x", VOCABULARY * C + N * C), *y = normal("y", N * C);
  float *qkv = normal("qkv", 3 * N * C);
  int32_t tokens[N];
  for (int i = 0; i < N; i++)
    tokens[i] = i * 31 % VOCABULARY;
  outputs *one = NULL, *more = NULL;
  EXPECT_OK(TRI_NEW(TRI_MODULE_DEVICE, 1, &one));
  for (int n_threads = 1; n_threads <= 3; n_threads++) {
    opened tuned = open_cpu("tuned", n_threads);
    EXPECT_OK(TRI_NEW(TRI_MODULE_DEVICE, 1, &more));
    run_all(&tuned, n_threads == 1 ? one : more, x, y, qkv, tokens);
    EXPECT(n_threads == 1 || memcmp(one, more, sizeof *one) == 0);
    tri_free(more);
    close_cpu(&tuned);
  }
  tri_free(one);
  tri_free(qkv);
  tri_free(y);
  tri_free(x);
}

// Many groups of rows, whose parts of dw and db must meet in order.
TEST(layernorm_sums_do_not_depend_on_threads)
{
  enum { ROWS = 20000, COLUMNS = 16 };
  float *x = normal("x", ROWS * COLUMNS), *dout = normal("dout", ROWS * COLUMNS);
  float *mean = normal("mean", ROWS), *rstd = normal("rstd", ROWS), *w = normal("w", COLUMNS);
  float sums[3][2 * COLUMNS] = {{0}};
  for (int n_threads = 1; n_threads <= 3; n_threads++) {
    opened tuned = open_cpu("tuned", n_threads);
    float *dx = normal("dx", ROWS * COLUMNS), *dw = sums[n_threads - 1], *db = dw + COLUMNS;
    EXPECT_OK(tuned.kernels->layernorm_backward(tuned.stream, dx, dw, db, dout, x, w, mean, rstd,
                                                ROWS, COLUMNS, TRI_DTYPE_F32));
    EXPECT(memcmp(sums[0], dw, sizeof sums[0]) == 0);
    tri_free(dx);
    close_cpu(&tuned);
  }
  tri_free(w);
  tri_free(rstd);
  tri_free(mean);
  tri_free(dout);
  tri_free(x);
}

// --- more queries than the backward kernel's window of dq holds: 256 of width 512

TEST(attention_of_many_windows_agrees)
{
  enum { LONG = 262, WIDTH = 512, SIZE = LONG * WIDTH };
  opened plain = open_cpu("reference", 1), tuned = open_cpu("tuned", 1);
  float *qkv = normal("qkv", 3 * SIZE), *dout = normal("dout", SIZE), *out = normal("out", SIZE);
  float *want = normal("want", 3 * SIZE), *got = normal("got", 3 * SIZE);
  float lse[LONG], delta[LONG];
  EXPECT_OK(plain.kernels->attention_forward(plain.stream, out, lse, qkv, 1, LONG, 1, WIDTH,
                                             TRI_DTYPE_F32, NULL));
  EXPECT_OK(plain.kernels->attention_backward(plain.stream, want, delta, dout, qkv, out, lse, 1,
                                              LONG, 1, WIDTH, TRI_DTYPE_F32, NULL));
  EXPECT_OK(tuned.kernels->attention_backward(tuned.stream, got, delta, dout, qkv, out, lse, 1,
                                              LONG, 1, WIDTH, TRI_DTYPE_F32, NULL));
  double worst = 0.0;
  for (int i = 0; i < 3 * SIZE; i++) {
    // Not fmax, as in src/device/cpu/cross_entropy.c.
    const double apart = fabs((double)got[i] - (double)want[i]);
    if (!(apart <= worst)) worst = apart;
  }
  // dP and delta are sums of WIDTH products of numbers of size 1; P, up to 1, takes their error on.
  EXPECT_NEAR(worst, 0.0, WIDTH * 0x1p-24);
  tri_free(qkv);
  tri_free(dout);
  tri_free(out);
  tri_free(want);
  tri_free(got);
  close_cpu(&plain);
  close_cpu(&tuned);
}

// --- pieces

typedef struct vector_pieces {
  void (*exp)(float *out, const float *x, int64_t n);
  void (*bf16)(uint16_t *out, const float *x, int64_t n);
  void (*words)(uint32_t *out, uint64_t key, uint64_t sample, int64_t first, int64_t n);
} vector_pieces;

static vector_pieces pieces(void)
{
#ifdef TRI_HAVE_X86
  if (isa >= TRI_CPU_AVX512)
    return (vector_pieces){vector_exp_avx512, vector_bf16_avx512, vector_words_avx512};
  if (isa == TRI_CPU_AVX2)
    return (vector_pieces){vector_exp_avx2, vector_bf16_avx2, vector_words_avx2};
#endif
  return (vector_pieces){vector_exp_baseline, vector_bf16_baseline, vector_words_baseline};
}

static float float_of(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint32_t bits_of(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Every 1021st float of both signs inside the range.
TEST(exp_is_within_two_units_in_the_last_place)
{
  enum { RUN = 64 };
  const float ends[2] = {88.0f, -87.33f};
  double worst = 0.0;
  for (int sign = 0; sign < 2; sign++) {
    const uint32_t first = bits_of(sign == 0 ? 0.0f : -0.0f), last = bits_of(ends[sign]);
    for (uint32_t bits = first; bits < last; bits += 1021 * RUN) {
      float x[RUN], y[RUN];
      for (uint32_t i = 0; i < RUN; i++)
        x[i] = float_of(bits + 1021 * i < last ? bits + 1021 * i : last);
      pieces().exp(y, x, RUN);
      for (int i = 0; i < RUN; i++) {
        const double want = exp((double)x[i]);
        const float near = (float)want;
        const double ulp = (double)nextafterf(near, INFINITY) - (double)near;
        worst = fmax(worst, fabs((double)y[i] - want) / ulp);
      }
    }
  }
  EXPECT_NEAR(worst, 0.0, 2.0);
}

TEST(exp_of_the_ends_is_exact)
{
  const float x[] = {0.0f,
                     -0.0f,
                     -INFINITY,
                     -87.7f,
                     -1e30f,
                     float_of(0x7fc00000),
                     float_of(0xffffffff),
                     float_of(0x7f800001)};
  float y[8];
  pieces().exp(y, x, 8);
  EXPECT(y[0] == 1.0f && y[1] == 1.0f);
  EXPECT(y[2] == 0.0f && y[3] == 0.0f && y[4] == 0.0f);
  EXPECT(isnan(y[5]) && isnan(y[6]) && isnan(y[7]));
}

// All upper halves, with lower halves around the ties.
TEST(bf16_rounds_as_the_scalar_does)
{
  static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (uint32_t upper = 0; upper <= 0xffff; upper += 1) {
    float x[6];
    uint16_t y[6];
    for (int i = 0; i < 6; i++)
      x[i] = float_of(upper << 16 | lower[i]);
    pieces().bf16(y, x, 6);
    for (int i = 0; i < 6; i++)
      EXPECT(y[i] == tri_bf16_from_float(x[i]));
  }
}

// Also where the number of the block of four passes 2^32, and for samples beyond 2^32.
TEST(dropout_words_are_philox)
{
  const int64_t firsts[] = {0, 1, 6, 255, (1ll << 34) - 101};
  const uint64_t key = 0x0123456789abcdefull, sample = 0xfedcba9876543210ull;
  for (int f = 0; f < 5; f++) {
    uint32_t got[256], want[4];
    pieces().words(got, key, sample, firsts[f], 256);
    for (int i = 0; i < 256; i++) {
      const uint64_t element = (uint64_t)(firsts[f] + i);
      const uint32_t counter[4] = {(uint32_t)(element / 4), (uint32_t)(element / 4 >> 32),
                                   (uint32_t)sample, (uint32_t)(sample >> 32)};
      tri_random_philox(key, counter, want);
      EXPECT(got[i] == want[element % 4]);
    }
  }
}

TEST(everything_is_released)
{
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  for (isa = TRI_CPU_BASELINE; isa <= tri_cpu_detect_isa(); isa++) {
    printf("# %s\n", tri_cpu_isa_name(isa));
    TEST_RUN(elementwise_agrees);
    TEST_RUN(embedding_agrees);
    TEST_RUN(layernorm_agrees);
    TEST_RUN(residual_agrees);
    TEST_RUN(attention_agrees);
    TEST_RUN(attention_decode_agrees);
    TEST_RUN(cross_entropy_agrees);
    TEST_RUN(adamw_agrees);
    TEST_RUN(bad_arguments_are_refused);
    TEST_RUN(large_fill_stays_in_its_array);
    TEST_RUN(bits_do_not_depend_on_threads);
    TEST_RUN(layernorm_sums_do_not_depend_on_threads);
    TEST_RUN(attention_of_many_windows_agrees);
    TEST_RUN(exp_is_within_two_units_in_the_last_place);
    TEST_RUN(exp_of_the_ends_is_exact);
    TEST_RUN(dropout_words_are_philox);
    TEST_RUN(bf16_rounds_as_the_scalar_does);
  }
  TEST_RUN(everything_is_released);
  return test_end();
}
