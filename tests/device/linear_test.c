// The linear layers of the tuned table: against the reference, the same bits for any number of
// threads, no allocation once prepared, GELU within its bound.
#include <math.h>
#include <omp.h>

#include "device/kernel_cases.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { N_THREAD_COUNTS = 3 };
static const int THREAD_COUNTS[N_THREAD_COUNTS] = {1, 2, 3};
static const char *const ISAS[] = {"baseline", "avx2", "avx512", "avx512_bf16"};

typedef struct opened {
  tri_device *device;
  tri_stream *stream;
} opened;

static void close_device(opened *it)
{
  tri_stream_destroy(&it->stream);
  tri_device_close(&it->device);
}

// False when this machine has not the instruction set.
static bool open_device(const tri_device_options *options, opened *out)
{
  *out = (opened){0};
  const tri_status status = tri_device_open("cpu", options, &out->device);
  if (status == TRI_ERR_UNSUPPORTED) return false;
  EXPECT(status == TRI_OK);
  EXPECT_OK(tri_stream_create(out->device, &out->stream));
  return true;
}

static kernel_side side_of(const opened *it, const char *name)
{
  return (kernel_side){.name = name,
                       .kernels = tri_device_kernels(it->device),
                       .device = it->device,
                       .stream = it->stream};
}

TEST(agrees_with_the_reference)
{
  opened reference, tuned;
  if (!open_device(&(tri_device_options){.kernels = "reference"}, &reference)) return;
  for (size_t i = 0; i < sizeof ISAS / sizeof ISAS[0]; i++) {
    if (!open_device(&(tri_device_options){.isa = ISAS[i], .n_threads = 2}, &tuned)) continue;
    const kernel_comparison comparison = {
        .sides = {side_of(&reference, "reference"), side_of(&tuned, ISAS[i])}};
    EXPECT_OK(kernel_cases_linear(&comparison));
    close_device(&tuned);
  }
  close_device(&reference);
}

// One layer's arrays and what its three calls leave in them.
typedef struct layer {
  int64_t N, IC, OC;
  tri_dtype dtype;
  opened device;
  void *x, *w, *bias, *out, *gelu, *dx;
  float *dw, *dbias;
} layer;

static void *take(opened *it, int64_t n, size_t size, uint64_t key, tri_dtype dtype)
{
  void *memory = NULL;
  EXPECT_OK(tri_device_alloc(it->device, (size_t)n * size, &memory));
  float *values = malloc(((size_t)n + 1) * sizeof *values);
  tri_random_normal(key, 0, n, 0.0f, 0.5f, values);
  if (dtype == TRI_DTYPE_BF16)
    for (int64_t i = 0; i < n; i++)
      ((tri_bf16 *)values)[i] = tri_bf16_from_float(values[i]);
  EXPECT_OK(tri_stream_copy_to_device(it->stream, memory, values, (size_t)n * size));
  free(values);
  return memory;
}

static void layer_begin(layer *l, int n_threads)
{
  if (!open_device(&(tri_device_options){.n_threads = n_threads}, &l->device)) return;
  const size_t size = tri_dtype_size(l->dtype);
  l->x = take(&l->device, l->N * l->IC, size, 1, l->dtype);
  l->w = take(&l->device, l->OC * l->IC, size, 2, l->dtype);
  l->bias = take(&l->device, l->OC, size, 3, l->dtype);
  l->out = take(&l->device, l->N * l->OC, size, 4, l->dtype);
  l->gelu = take(&l->device, l->N * l->OC, size, 5, l->dtype);
  l->dx = take(&l->device, l->N * l->IC, size, 6, l->dtype);
  l->dw = take(&l->device, l->OC * l->IC, sizeof(float), 7, TRI_DTYPE_F32);
  l->dbias = take(&l->device, l->OC, sizeof(float), 8, TRI_DTYPE_F32);
}

static void layer_end(layer *l)
{
  void *arrays[] = {l->x, l->w, l->bias, l->out, l->gelu, l->dx, l->dw, l->dbias};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
    tri_device_free(l->device.device, &arrays[i]);
  close_device(&l->device);
}

static void layer_run(layer *l)
{
  const tri_kernels *k = tri_device_kernels(l->device.device);
  tri_stream *s = l->device.stream;
  EXPECT_OK(
      k->linear_forward(s, l->out, l->gelu, l->x, l->w, l->bias, l->N, l->IC, l->OC, l->dtype));
  EXPECT_OK(k->linear_backward_input(s, l->dx, l->out, l->w, l->x, l->N, l->IC, l->OC, l->dtype));
  EXPECT_OK(
      k->linear_backward_weight(s, l->dw, l->dbias, l->out, l->x, l->N, l->IC, l->OC, l->dtype));
}

static bool same(const void *a, const void *b, int64_t n, size_t size)
{
  return memcmp(a, b, (size_t)n * size) == 0;
}

// The CPU's device memory is host memory, and this test is of the CPU.
static bool layers_agree(const layer *a, const layer *b)
{
  const size_t size = tri_dtype_size(a->dtype);
  return same(a->out, b->out, a->N * a->OC, size) && same(a->gelu, b->gelu, a->N * a->OC, size) &&
         same(a->dx, b->dx, a->N * a->IC, size) && same(a->dw, b->dw, a->OC * a->IC, 4) &&
         same(a->dbias, b->dbias, a->OC, 4);
}

// Sizes beside those of panels, tasks and blocks of the summed dimension.
static const int64_t SHAPES[][3] = {{1, 31, 33},    {33, 1, 257},   {31, 257, 1},  {257, 33, 31},
                                    {64, 300, 520}, {520, 64, 300}, {300, 520, 64}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };

TEST(threads_do_not_move_a_bit)
{
  for (int s = 0; s < N_SHAPES; s++)
    for (int t = 0; t < 2; t++) {
      layer layers[N_THREAD_COUNTS] = {0};
      for (int i = 0; i < N_THREAD_COUNTS; i++) {
        layers[i] = (layer){.N = SHAPES[s][0],
                            .IC = SHAPES[s][1],
                            .OC = SHAPES[s][2],
                            .dtype = t == 0 ? TRI_DTYPE_F32 : TRI_DTYPE_BF16};
        layer_begin(&layers[i], THREAD_COUNTS[i]);
        layer_run(&layers[i]);
        EXPECT(layers_agree(&layers[0], &layers[i]));
      }
      for (int i = 0; i < N_THREAD_COUNTS; i++)
        layer_end(&layers[i]);
    }
}

TEST(no_allocation_once_prepared)
{
  for (int t = 0; t < 2; t++) {
    layer l = {.N = 257, .IC = 300, .OC = 520, .dtype = t == 0 ? TRI_DTYPE_F32 : TRI_DTYPE_BF16};
    layer_begin(&l, 2);
    const tri_kernels *k = tri_device_kernels(l.device.device);
    EXPECT_OK(k->linear_prepare(l.device.stream, l.N, l.IC, l.OC, l.dtype));
    const int64_t before = tri_memory_allocations();
    layer_run(&l);
    l.N = 33; // a last, smaller micro-batch
    layer_run(&l);
    EXPECT(tri_memory_allocations() == before);
    layer_end(&l);
  }
}

// --- GELU, through a layer whose weight is 1

static double gelu_exact(double y)
{
  return 0.5 * y * (1.0 + tanh(0.7978845608028654 * (y + 0.044715 * y * y * y)));
}

static double gelu_slope_exact(double y)
{
  const double t = tanh(0.7978845608028654 * (y + 0.044715 * y * y * y));
  return 0.5 * (1.0 + t) +
         0.5 * y * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * y * y);
}

// 4 ulp of values of size max(1, |y|).
TEST(gelu_is_within_its_bound)
{
  enum { N = 20001 };
  layer l = {.N = N, .IC = 1, .OC = 1, .dtype = TRI_DTYPE_F32};
  layer_begin(&l, 1);
  float *x = l.x, *gelu = l.gelu, *out = l.out, *dx = l.dx;
  for (int i = 0; i < N; i++)
    x[i] = (float)(i - N / 2) * 1.2e-3f;
  ((float *)l.w)[0] = 1.0f;
  ((float *)l.bias)[0] = 0.0f;
  const tri_kernels *k = tri_device_kernels(l.device.device);
  EXPECT_OK(k->linear_forward(l.device.stream, out, gelu, x, l.w, l.bias, N, 1, 1, l.dtype));
  for (int i = 0; i < N; i++)
    out[i] = 1.0f;
  EXPECT_OK(k->linear_backward_input(l.device.stream, dx, out, l.w, x, N, 1, 1, l.dtype));
  for (int i = 0; i < N; i++) {
    const double y = (double)x[i], bound = 4 * 0x1p-23 * fmax(1.0, fabs(y));
    EXPECT_NEAR(gelu[i], gelu_exact(y), bound);
    EXPECT_NEAR(dx[i], gelu_slope_exact(y), bound);
  }
  layer_end(&l);
}

TEST(everything_is_released)
{
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  TEST_RUN(agrees_with_the_reference);
  TEST_RUN(threads_do_not_move_a_bit);
  TEST_RUN(no_allocation_once_prepared);
  TEST_RUN(gelu_is_within_its_bound);
  TEST_RUN(everything_is_released);
  return test_end();
}
