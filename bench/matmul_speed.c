// Speed of the linear layers' matrix products on this machine: see bench/matmul.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "onednn_product.h"
#include "peak.h"
#include "trireme/device/device.h"

typedef struct shape {
  int64_t IC, OC;
  int count; // of such layers in the model
} shape;

typedef struct model {
  const char *name;
  int64_t N; // rows of a micro-batch
  shape shapes[5];
} model;

static const model MODELS[] = {
    {"124M",
     1024,
     {{768, 2304, 12}, {768, 768, 12}, {768, 3072, 12}, {3072, 768, 12}, {768, 50304, 1}}},
    {"6x384", 2048, {{384, 1152, 6}, {384, 384, 6}, {384, 1536, 6}, {1536, 384, 6}, {384, 256, 1}}},
};
enum { N_SHAPES = 5, N_PRODUCTS = 3 };
static const char *const PRODUCTS[N_PRODUCTS] = {"forward", "backward_input", "backward_weight"};

typedef struct options {
  const model *model;
  tri_dtype dtype;
  tri_device_options device;
} options;

typedef struct bench {
  options options;
  tri_device *device;
  tri_stream *stream;
  const tri_kernels *kernels;
  double peak; // FLOP/s of one thread, the best seen
  double seconds, flops;
} bench;

typedef struct layer {
  int64_t N, IC, OC;
  void *x, *w, *bias, *out, *wide; // wide: the GELU of out, or what x was the GELU of
  float *dw, *dbias;
  onednn_product *peers[N_PRODUCTS];
} layer;

// Processor time when there is one thread, else wall time.
static double now(const bench *b)
{
  struct timespec time;
  clock_gettime(b->options.device.n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

_Noreturn static void stop(const char *why)
{
  fprintf(stderr, "matmul_speed: %s\n", why);
  exit(1);
}

static void check(tri_status status)
{
  if (status != TRI_OK) stop(tri_error_message());
}

// Small values of either sign: neither zeros nor subnormal sums, which some machines treat apart.
static void *take(bench *b, int64_t n, tri_dtype dtype)
{
  void *memory = NULL;
  const size_t size_bytes = (size_t)n * tri_dtype_size(dtype);
  char *values = malloc(size_bytes);
  if (values == NULL) stop("no memory");
  for (int64_t i = 0; i < n; i++) {
    const float value = (float)(i * 7919 % 1009) / 1009.0f - 0.5f;
    if (dtype == TRI_DTYPE_BF16) {
      ((tri_bf16 *)(void *)values)[i] = tri_bf16_from_float(value);
    } else {
      ((float *)(void *)values)[i] = value;
    }
  }
  check(tri_device_alloc(b->device, size_bytes, &memory));
  check(tri_stream_copy_to_device(b->stream, memory, values, size_bytes));
  free(values);
  return memory;
}

static void layer_begin(bench *b, const shape *s, layer *l)
{
  const int64_t N = b->options.model->N, IC = s->IC, OC = s->OC;
  const tri_dtype dtype = b->options.dtype;
  *l = (layer){.N = N, .IC = IC, .OC = OC};
  l->x = take(b, N * IC, dtype);
  l->w = take(b, OC * IC, dtype);
  l->bias = take(b, OC, dtype);
  l->out = take(b, N * OC, dtype);
  l->wide = take(b, N * (OC > IC ? OC : IC), dtype);
  l->dw = take(b, OC * IC, TRI_DTYPE_F32);
  l->dbias = take(b, OC, TRI_DTYPE_F32);
  if (dtype != TRI_DTYPE_F32) return;
  l->peers[0] = onednn_product_create(N, OC, IC, IC, 1, 1, IC, false);
  l->peers[1] = onednn_product_create(N, IC, OC, OC, 1, IC, 1, false);
  l->peers[2] = onednn_product_create(OC, IC, N, 1, OC, IC, 1, true);
}

static void layer_end(bench *b, layer *l)
{
  void *memory[] = {l->x, l->w, l->bias, l->out, l->wide, l->dw, l->dbias};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
    tri_device_free(b->device, &memory[i]);
  for (int i = 0; i < N_PRODUCTS; i++)
    onednn_product_destroy(l->peers[i]);
}

// As the model calls them: GELU after the layer that widens four times, its derivative before.
static tri_status run(const bench *b, const layer *l, int product)
{
  const tri_kernels *k = b->kernels;
  void *gelu = l->OC == 4 * l->IC ? l->wide : NULL, *pre = l->IC == 4 * l->OC ? l->wide : NULL;
  const tri_dtype dtype = b->options.dtype;
  switch (product) {
  case 0:
    return k->linear_forward(b->stream, l->out, gelu, l->x, l->w, l->bias, l->N, l->IC, l->OC,
                             dtype);
  case 1:
    return k->linear_backward_input(b->stream, l->x, l->out, l->w, pre, l->N, l->IC, l->OC, dtype);
  default:
    return k->linear_backward_weight(b->stream, l->dw, l->dbias, l->out, l->x, l->N, l->IC, l->OC,
                                     dtype);
  }
}

static bool run_peer(const layer *l, int product)
{
  switch (product) {
  case 0: return onednn_product_run(l->peers[0], l->out, l->x, l->w);
  case 1: return onednn_product_run(l->peers[1], l->x, l->out, l->w);
  default: return onednn_product_run(l->peers[2], l->dw, l->out, l->x);
  }
}

// Best of repeats that take turns with oneDNN's; 0.3 s, and three at least.
static void measure(const bench *b, const layer *l, int product, double *ours, double *theirs)
{
  check(run(b, l, product));
  *ours = *theirs = 1e9;
  double used = 0.0;
  for (int repeat = 0; repeat < 3 || (used < 0.3 && repeat < 50); repeat++) {
    double start = now(b);
    check(run(b, l, product));
    double seconds = now(b) - start;
    used += seconds;
    *ours = seconds < *ours ? seconds : *ours;
    if (l->peers[product] == NULL) continue;
    start = now(b);
    if (!run_peer(l, product)) stop("oneDNN failed");
    seconds = now(b) - start;
    *theirs = seconds < *theirs ? seconds : *theirs;
  }
}

// Again before each shape: the best of all, since a neighbour may slow down one measurement.
static const char *measure_peak(bench *b)
{
  const char *what;
  const double peak = peak_flops(b->options.dtype == TRI_DTYPE_BF16, &what);
  b->peak = peak > b->peak ? peak : b->peak;
  return what;
}

static void measure_shape(bench *b, const shape *s)
{
  measure_peak(b);
  layer l;
  layer_begin(b, s, &l);
  const double flops = 2.0 * (double)l.N * (double)l.IC * (double)l.OC;
  printf("%5lld %5lld %6lld", (long long)l.N, (long long)l.IC, (long long)l.OC);
  for (int product = 0; product < N_PRODUCTS; product++) {
    double ours, theirs;
    measure(b, &l, product, &ours, &theirs);
    printf("  %7.1f %3.0f %%", flops / ours * 1e-9,
           100.0 * flops / ours / (b->peak * b->options.device.n_threads));
    if (l.peers[product] != NULL) printf(" %5.2f", theirs / ours);
    b->seconds += ours * s->count;
    b->flops += flops * s->count;
  }
  printf("\n");
  fflush(stdout);
  layer_end(b, &l);
}

static options parse(int argc, char **argv)
{
  options o = {.model = &MODELS[0], .dtype = TRI_DTYPE_F32, .device = {.n_threads = 1}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (strcmp(name, "--model") == 0) {
      o.model = strcmp(value, MODELS[1].name) == 0 ? &MODELS[1] : &MODELS[0];
      if (strcmp(value, o.model->name) != 0) stop("--model is 124M or 6x384");
    } else if (strcmp(name, "--dtype") == 0) {
      o.dtype = strcmp(value, "bf16") == 0 ? TRI_DTYPE_BF16 : TRI_DTYPE_F32;
    } else if (strcmp(name, "--threads") == 0) {
      o.device.n_threads = atoi(value) > 0 ? atoi(value) : 1;
    } else if (strcmp(name, "--isa") == 0) {
      o.device.isa = value;
    } else {
      stop("options: --model, --dtype, --threads, --isa, each with a value");
    }
  }
  if (argc % 2 == 0) stop("an option has no value");
  return o;
}

int main(int argc, char **argv)
{
  bench b = {.options = parse(argc, argv)};
  check(tri_device_open("cpu", &b.options.device, &b.device));
  check(tri_stream_create(b.device, &b.stream));
  b.kernels = tri_device_kernels(b.device);
  tri_device_facts facts;
  tri_device_get_facts(b.device, &facts);
  const char *what = measure_peak(&b);
  printf("%s\npeak %.1f GFLOP/s a thread (%s)\n", facts.description, b.peak * 1e-9, what);
  printf("GFLOP/s, share of the peak%s of\n    N    IC     OC",
         b.options.dtype == TRI_DTYPE_F32 ? ", speed relative to oneDNN" : "");
  for (int product = 0; product < N_PRODUCTS; product++)
    printf("  %-*s", b.options.dtype == TRI_DTYPE_F32 ? 19 : 13, PRODUCTS[product]);
  printf("\n");
  for (int i = 0; i < N_SHAPES; i++)
    measure_shape(&b, &b.options.model->shapes[i]);
  const double floor = b.flops / (b.peak * b.options.device.n_threads);
  printf("all linear layers of a micro-batch of %s: %.3f s; at the peak (%.1f GFLOP/s a thread) "
         "%.3f s, %.0f %%\n",
         b.options.model->name, b.seconds, b.peak * 1e-9, floor, 100.0 * floor / b.seconds);
  tri_stream_destroy(&b.stream);
  tri_device_close(&b.device);
  return 0;
}
