// The linear layers of the tuned CPU table, as products of gemm.h.
#include "config.h"
#include "device/check.h"
#include "device/cpu/gemm.h"
#include "device/cpu/memory.h"
#include "trireme/base/memory.h"

struct tri_cpu_linear {
  const tri_gemm_kernels *f32, *bf16; // for operands of these types
  int n_threads;
  tri_cpu_block *blocks; // holds the scratch
  float *scratch;        // for the largest product so far
  size_t scratch_floats;
};

static tri_cpu_linear *linear_of(const struct tri_stream *stream)
{
  return ((tri_cpu_device *)stream->device)->linear;
}

static bool is_empty(int64_t N, int64_t IC, int64_t OC)
{
  return N == 0 || IC == 0 || OC == 0;
}

// --- the three products, without their arrays

// out (N, OC) = x (N, IC) w^T (IC, OC)
static tri_gemm forward_product(int64_t N, int64_t IC, int64_t OC, tri_dtype dtype)
{
  return (tri_gemm){.M = N,
                    .N = OC,
                    .K = IC,
                    .a = {.row = IC, .column = 1, .dtype = dtype},
                    .b = {.row = 1, .column = IC, .dtype = dtype},
                    .c_dtype = dtype};
}

// dx (N, IC) = dout (N, OC) w (OC, IC)
static tri_gemm input_product(int64_t N, int64_t IC, int64_t OC, tri_dtype dtype)
{
  return (tri_gemm){.M = N,
                    .N = IC,
                    .K = OC,
                    .a = {.row = OC, .column = 1, .dtype = dtype},
                    .b = {.row = IC, .column = 1, .dtype = dtype},
                    .c_dtype = dtype};
}

// dw (OC, IC) += dout^T (OC, N) x (N, IC)
static tri_gemm weight_product(int64_t N, int64_t IC, int64_t OC, tri_dtype dtype)
{
  return (tri_gemm){.M = OC,
                    .N = IC,
                    .K = N,
                    .a = {.row = 1, .column = OC, .dtype = dtype},
                    .b = {.row = IC, .column = 1, .dtype = dtype},
                    .c_dtype = TRI_DTYPE_F32,
                    .add = true};
}

// --- scratch

static tri_status grow(tri_cpu_linear *linear, size_t floats)
{
  if (floats <= linear->scratch_floats) return TRI_OK;
  void *scratch = NULL;
  if (linear->scratch != NULL) tri_cpu_memory_give_back(&linear->blocks, linear->scratch);
  linear->scratch = NULL;
  linear->scratch_floats = 0;
  TRI_CALL(tri_cpu_memory_take(&linear->blocks, floats * sizeof(float), &scratch));
  linear->scratch = scratch;
  linear->scratch_floats = floats;
  return TRI_OK;
}

static const tri_gemm_kernels *kernels_for(const tri_cpu_linear *linear, const tri_gemm *gemm)
{
  return gemm->a.dtype == TRI_DTYPE_BF16 ? linear->bf16 : linear->f32;
}

static tri_status reserve(tri_cpu_linear *linear, const tri_gemm *gemm)
{
  TRI_CALL(
      grow(linear, tri_gemm_scratch_floats(kernels_for(linear, gemm), gemm, linear->n_threads)));
  return TRI_OK;
}

static tri_status run(tri_cpu_linear *linear, const tri_gemm *gemm)
{
  TRI_CALL(reserve(linear, gemm));
  tri_gemm_run(kernels_for(linear, gemm), gemm, linear->n_threads, linear->scratch);
  return TRI_OK;
}

// --- entries

static tri_status linear_prepare(struct tri_stream *stream, int64_t N, int64_t IC, int64_t OC,
                                 tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_prepare", N, IC, OC, dtype));
  if (is_empty(N, IC, OC)) return TRI_OK;
  tri_cpu_linear *linear = linear_of(stream);
  tri_gemm products[] = {forward_product(N, IC, OC, dtype), input_product(N, IC, OC, dtype),
                         weight_product(N, IC, OC, dtype)};
  for (int i = 0; i < 3; i++)
    TRI_CALL(reserve(linear, &products[i]));
  return TRI_OK;
}

static tri_status linear_forward(struct tri_stream *stream, void *out, void *gelu, const void *x,
                                 const void *w, const void *bias, int64_t N, int64_t IC, int64_t OC,
                                 tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_forward", N, IC, OC, dtype));
  if (is_empty(N, IC, OC)) return TRI_OK;
  tri_gemm product = forward_product(N, IC, OC, dtype);
  product.a.at = x;
  product.b.at = w;
  product.c = out;
  product.bias = bias;
  product.gelu = gelu;
  TRI_CALL(run(linear_of(stream), &product));
  return TRI_OK;
}

static tri_status linear_backward_input(struct tri_stream *stream, void *dx, const void *dout,
                                        const void *w, const void *pre, int64_t N, int64_t IC,
                                        int64_t OC, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_backward_input", N, IC, OC, dtype));
  if (is_empty(N, IC, OC)) return TRI_OK;
  tri_gemm product = input_product(N, IC, OC, dtype);
  product.a.at = dout;
  product.b.at = w;
  product.c = dx;
  product.pre = pre;
  TRI_CALL(run(linear_of(stream), &product));
  return TRI_OK;
}

static tri_status linear_backward_weight(struct tri_stream *stream, float *dw, float *dbias,
                                         const void *dout, const void *x, int64_t N, int64_t IC,
                                         int64_t OC, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_backward_weight", N, IC, OC, dtype));
  if (is_empty(N, IC, OC)) return TRI_OK;
  tri_gemm product = weight_product(N, IC, OC, dtype);
  product.a.at = dout;
  product.b.at = x;
  product.c = dw;
  product.a_sums = dbias;
  TRI_CALL(run(linear_of(stream), &product));
  return TRI_OK;
}

// --- set-up

// Without bf16 units bf16 is widened when packed, which is exact, and the products are those of
// f32.
static void choose_kernels(tri_cpu_linear *linear, tri_cpu_isa isa)
{
  linear->f32 = linear->bf16 = &tri_gemm_f32_baseline;
#ifdef TRI_HAVE_X86
  if (isa >= TRI_CPU_AVX2) linear->f32 = linear->bf16 = &tri_gemm_f32_avx2;
  if (isa >= TRI_CPU_AVX512) linear->f32 = linear->bf16 = &tri_gemm_f32_avx512;
  if (isa >= TRI_CPU_AVX512_BF16) linear->bf16 = &tri_gemm_bf16_avx512_bf16;
#else
  (void)isa;
#endif
}

tri_status tri_cpu_linear_create(tri_kernels *table, tri_cpu_isa isa, int n_threads,
                                 tri_cpu_linear **out)
{
  tri_cpu_linear *linear = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &linear));
  choose_kernels(linear, isa);
  linear->n_threads = n_threads;
  table->linear_prepare = linear_prepare;
  table->linear_forward = linear_forward;
  table->linear_backward_input = linear_backward_input;
  table->linear_backward_weight = linear_backward_weight;
  *out = linear;
  return TRI_OK;
}

void tri_cpu_linear_destroy(tri_cpu_linear **linear)
{
  if (*linear == NULL) return;
  if ((*linear)->scratch != NULL) tri_cpu_memory_give_back(&(*linear)->blocks, (*linear)->scratch);
  TRI_FREE(linear);
}
