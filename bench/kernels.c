// Speed of the vector kernels on this machine:
//
//   make bench/kernels && bench/kernels [ISA [THREADS [NAME]]]
//
// NAME: only kernels whose name begins so.
//
// Kernels bound by memory: bytes that must move (each array once in, once out) per second, over the
// same rate of a memcpy that moves as many. Attention: floating-point operations of the products
// below the diagonal per second, over the rate of multiply-adds on registers. Every number is the
// best of several runs; with one thread in its own processor time, so that neighbours on a busy
// machine only cost bandwidth.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "device/cpu/cpu.h"
#include "device/vector_pieces.h"
#include "trireme/base/random.h"
#include "trireme/device/device.h"

enum { RUNS = 15 };

static const char *wanted = "";

static bool is_wanted(const char *name)
{
  return strncmp(name, wanted, strlen(wanted)) == 0;
}

// GPT-2 124M, a micro-batch of 4 x 256.
enum { B = 4, T = 256, N = B * T, C = 768, ROWS = 256, VOCABULARY = 50257, PADDED = 50304 };
enum { LARGE = 8 << 20 };

typedef struct bench {
  const tri_kernels *k;
  tri_stream *stream;
  tri_dtype dtype;
  float *f[6];  // LARGE floats each, standard normal
  void *x[4];   // the first of them in `dtype`
  void *logits; // (ROWS, PADDED)
  void *qkv, *dqkv;
  int32_t *tokens;
  double *sums;
  tri_dropout dropout;
  int64_t attention_T, attention_B;
} bench;

static clockid_t clock_id = CLOCK_MONOTONIC;

static double seconds(void)
{
  struct timespec now;
  clock_gettime(clock_id, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check(tri_status status)
{
  if (status == TRI_OK) return;
  fprintf(stderr, "%s: %s\n", tri_status_name(status), tri_error_message());
  exit(1);
}

static void *room(size_t size_bytes)
{
  void *memory = aligned_alloc(256, (size_bytes + 255) / 256 * 256);
  if (memory == NULL) {
    fprintf(stderr, "no memory for %zu bytes\n", size_bytes);
    exit(1);
  }
  memset(memory, 0, size_bytes);
  return memory;
}

typedef tri_status (*operation)(const bench *a);

static double best_time(operation run, const bench *a)
{
  double best = 1e9;
  for (int i = 0; i < RUNS; i++) {
    const double begin = seconds();
    check(run(a));
    const double time = seconds() - begin;
    best = time < best ? time : best;
  }
  return best;
}

static double copy_time(double bytes)
{
  static char *from, *to;
  const size_t half = (size_t)(bytes / 2.0);
  from = room(half);
  to = room(half);
  double best = 1e9;
  for (int i = 0; i < RUNS; i++) {
    const double begin = seconds();
    memcpy(to, from, half);
    const double time = seconds() - begin;
    best = time < best ? time : best;
  }
  free(from);
  free(to);
  return best;
}

// --- bound by memory

static tri_status fill(const bench *a)
{
  return a->k->fill(a->stream, a->f[0], 1.0f, LARGE);
}
static tri_status convert(const bench *a)
{
  return a->k->convert(a->stream, a->f[0], TRI_DTYPE_BF16, a->f[1], TRI_DTYPE_F32, LARGE);
}
static tri_status add(const bench *a)
{
  return a->k->add(a->stream, a->f[0], a->f[1], a->f[2], LARGE);
}
static tri_status sum_squares(const bench *a)
{
  return a->k->sum_squares(a->stream, a->sums, a->f[1], LARGE);
}
static tri_status adamw(const bench *a)
{
  return a->k->adamw(a->stream, a->f[0], (tri_bf16 *)(void *)a->f[4], a->f[1], a->f[2], a->f[3],
                     LARGE, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, 0.5f, 0.5f);
}
static tri_status embedding_forward(const bench *a)
{
  return a->k->embedding_forward(a->stream, a->x[0], a->tokens, a->x[1], a->x[2], B, T, C, 0,
                                 VOCABULARY, 0, a->dtype, &a->dropout);
}
static tri_status embedding_backward(const bench *a)
{
  return a->k->embedding_backward(a->stream, a->f[4], a->f[5], a->x[0], a->tokens, B, T, C, 0,
                                  VOCABULARY, a->dtype, &a->dropout);
}
static tri_status positions_forward(const bench *a)
{
  return a->k->positions_forward(a->stream, a->x[0], a->x[1], a->x[2], N, T, C, 0, a->dtype,
                                 &a->dropout);
}
static tri_status positions_backward(const bench *a)
{
  return a->k->positions_backward(a->stream, a->x[0], a->f[5], a->x[1], N, T, C, a->dtype,
                                  &a->dropout);
}
static tri_status layernorm_forward(const bench *a)
{
  return a->k->layernorm_forward(a->stream, a->x[0], a->f[4], a->f[5], a->x[1], a->x[2], a->x[3], N,
                                 C, 1e-5f, a->dtype);
}
static tri_status residual_layernorm_forward(const bench *a)
{
  return a->k->residual_layernorm_forward(a->stream, a->qkv, a->x[0], a->f[4], a->f[5], a->x[1],
                                          a->x[2], a->x[3], a->x[3], B * T, T, C, 1e-5f, a->dtype,
                                          &a->dropout);
}
static tri_status layernorm_backward(const bench *a)
{
  return a->k->layernorm_backward(a->stream, a->x[0], a->f[4], a->f[5], a->x[1], a->x[2], a->x[3],
                                  a->f[3], a->f[3] + N, N, C, a->dtype);
}
static tri_status residual_forward(const bench *a)
{
  return a->k->residual_forward(a->stream, a->x[0], a->x[1], a->x[2], B * T, T, C, a->dtype,
                                &a->dropout);
}
static tri_status residual_backward(const bench *a)
{
  return a->k->residual_backward(a->stream, a->x[0], a->x[1], B * T, T, C, a->dtype, &a->dropout);
}
static tri_status cross_entropy_forward(const bench *a)
{
  return a->k->cross_entropy_forward(a->stream, a->f[4], a->logits, a->tokens, ROWS, VOCABULARY,
                                     PADDED, a->dtype);
}
static tri_status cross_entropy_backward(const bench *a)
{
  return a->k->cross_entropy_backward(a->stream, a->f[4], a->logits, a->tokens, 1.0f, ROWS,
                                      VOCABULARY, PADDED, a->dtype);
}
static tri_status cross_entropy_statistics(const bench *a)
{
  return a->k->cross_entropy_statistics(a->stream, a->f[4], a->logits, a->tokens, ROWS, VOCABULARY,
                                        PADDED, 0, a->dtype);
}
static tri_status cross_entropy_combine(const bench *a)
{
  return a->k->cross_entropy_combine(a->stream, a->f[5], a->f[5] + ROWS, a->f[4], a->tokens, 1,
                                     ROWS);
}
static tri_status cross_entropy_gradient(const bench *a)
{
  return a->k->cross_entropy_gradient(a->stream, a->logits, a->f[5] + ROWS, a->tokens, 1.0f, ROWS,
                                      VOCABULARY, PADDED, 0, a->dtype);
}
static tri_status attention_decode(const bench *a)
{
  return a->k->attention_decode(a->stream, a->x[0], a->logits, a->dqkv, a->qkv, 1023, 1, 1024, 12,
                                64, a->dtype);
}

static void report(const char *name, const char *variant, operation run, const bench *a,
                   double bytes)
{
  if (!is_wanted(name)) return;
  const double time = best_time(run, a), copy = copy_time(bytes);
  printf("%-27s %-12s %8.3f ms %7.1f GB/s   %5.2f of a copy\n", name, variant, 1e3 * time,
         1e-9 * bytes / time, copy / time);
}

// --- attention

static tri_status attention_forward(const bench *a)
{
  return a->k->attention_forward(a->stream, a->x[0], a->f[4], a->qkv, a->attention_B,
                                 a->attention_T, 12, 64, a->dtype, &a->dropout);
}
static tri_status attention_backward(const bench *a)
{
  return a->k->attention_backward(a->stream, a->dqkv, a->f[5], a->x[1], a->qkv, a->x[0], a->f[4],
                                  a->attention_B, a->attention_T, 12, 64, a->dtype, &a->dropout);
}

static double peak(tri_cpu_isa isa)
{
  int64_t (*chain)(int64_t n) = vector_chain_baseline;
#ifdef TRI_HAVE_X86
  if (isa == TRI_CPU_AVX2) chain = vector_chain_avx2;
  if (isa >= TRI_CPU_AVX512) chain = vector_chain_avx512;
#else
  (void)isa;
#endif
  double best = 0.0;
  for (int i = 0; i < RUNS; i++) {
    const double begin = seconds();
    const int64_t flops = chain(1000000);
    const double rate = (double)flops / (seconds() - begin);
    best = rate > best ? rate : best;
  }
  return best;
}

static void report_attention(bench *a, const char *variant, int64_t length, double peak_flops)
{
  a->attention_T = length;
  a->attention_B = 2048 / length;
  const double pairs = (double)a->attention_B * 12 * (double)length * ((double)length + 1) / 2;
  const operation runs[2] = {attention_forward, attention_backward};
  const char *names[2] = {"attention_forward", "attention_backward"};
  const int products[2] = {2, 5};
  for (int i = 0; i < 2; i++) {
    if (!is_wanted(names[i])) continue;
    const double rate = pairs * 64 * 2 * products[i] / best_time(runs[i], a);
    printf("%-18s T = %-4lld %-12s %8.1f GFLOP/s   %5.2f of %.1f\n", names[i], (long long)length,
           variant, 1e-9 * rate, rate / peak_flops, 1e-9 * peak_flops);
  }
}

static void report_type(bench *a, double peak_flops)
{
  const double e = (double)tri_dtype_size(a->dtype), rows = (double)N * C * e;
  const double logits = (double)ROWS * PADDED * e;
  const char *type = tri_dtype_name(a->dtype);
  char dropped[32];
  snprintf(dropped, sizeof dropped, "%s p=0.1", type);
  for (int i = 0; i < 4; i++)
    check(a->k->convert(a->stream, a->x[i], a->dtype, a->f[i % 2], TRI_DTYPE_F32, N * C * 2));
  check(a->k->convert(a->stream, a->qkv, a->dtype, a->f[2], TRI_DTYPE_F32, N * C * 6));

  report("embedding_forward", type, embedding_forward, a, 2 * rows);
  report("embedding_backward", type, embedding_backward, a, rows + (double)N * C * 8);
  report("positions_forward", type, positions_forward, a, 2 * rows);
  report("positions_backward", type, positions_backward, a, 2 * rows);
  report("layernorm_forward", type, layernorm_forward, a, 2 * rows);
  report("residual_layernorm_forward", type, residual_layernorm_forward, a, 4 * rows);
  report("layernorm_backward", type, layernorm_backward, a, 4 * rows);
  report("residual_forward", type, residual_forward, a, 3 * rows);
  report("attention_decode", type, attention_decode, a, 1024.0 * 12 * 64 * 2 * e);
  for (int64_t i = 0; i < ROWS; i++)
    check(a->k->convert(a->stream, (char *)a->logits + (size_t)(i * PADDED) * (size_t)e, a->dtype,
                        a->f[3], TRI_DTYPE_F32, PADDED));
  report("cross_entropy_forward", type, cross_entropy_forward, a, logits);
  report("cross_entropy_backward", type, cross_entropy_backward, a, 2 * logits);
  report("cross_entropy_statistics", type, cross_entropy_statistics, a, logits);
  report("cross_entropy_combine", type, cross_entropy_combine, a, 24.0 * ROWS);
  report("cross_entropy_gradient", type, cross_entropy_gradient, a, 2 * logits);
  for (int64_t length = 256; length <= 1024; length *= 2)
    report_attention(a, type, length, peak_flops);

  a->dropout.p = 0.1f;
  report("residual_forward", dropped, residual_forward, a, 3 * rows);
  report("residual_backward", dropped, residual_backward, a, 2 * rows);
  report_attention(a, dropped, 256, peak_flops);
  a->dropout.p = 0.0f;
}

int main(int argc, char **argv)
{
  tri_device *device = NULL;
  const tri_device_options options = {.isa = argc > 1 ? argv[1] : "auto",
                                      .n_threads = argc > 2 ? atoi(argv[2]) : 1};
  if (argc > 3) wanted = argv[3];
  check(tri_device_open("cpu", &options, &device));
  tri_device_facts facts;
  tri_device_get_facts(device, &facts);
  printf("%s\n", facts.description);
  if (facts.n_threads == 1) clock_id = CLOCK_THREAD_CPUTIME_ID;
  bench a = {.k = tri_device_kernels(device), .dropout = {.key = 1}};
  check(tri_stream_create(device, &a.stream));
  for (int i = 0; i < 6; i++) {
    a.f[i] = room(LARGE * sizeof(float));
    tri_random_normal((uint64_t)i, 0, LARGE, 0.0f, 1.0f, a.f[i]);
  }
  for (int i = 0; i < 4; i++)
    a.x[i] = room((size_t)N * C * 2 * sizeof(float));
  a.qkv = room((size_t)N * C * 6 * sizeof(float));
  a.dqkv = room((size_t)N * C * 6 * sizeof(float));
  a.logits = room((size_t)ROWS * PADDED * sizeof(float));
  a.tokens = room(N * sizeof *a.tokens);
  a.sums = room((LARGE / TRI_NORM_CHUNK) * sizeof *a.sums);
  for (int i = 0; i < N; i++)
    a.tokens[i] = i * 97 % 1000;

  const double n = LARGE;
  report("fill", "f32", fill, &a, 4 * n);
  report("convert", "f32 to bf16", convert, &a, 6 * n);
  report("add", "f32", add, &a, 12 * n);
  report("sum_squares", "f32", sum_squares, &a, 4 * n);
  report("adamw", "f32 + bf16", adamw, &a, 30 * n);
  const double peak_flops = peak(((const tri_cpu_device *)device)->isa) * facts.n_threads;
  for (int type = 0; type < 2; type++) {
    a.dtype = type == 0 ? TRI_DTYPE_F32 : TRI_DTYPE_BF16;
    report_type(&a, peak_flops);
  }
  tri_stream_destroy(&a.stream);
  tri_device_close(&device);
  return 0;
}
