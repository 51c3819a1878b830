// Speed of every kernel of a device, at the shapes of GPT-2 training and of a 512^3 grid:
//
//   make bench/device_speed && bench/device_speed DEVICE [full|tiny [GROUP]]
//
// GROUP: memory, attention, matmul or fft. Prints one JSON object a line. Times are the host's, of
// as many calls queued one behind the other as take some 50 ms, with one wait at the end; the
// median of RUNS such batches. So what a launch costs shows where it is longer than the kernel.
//
// Kernels bound by memory: bytes that must move (each array once in, once out) per second; a copy
// on the device by the same count stands beside them. Attention: floating-point operations of the
// products below the diagonal (2 forward, 5 backward). Linear layers: 2 N IC OC. Fourier
// transforms: bytes of both sides.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trireme/base/random.h"
#include "trireme/device/device.h"
#include "trireme/device/fft.h"

enum { RUNS = 5, NOISE = 1 << 22, ARRAYS = 8 };

typedef struct sizes {
  int64_t n;               // elements of flat arrays
  int64_t B, T, C, H;      // hidden states of GPT-2 124M
  int64_t rows, V, Vp;     // logits
  int64_t square;          // of the largest product
  int64_t fft_n, fft_rows; // a 512^3 grid
  double seconds;          // of a batch of calls
} sizes;

static const sizes full = {1 << 27, 64, 1024, 768, 12, 8192, 50257, 50304, 8192, 512, 262144, 0.05};
static const sizes tiny = {1 << 12, 1, 64, 64, 2, 16, 250, 256, 64, 16, 32, 1e-4};

typedef struct bench {
  const sizes *z;
  const tri_kernels *k;
  tri_device *device;
  tri_stream *stream;
  float *noise;    // NOISE standard normal numbers
  void *a[ARRAYS]; // arrays of the group at hand
  int32_t *tokens; // B T, below V
  tri_dropout dropout;
  int64_t B, T, H, D; // of attention
  int64_t N, IC, OC;  // of a linear layer
  tri_dtype dtype;
  tri_fft *fft;
} bench;

static void check(tri_status status)
{
  if (status == TRI_OK) return;
  fprintf(stderr, "%s: %s\n", tri_status_name(status), tri_error_message());
  exit(1);
}

static double seconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// --- arrays

static void *room(bench *b, int64_t size_bytes)
{
  void *memory = NULL;
  check(tri_device_alloc(b->device, (size_t)size_bytes, &memory));
  return memory;
}

// Normal numbers: products run faster on zeros than on data.
static void *noisy(bench *b, tri_dtype dtype, int64_t n)
{
  const int64_t e = (int64_t)tri_dtype_size(dtype);
  char *memory = room(b, n * e);
  for (int64_t i = 0; i < n; i += NOISE) {
    const int64_t part = n - i < NOISE ? n - i : NOISE;
    check(b->k->convert(b->stream, memory + i * e, dtype, b->noise, TRI_DTYPE_F32, part));
  }
  return memory;
}

static void free_arrays(bench *b)
{
  check(tri_stream_synchronize(b->stream));
  for (int i = 0; i < ARRAYS; i++)
    tri_device_free(b->device, &b->a[i]);
}

static void upload(bench *b, void *to, const void *from, int64_t size_bytes)
{
  check(tri_stream_copy_to_device(b->stream, to, from, (size_t)size_bytes));
  check(tri_stream_synchronize(b->stream));
}

static void *pinned(bench *b, int64_t size_bytes)
{
  void *memory = NULL;
  check(tri_device_alloc_host(b->device, (size_t)size_bytes, &memory));
  return memory;
}

static void make_noise(bench *b)
{
  const int64_t states = b->z->B * b->z->T, n_tokens = b->z->rows > states ? b->z->rows : states;
  const int64_t noise_bytes = NOISE * (int64_t)sizeof(float), token_bytes = n_tokens * 4;
  float *host = pinned(b, noise_bytes);
  int32_t *tokens = pinned(b, token_bytes);
  tri_random_normal(1, 0, NOISE, 0.0f, 1.0f, host);
  for (int64_t i = 0; i < n_tokens; i++)
    tokens[i] = (int32_t)(i * 7919 % b->z->V);
  b->noise = room(b, noise_bytes);
  b->tokens = room(b, token_bytes);
  upload(b, b->noise, host, noise_bytes);
  upload(b, b->tokens, tokens, token_bytes);
  tri_device_free_host(b->device, (void **)&host);
  tri_device_free_host(b->device, (void **)&tokens);
}

// --- time

typedef tri_status (*operation)(const bench *b);

static double time_batch(operation run, const bench *b, int calls)
{
  const double began = seconds();
  for (int i = 0; i < calls; i++)
    check(run(b));
  check(tri_stream_synchronize(b->stream));
  return (seconds() - began) / calls;
}

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Seconds of a call.
static double time_of(operation run, const bench *b)
{
  double times[RUNS];
  (void)time_batch(run, b, 1);
  const double once = time_batch(run, b, 2);
  const double wanted = b->z->seconds / once;
  const int calls = wanted > 1000 ? 1000 : wanted < 1 ? 1 : (int)wanted;
  for (int i = 0; i < RUNS; i++)
    times[i] = time_batch(run, b, calls);
  qsort(times, RUNS, sizeof *times, ascending);
  return times[RUNS / 2];
}

// `work`: bytes or operations of a call.
static void report(const bench *b, const char *group, const char *name, const char *shape,
                   operation run, double work)
{
  const double time = time_of(run, b);
  const bool bytes = strcmp(group, "memory") == 0 || strcmp(group, "fft") == 0;
  printf("{\"group\": \"%s\", \"name\": \"%s\", \"shape\": \"%s\", \"ms\": %.6g, \"%s\": %.6g}\n",
         group, name, shape, 1e3 * time, bytes ? "gb_per_s" : "tflop_per_s",
         work / time * (bytes ? 1e-9 : 1e-12));
  fflush(stdout);
}

// --- bound by memory: flat arrays of f32

static tri_status copy(const bench *b)
{
  return tri_stream_copy_on_device(b->stream, b->a[0], b->a[1], (size_t)b->z->n * 4);
}
static tri_status fill(const bench *b)
{
  return b->k->fill(b->stream, b->a[0], 1.0f, b->z->n);
}
static tri_status convert(const bench *b)
{
  return b->k->convert(b->stream, b->a[4], TRI_DTYPE_BF16, b->a[0], TRI_DTYPE_F32, b->z->n);
}
static tri_status add(const bench *b)
{
  return b->k->add(b->stream, b->a[0], b->a[1], b->a[2], b->z->n);
}
static tri_status sum_squares(const bench *b)
{
  return b->k->sum_squares(b->stream, b->a[5], b->a[1], b->z->n);
}
static tri_status adamw(const bench *b)
{
  return b->k->adamw(b->stream, b->a[0], b->a[4], b->a[1], b->a[2], b->a[3], b->z->n, 1e-4f, 0.9f,
                     0.95f, 1e-8f, 0.1f, 1.0f, 0.5f, 0.5f);
}

static void flat_arrays(bench *b)
{
  const double n = (double)b->z->n;
  char shape[64];
  snprintf(shape, sizeof shape, "%lld f32", (long long)b->z->n);
  for (int i = 0; i < 4; i++)
    b->a[i] = noisy(b, TRI_DTYPE_F32, b->z->n);
  b->a[4] = noisy(b, TRI_DTYPE_BF16, b->z->n);
  b->a[5] = room(b, (b->z->n / TRI_NORM_CHUNK + 1) * (int64_t)sizeof(double));
  report(b, "memory", "copy", shape, copy, 8 * n);
  report(b, "memory", "fill", shape, fill, 4 * n);
  report(b, "memory", "convert", shape, convert, 6 * n);
  report(b, "memory", "add", shape, add, 12 * n);
  report(b, "memory", "sum_squares", shape, sum_squares, 4 * n);
  // The second moments must not be negative.
  check(b->k->fill(b->stream, b->a[2], 1.0f, b->z->n));
  report(b, "memory", "adamw", shape, adamw, 30 * n);
  free_arrays(b);
}

// --- bound by memory: hidden states. a: 0, 1, 2 (N, C); 3 w, 4 b; 5 mean, rstd; 6 dw, db, f32.

static float *rstd_of(const bench *b)
{
  return (float *)b->a[5] + b->z->B * b->z->T;
}
static tri_status embedding_forward(const bench *b)
{
  const sizes *z = b->z;
  return b->k->embedding_forward(b->stream, b->a[0], b->tokens, b->a[7], b->a[1], z->B, z->T, z->C,
                                 0, z->Vp, 0, b->dtype, &b->dropout);
}
static tri_status embedding_backward(const bench *b)
{
  const sizes *z = b->z;
  float *dwte = b->a[6];
  return b->k->embedding_backward(b->stream, dwte + 2 * z->C, dwte + (2 + z->Vp) * z->C, b->a[0],
                                  b->tokens, z->B, z->T, z->C, 0, z->Vp, b->dtype, &b->dropout);
}
static tri_status layernorm_forward(const bench *b)
{
  return b->k->layernorm_forward(b->stream, b->a[0], b->a[5], rstd_of(b), b->a[1], b->a[3], b->a[4],
                                 b->z->B * b->z->T, b->z->C, 1e-5f, b->dtype);
}
static tri_status layernorm_backward(const bench *b)
{
  float *dw = b->a[6];
  return b->k->layernorm_backward(b->stream, b->a[0], dw, dw + b->z->C, b->a[1], b->a[2], b->a[3],
                                  b->a[5], rstd_of(b), b->z->B * b->z->T, b->z->C, b->dtype);
}
static tri_status residual_layernorm_forward(const bench *b)
{
  const sizes *z = b->z;
  char *out = (char *)b->a[7];
  return b->k->residual_layernorm_forward(b->stream, out, b->a[0], b->a[5], rstd_of(b), b->a[1],
                                          b->a[2], b->a[3], b->a[4], z->B * z->T, z->T, z->C, 1e-5f,
                                          b->dtype, &b->dropout);
}
static tri_status residual_forward(const bench *b)
{
  const sizes *z = b->z;
  return b->k->residual_forward(b->stream, b->a[0], b->a[1], b->a[2], z->B * z->T, z->T, z->C,
                                b->dtype, &b->dropout);
}
static tri_status residual_backward(const bench *b)
{
  const sizes *z = b->z;
  return b->k->residual_backward(b->stream, b->a[0], b->a[1], z->B * z->T, z->T, z->C, b->dtype,
                                 &b->dropout);
}

static void hidden_arrays(bench *b)
{
  const sizes *z = b->z;
  const int64_t N = z->B * z->T, largest = N > z->Vp ? N : z->Vp;
  for (int i = 0; i < 3; i++)
    b->a[i] = noisy(b, b->dtype, N * z->C);
  b->a[3] = noisy(b, b->dtype, z->C);
  b->a[4] = noisy(b, b->dtype, z->C);
  b->a[5] = noisy(b, TRI_DTYPE_F32, 2 * N);
  b->a[6] = noisy(b, TRI_DTYPE_F32, (2 + z->Vp + z->T) * z->C);
  b->a[7] = noisy(b, b->dtype, largest * z->C);
}

static void hidden_states(bench *b)
{
  const sizes *z = b->z;
  const double rows = (double)(z->B * z->T * z->C) * (double)tri_dtype_size(b->dtype);
  char shape[80];
  snprintf(shape, sizeof shape, "%lld x %lld %s", (long long)(z->B * z->T), (long long)z->C,
           tri_dtype_name(b->dtype));
  hidden_arrays(b);
  report(b, "memory", "embedding_forward", shape, embedding_forward, 2 * rows);
  report(b, "memory", "embedding_backward", shape, embedding_backward,
         rows + 8 * (double)(z->B * z->T * z->C));
  report(b, "memory", "layernorm_forward", shape, layernorm_forward, 2 * rows);
  report(b, "memory", "residual_layernorm_forward", shape, residual_layernorm_forward, 4 * rows);
  report(b, "memory", "layernorm_backward", shape, layernorm_backward, 4 * rows);
  report(b, "memory", "residual_forward", shape, residual_forward, 3 * rows);
  b->dropout.p = 0.1f;
  strcat(shape, ", p = 0.1");
  report(b, "memory", "residual_forward", shape, residual_forward, 3 * rows);
  report(b, "memory", "residual_backward", shape, residual_backward, 2 * rows);
  b->dropout.p = 0.0f;
  free_arrays(b);
}

static tri_status cross_entropy_forward(const bench *b)
{
  return b->k->cross_entropy_forward(b->stream, b->a[0], b->a[1], b->tokens, b->z->rows, b->z->V,
                                     b->z->Vp, b->dtype);
}
static tri_status cross_entropy_backward(const bench *b)
{
  return b->k->cross_entropy_backward(b->stream, b->a[0], b->a[1], b->tokens, 1.0f, b->z->rows,
                                      b->z->V, b->z->Vp, b->dtype);
}

static void logits(bench *b)
{
  const sizes *z = b->z;
  const double bytes = (double)(z->rows * z->Vp) * (double)tri_dtype_size(b->dtype);
  char shape[64];
  snprintf(shape, sizeof shape, "%lld x %lld %s", (long long)z->rows, (long long)z->Vp,
           tri_dtype_name(b->dtype));
  b->a[0] = noisy(b, TRI_DTYPE_F32, z->rows);
  b->a[1] = noisy(b, b->dtype, z->rows * z->Vp);
  report(b, "memory", "cross_entropy_forward", shape, cross_entropy_forward, bytes);
  report(b, "memory", "cross_entropy_backward", shape, cross_entropy_backward, 2 * bytes);
  free_arrays(b);
}

static void memory_group(bench *b)
{
  flat_arrays(b);
  b->dtype = TRI_DTYPE_BF16;
  hidden_states(b);
  logits(b);
}

// --- attention

static tri_status attention_forward(const bench *b)
{
  return b->k->attention_forward(b->stream, b->a[0], b->a[1], b->a[2], b->B, b->T, b->H, b->D,
                                 b->dtype, &b->dropout);
}
static tri_status attention_backward(const bench *b)
{
  return b->k->attention_backward(b->stream, b->a[3], b->a[4], b->a[5], b->a[2], b->a[0], b->a[1],
                                  b->B, b->T, b->H, b->D, b->dtype, &b->dropout);
}

static void attention(bench *b, int64_t B, int64_t T, int64_t H, tri_dtype dtype)
{
  const int64_t D = b->z->C / b->z->H, elements = B * T * H * D;
  const double pairs = (double)(B * H) * (double)T * ((double)T + 1) / 2;
  char shape[80];
  snprintf(shape, sizeof shape, "B %lld T %lld H %lld D %lld %s", (long long)B, (long long)T,
           (long long)H, (long long)D, tri_dtype_name(dtype));
  b->B = B;
  b->T = T;
  b->H = H;
  b->D = D;
  b->dtype = dtype;
  b->a[0] = noisy(b, dtype, elements);
  b->a[1] = noisy(b, TRI_DTYPE_F32, B * T * H);
  b->a[2] = noisy(b, dtype, 3 * elements);
  b->a[3] = noisy(b, dtype, 3 * elements);
  b->a[4] = noisy(b, TRI_DTYPE_F32, B * T * H);
  b->a[5] = noisy(b, dtype, elements);
  report(b, "attention", "attention_forward", shape, attention_forward, 4 * pairs * (double)D);
  report(b, "attention", "attention_backward", shape, attention_backward, 10 * pairs * (double)D);
  free_arrays(b);
}

static void attention_group(bench *b)
{
  const sizes *z = b->z;
  attention(b, (z->B + 1) / 2, z->T, z->H, TRI_DTYPE_BF16);
  attention(b, (z->B + 3) / 4, z->T, 25, TRI_DTYPE_BF16);
  attention(b, (z->B + 7) / 8, 4 * z->T, z->H, TRI_DTYPE_BF16);
  attention(b, (z->B + 7) / 8, z->T, z->H, TRI_DTYPE_F32);
}

// --- linear layers. a: 0 x, 1 w, 2 bias, 3 out, 4 GELU of out or of x, 5 dw, dbias.

static tri_status linear_forward(const bench *b)
{
  void *gelu = b->OC == 4 * b->IC ? b->a[4] : NULL;
  return b->k->linear_forward(b->stream, b->a[3], gelu, b->a[0], b->a[1], b->a[2], b->N, b->IC,
                              b->OC, b->dtype);
}
static tri_status linear_backward_input(const bench *b)
{
  const void *pre = b->IC == 4 * b->OC ? b->a[4] : NULL;
  return b->k->linear_backward_input(b->stream, b->a[0], b->a[3], b->a[1], pre, b->N, b->IC, b->OC,
                                     b->dtype);
}
static tri_status linear_backward_weight(const bench *b)
{
  float *dw = b->a[5];
  return b->k->linear_backward_weight(b->stream, dw, dw + b->IC * b->OC, b->a[3], b->a[0], b->N,
                                      b->IC, b->OC, b->dtype);
}

static void linear(bench *b, int64_t N, int64_t IC, int64_t OC)
{
  const int64_t wide = IC > OC ? IC : OC;
  const double work = 2.0 * (double)N * (double)IC * (double)OC;
  char shape[80];
  snprintf(shape, sizeof shape, "%lld x %lld to %lld %s", (long long)N, (long long)IC,
           (long long)OC, tri_dtype_name(b->dtype));
  b->N = N;
  b->IC = IC;
  b->OC = OC;
  b->a[0] = noisy(b, b->dtype, N * IC);
  b->a[1] = noisy(b, b->dtype, IC * OC);
  b->a[2] = noisy(b, b->dtype, OC);
  b->a[3] = noisy(b, b->dtype, N * OC);
  b->a[4] = noisy(b, b->dtype, N * wide);
  b->a[5] = noisy(b, TRI_DTYPE_F32, (IC + 1) * OC);
  check(b->k->linear_prepare(b->stream, N, IC, OC, b->dtype));
  report(b, "matmul", "linear_forward", shape, linear_forward, work);
  report(b, "matmul", "linear_backward_input", shape, linear_backward_input, work);
  report(b, "matmul", "linear_backward_weight", shape, linear_backward_weight, work);
  free_arrays(b);
}

static void block(bench *b, int64_t N, int64_t C)
{
  linear(b, N, C, 3 * C);
  linear(b, N, C, C);
  linear(b, N, C, 4 * C);
  linear(b, N, 4 * C, C);
}

static void matmul_group(bench *b)
{
  const sizes *z = b->z;
  b->dtype = TRI_DTYPE_BF16;
  linear(b, z->square, z->square, z->square);
  block(b, z->B * z->T / 2, z->C);
  linear(b, z->rows / 8, z->C, z->Vp);
  block(b, z->B * z->T / 4, z->C * 25 / 12 / 8 * 8);
  b->dtype = TRI_DTYPE_F32;
  linear(b, z->square / 2, z->square / 2, z->square / 2);
}

// --- Fourier transforms

static tri_status fft(const bench *b)
{
  return tri_fft_execute(b->fft, b->stream, b->a[1], b->a[0], b->a[2]);
}

static void transform(bench *b, const char *name, tri_fft_kind kind, bool columns)
{
  tri_fft_shape s = {kind, TRI_DTYPE_F32, b->z->fft_n, b->z->fft_rows, {1, 1}, {1, 1}};
  const int64_t in = tri_fft_in_elements(&s), out = tri_fft_out_elements(&s);
  const int64_t in_reals = kind == TRI_FFT_R2C ? in : 2 * in;
  const int64_t out_reals = kind == TRI_FFT_C2R ? out : 2 * out;
  s.in.distance = in;
  s.out.distance = out;
  if (columns) s.in = s.out = (tri_fft_rows){s.batch, 1};
  char shape[80];
  snprintf(shape, sizeof shape, "%lld %s of %lld f32", (long long)s.batch,
           columns ? "columns" : "rows", (long long)s.n);
  check(tri_fft_create(b->device, &s, &b->fft));
  b->a[0] = noisy(b, TRI_DTYPE_F32, s.batch * in_reals);
  b->a[1] = noisy(b, TRI_DTYPE_F32, s.batch * out_reals);
  b->a[2] = room(b, (int64_t)tri_fft_work_bytes(b->fft));
  report(b, "fft", name, shape, fft, 4 * (double)s.batch * (double)(in_reals + out_reals));
  free_arrays(b);
  tri_fft_destroy(&b->fft);
}

static void fft_group(bench *b)
{
  transform(b, "r2c", TRI_FFT_R2C, false);
  transform(b, "c2r", TRI_FFT_C2R, false);
  transform(b, "c2c", TRI_FFT_FORWARD, false);
  transform(b, "c2c", TRI_FFT_FORWARD, true);
}

int main(int argc, char **argv)
{
  static const struct {
    const char *name;
    void (*run)(bench *b);
  } groups[] = {{"memory", memory_group},
                {"attention", attention_group},
                {"matmul", matmul_group},
                {"fft", fft_group}};
  if (argc < 2) {
    fprintf(stderr, "usage: device_speed DEVICE [full|tiny [memory|attention|matmul|fft]]\n");
    return 2;
  }
  bench b = {.z = argc > 2 && strcmp(argv[2], "tiny") == 0 ? &tiny : &full, .dropout = {.key = 1}};
  check(tri_device_open(argv[1], NULL, &b.device));
  check(tri_stream_create(b.device, &b.stream));
  b.k = tri_device_kernels(b.device);
  make_noise(&b);
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    if (argc < 4 || strcmp(argv[3], groups[i].name) == 0) groups[i].run(&b);
  tri_device_free(b.device, (void **)&b.noise);
  tri_device_free(b.device, (void **)&b.tokens);
  tri_stream_destroy(&b.stream);
  tri_device_close(&b.device);
  return 0;
}
