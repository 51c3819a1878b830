#include "device/cpu/onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

#include "config.h"
#include "device/check.h"
#include "device/cpu/gemm.h"
#include "device/cpu/memory.h"
#include "trireme/base/memory.h"

typedef enum product_kind { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT } product_kind;

// What a primitive is made for.
typedef struct product {
  product_kind kind;
  tri_dtype dtype, c_dtype; // of both operands, of the result
  bool has_bias;
  int64_t N, IC, OC; // each > 0
} product;

typedef struct plan plan;
struct plan {
  plan *next;
  product product;
  dnnl_primitive_t primitive;
  dnnl_memory_t a, b, bias, c, scratchpad; // without memory: each call sets their addresses
  size_t scratchpad_bytes;
};

typedef struct buffer {
  void *at;
  size_t size_bytes;
} buffer;

struct tri_cpu_onednn {
  const tri_gemm_kernels *kernels; // for GELU
  int n_threads;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  plan *plans;           // a few for each shape of layer: a list is searched fast enough
  tri_cpu_block *blocks; // holds the buffers
  buffer scratchpad;     // of the plan that needs most
  buffer sums; // f32 results of bf16 products that GELU' multiplies before they are rounded
};

static tri_cpu_onednn *onednn_of(const struct tri_stream *stream)
{
  return ((tri_cpu_device *)stream->device)->onednn;
}

static bool is_empty(int64_t N, int64_t IC, int64_t OC)
{
  return N == 0 || IC == 0 || OC == 0;
}

static tri_status check_dnnl(dnnl_status_t status, const char *call)
{
  TRI_CHECK(status != dnnl_out_of_memory, TRI_ERR_MEMORY,
            "oneDNN: %s found no memory: make the model or the micro-batch smaller", call);
  TRI_CHECK(status == dnnl_success, TRI_ERR_INTERNAL, "oneDNN: %s gives status %d", call,
            (int)status);
  return TRI_OK;
}

#define CALL_DNNL(call) TRI_CALL(check_dnnl(call, #call))
#define CALL_DNNL_GOTO(label, call) TRI_CALL_GOTO(label, check_dnnl(call, #call))

// --- plans

static tri_status describe_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column,
                                  tri_dtype dtype, dnnl_memory_desc_t *out)
{
  CALL_DNNL(dnnl_memory_desc_init_by_strides(out, 2, (dnnl_dims_t){rows, columns},
                                             dtype == TRI_DTYPE_BF16 ? dnnl_bf16 : dnnl_f32,
                                             (dnnl_dims_t){row, column}));
  return TRI_OK;
}

// C = A B of a product: a, b, c and bias. A desc of zeros is no bias.
static tri_status describe_product(const product *p, dnnl_memory_desc_t mds[4])
{
  const int64_t N = p->N, IC = p->IC, OC = p->OC;
  switch (p->kind) {
  case FORWARD: // out (N, OC) = x (N, IC) w^T (IC, OC)
    TRI_CALL(describe_matrix(N, IC, IC, 1, p->dtype, &mds[0]));
    TRI_CALL(describe_matrix(IC, OC, 1, IC, p->dtype, &mds[1]));
    TRI_CALL(describe_matrix(N, OC, OC, 1, p->c_dtype, &mds[2]));
    break;
  case BACKWARD_INPUT: // dx (N, IC) = dout (N, OC) w (OC, IC)
    TRI_CALL(describe_matrix(N, OC, OC, 1, p->dtype, &mds[0]));
    TRI_CALL(describe_matrix(OC, IC, IC, 1, p->dtype, &mds[1]));
    TRI_CALL(describe_matrix(N, IC, IC, 1, p->c_dtype, &mds[2]));
    break;
  case BACKWARD_WEIGHT: // dw (OC, IC) += dout^T (OC, N) x (N, IC)
    TRI_CALL(describe_matrix(OC, N, 1, OC, p->dtype, &mds[0]));
    TRI_CALL(describe_matrix(N, IC, IC, 1, p->dtype, &mds[1]));
    TRI_CALL(describe_matrix(OC, IC, IC, 1, p->c_dtype, &mds[2]));
    break;
  }
  if (p->has_bias) TRI_CALL(describe_matrix(1, OC, OC, 1, p->dtype, &mds[3]));
  return TRI_OK;
}

// The caller's scratchpad; f32 sums of f32 products, whatever the environment asks of oneDNN; C
// added to where the product adds.
static tri_status make_attributes(const product *p, dnnl_primitive_attr_t *out)
{
  tri_status status = TRI_OK;
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_post_ops_t after = NULL;
  CALL_DNNL(dnnl_primitive_attr_create(&attributes));
  CALL_DNNL_GOTO(undo,
                 dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
  CALL_DNNL_GOTO(undo, dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict));
  if (p->kind == BACKWARD_WEIGHT) {
    CALL_DNNL_GOTO(undo, dnnl_post_ops_create(&after));
    CALL_DNNL_GOTO(undo, dnnl_post_ops_append_sum(after, 1.0f));
    CALL_DNNL_GOTO(undo, dnnl_primitive_attr_set_post_ops(attributes, after));
    (void)dnnl_post_ops_destroy(after);
  }
  *out = attributes;
  return TRI_OK;

undo:
  (void)dnnl_post_ops_destroy(after);
  (void)dnnl_primitive_attr_destroy(attributes);
  return status;
}

static tri_status choose_primitive(const tri_cpu_onednn *onednn, const product *p,
                                   const dnnl_memory_desc_t mds[4], dnnl_primitive_desc_t *out)
{
  tri_status status = TRI_OK;
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_matmul_desc_t matmul;
  TRI_CALL(make_attributes(p, &attributes));
  CALL_DNNL_GOTO(destroy_attributes,
                 dnnl_matmul_desc_init(&matmul, &mds[0], &mds[1], &mds[3], &mds[2]));
  const dnnl_status_t found =
      dnnl_primitive_desc_create(out, &matmul, attributes, onednn->engine, NULL);
  TRI_CHECK_GOTO(destroy_attributes, found != dnnl_unimplemented, TRI_ERR_UNSUPPORTED,
                 "oneDNN has no %s products on this machine: use cpu.kernels=tuned",
                 tri_dtype_name(p->dtype));
  CALL_DNNL_GOTO(destroy_attributes, found);

destroy_attributes:
  (void)dnnl_primitive_attr_destroy(attributes);
  return status;
}

static void destroy_plan(plan *it)
{
  dnnl_memory_t memories[] = {it->a, it->b, it->bias, it->c, it->scratchpad};
  for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++)
    (void)dnnl_memory_destroy(memories[i]);
  (void)dnnl_primitive_destroy(it->primitive);
  tri_free(it);
}

static tri_status make_memories(const tri_cpu_onednn *onednn, const_dnnl_primitive_desc_t chosen,
                                const dnnl_memory_desc_t mds[4], plan *it)
{
  const dnnl_memory_desc_t *scratchpad =
      dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
  it->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
  CALL_DNNL(dnnl_memory_create(&it->a, &mds[0], onednn->engine, DNNL_MEMORY_NONE));
  CALL_DNNL(dnnl_memory_create(&it->b, &mds[1], onednn->engine, DNNL_MEMORY_NONE));
  CALL_DNNL(dnnl_memory_create(&it->c, &mds[2], onednn->engine, DNNL_MEMORY_NONE));
  CALL_DNNL(dnnl_memory_create(&it->bias, &mds[3], onednn->engine, DNNL_MEMORY_NONE));
  CALL_DNNL(dnnl_memory_create(&it->scratchpad, scratchpad, onednn->engine, DNNL_MEMORY_NONE));
  return TRI_OK;
}

static tri_status make_plan(const tri_cpu_onednn *onednn, const product *p, plan **out)
{
  tri_status status = TRI_OK;
  dnnl_memory_desc_t mds[4] = {0};
  dnnl_primitive_desc_t chosen = NULL;
  plan *it = NULL;
  TRI_CALL(describe_product(p, mds));
  TRI_CALL(choose_primitive(onednn, p, mds, &chosen));
  TRI_CALL_GOTO(destroy_chosen, TRI_NEW(TRI_MODULE_DEVICE, 1, &it));
  it->product = *p;
  TRI_CALL_GOTO(undo_plan, make_memories(onednn, chosen, mds, it));
  CALL_DNNL_GOTO(undo_plan, dnnl_primitive_create(&it->primitive, chosen));
  *out = it;
  goto destroy_chosen;

undo_plan:
  destroy_plan(it);
destroy_chosen:
  (void)dnnl_primitive_desc_destroy(chosen);
  return status;
}

static bool is_same(const product *p, const product *q)
{
  return p->kind == q->kind && p->dtype == q->dtype && p->c_dtype == q->c_dtype &&
         p->has_bias == q->has_bias && p->N == q->N && p->IC == q->IC && p->OC == q->OC;
}

static tri_status grow(tri_cpu_onednn *onednn, buffer *it, size_t size_bytes)
{
  if (size_bytes <= it->size_bytes) return TRI_OK;
  if (it->at != NULL) tri_cpu_memory_give_back(&onednn->blocks, it->at);
  *it = (buffer){0};
  TRI_CALL(tri_cpu_memory_take(&onednn->blocks, size_bytes, &it->at));
  it->size_bytes = size_bytes;
  return TRI_OK;
}

// The plan of a product, made if it is not there, with room for its scratchpad.
static tri_status plan_of(tri_cpu_onednn *onednn, const product *p, plan **out)
{
  plan *it = onednn->plans;
  while (it != NULL && !is_same(&it->product, p))
    it = it->next;
  if (it == NULL) {
    // oneDNN cuts a product for the threads of the caller, which another device may have set.
    const int n_threads = omp_get_max_threads();
    omp_set_num_threads(onednn->n_threads);
    const tri_status status = make_plan(onednn, p, &it);
    omp_set_num_threads(n_threads);
    TRI_CALL(status);
    it->next = onednn->plans;
    onednn->plans = it;
  }
  TRI_CALL(grow(onednn, &onednn->scratchpad, it->scratchpad_bytes));
  *out = it;
  return TRI_OK;
}

// oneDNN's interface does not say which of its arguments it leaves alone.
static void *unconst(const void *at)
{
  return (void *)(uintptr_t)at;
}

static tri_status run(tri_cpu_onednn *onednn, const product *p, void *c, const void *a,
                      const void *b, const void *bias)
{
  plan *it = NULL;
  TRI_CALL(plan_of(onednn, p, &it));
  CALL_DNNL(dnnl_memory_set_data_handle(it->a, unconst(a)));
  CALL_DNNL(dnnl_memory_set_data_handle(it->b, unconst(b)));
  CALL_DNNL(dnnl_memory_set_data_handle(it->c, c));
  CALL_DNNL(dnnl_memory_set_data_handle(it->scratchpad, onednn->scratchpad.at));
  if (p->has_bias) CALL_DNNL(dnnl_memory_set_data_handle(it->bias, unconst(bias)));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, it->a},
                                       {DNNL_ARG_WEIGHTS, it->b},
                                       {DNNL_ARG_DST, it->c},
                                       {DNNL_ARG_SCRATCHPAD, it->scratchpad},
                                       {DNNL_ARG_BIAS, it->bias}};
  const int n_threads = omp_get_max_threads();
  omp_set_num_threads(onednn->n_threads);
  const dnnl_status_t status =
      dnnl_primitive_execute(it->primitive, onednn->stream, p->has_bias ? 5 : 4, arguments);
  omp_set_num_threads(n_threads);
  CALL_DNNL(status);
  CALL_DNNL(dnnl_stream_wait(onednn->stream));
  return TRI_OK;
}

// --- what a layer does besides its product

enum { PIECE = 1024, SUM_COLUMNS = 64 };

static int64_t pieces_of(int64_t n, int64_t size)
{
  return (n + size - 1) / size;
}

// n elements: out = sums * GELU'(pre) if pre is given, gelu = GELU(out) if gelu is. sums NULL: out
// has been stored.
static void finish(const tri_cpu_onednn *onednn, void *out, void *gelu, const float *sums,
                   const void *pre, int64_t n, tri_dtype dtype)
{
  const size_t size = tri_dtype_size(dtype);
#pragma omp parallel for num_threads(onednn->n_threads)
  for (int64_t piece = 0; piece < pieces_of(n, PIECE); piece++) {
    const int64_t i = piece * PIECE, length = n - i < PIECE ? n - i : PIECE;
    const size_t offset = (size_t)i * size;
    float widened[PIECE];
    const float *from = sums == NULL ? (const float *)out + i : sums + i;
    if (sums == NULL && dtype == TRI_DTYPE_BF16) {
      for (int64_t j = 0; j < length; j++)
        widened[j] = tri_bf16_to_float(((const tri_bf16 *)out)[i + j]);
      from = widened;
    }
    onednn->kernels->finish((char *)out + offset, gelu == NULL ? NULL : (char *)gelu + offset, from,
                            pre == NULL ? NULL : (const char *)pre + offset, length, dtype);
  }
}

// sums[j] += row[j], n numbers.
static void add_row(double *sums, const void *row, int64_t first, int64_t n, tri_dtype dtype)
{
  if (dtype == TRI_DTYPE_BF16) {
    for (int64_t j = 0; j < n; j++)
      sums[j] += (double)tri_bf16_to_float(((const tri_bf16 *)row)[first + j]);
  } else {
    for (int64_t j = 0; j < n; j++)
      sums[j] += (double)((const float *)row)[first + j];
  }
}

// Adds the column sums of dout (N, OC) to dbias: in double, in the order of the rows.
static void add_column_sums(const tri_cpu_onednn *onednn, float *dbias, const void *dout, int64_t N,
                            int64_t OC, tri_dtype dtype)
{
#pragma omp parallel for num_threads(onednn->n_threads)
  for (int64_t piece = 0; piece < pieces_of(OC, SUM_COLUMNS); piece++) {
    const int64_t o = piece * SUM_COLUMNS, length = OC - o < SUM_COLUMNS ? OC - o : SUM_COLUMNS;
    double sums[SUM_COLUMNS] = {0};
    for (int64_t n = 0; n < N; n++)
      add_row(sums, dout, n * OC + o, length, dtype);
    for (int64_t j = 0; j < length; j++)
      dbias[o + j] = (float)((double)dbias[o + j] + sums[j]);
  }
}

// --- entries

static tri_status reserve_sums(tri_cpu_onednn *onednn, int64_t N, int64_t IC)
{
  TRI_CALL(grow(onednn, &onednn->sums, (size_t)(N * IC) * sizeof(float)));
  return TRI_OK;
}

static tri_status linear_prepare(struct tri_stream *stream, int64_t N, int64_t IC, int64_t OC,
                                 tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_prepare", N, IC, OC, dtype));
  if (is_empty(N, IC, OC)) return TRI_OK;
  tri_cpu_onednn *onednn = onednn_of(stream);
  const product products[] = {{FORWARD, dtype, dtype, false, N, IC, OC},
                              {FORWARD, dtype, dtype, true, N, IC, OC},
                              {BACKWARD_INPUT, dtype, dtype, false, N, IC, OC},
                              {BACKWARD_INPUT, dtype, TRI_DTYPE_F32, false, N, IC, OC},
                              {BACKWARD_WEIGHT, dtype, TRI_DTYPE_F32, false, N, IC, OC}};
  for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
    plan *it = NULL;
    TRI_CALL(plan_of(onednn, &products[i], &it));
  }
  if (dtype == TRI_DTYPE_BF16) TRI_CALL(reserve_sums(onednn, N, IC));
  return TRI_OK;
}

static tri_status linear_forward(struct tri_stream *stream, void *out, void *gelu, const void *x,
                                 const void *w, const void *bias, int64_t N, int64_t IC, int64_t OC,
                                 tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_forward", N, IC, OC, dtype));
  if (is_empty(N, IC, OC)) return TRI_OK;
  tri_cpu_onednn *onednn = onednn_of(stream);
  const product p = {FORWARD, dtype, dtype, bias != NULL, N, IC, OC};
  TRI_CALL(run(onednn, &p, out, x, w, bias));
  if (gelu != NULL) finish(onednn, out, gelu, NULL, NULL, N * OC, dtype);
  return TRI_OK;
}

static tri_status linear_backward_input(struct tri_stream *stream, void *dx, const void *dout,
                                        const void *w, const void *pre, int64_t N, int64_t IC,
                                        int64_t OC, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_backward_input", N, IC, OC, dtype));
  if (is_empty(N, IC, OC)) return TRI_OK;
  tri_cpu_onednn *onednn = onednn_of(stream);
  const bool is_bf16_gelu = pre != NULL && dtype == TRI_DTYPE_BF16;
  if (is_bf16_gelu) TRI_CALL(reserve_sums(onednn, N, IC));
  float *sums = is_bf16_gelu ? onednn->sums.at : NULL;
  const product p = {BACKWARD_INPUT, dtype, is_bf16_gelu ? TRI_DTYPE_F32 : dtype, false, N, IC, OC};
  TRI_CALL(run(onednn, &p, is_bf16_gelu ? sums : dx, dout, w, NULL));
  if (pre != NULL) finish(onednn, dx, NULL, sums, pre, N * IC, dtype);
  return TRI_OK;
}

static tri_status linear_backward_weight(struct tri_stream *stream, float *dw, float *dbias,
                                         const void *dout, const void *x, int64_t N, int64_t IC,
                                         int64_t OC, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_backward_weight", N, IC, OC, dtype));
  if (is_empty(N, IC, OC)) return TRI_OK;
  tri_cpu_onednn *onednn = onednn_of(stream);
  const product p = {BACKWARD_WEIGHT, dtype, TRI_DTYPE_F32, false, N, IC, OC};
  TRI_CALL(run(onednn, &p, dw, dout, x, NULL));
  if (dbias != NULL) add_column_sums(onednn, dbias, dout, N, OC, dtype);
  return TRI_OK;
}

// --- set-up

// The library takes its limit once, before its first primitive; later it answers with an error,
// which is none if the limit is the one that is wanted.
static tri_status limit_isa(tri_cpu_isa isa)
{
#ifdef TRI_HAVE_X86
  static const dnnl_cpu_isa_t limits[] = {[TRI_CPU_BASELINE] = dnnl_cpu_isa_sse41,
                                          [TRI_CPU_AVX2] = dnnl_cpu_isa_avx2,
                                          [TRI_CPU_AVX512] = dnnl_cpu_isa_avx512_core,
                                          [TRI_CPU_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16};
  (void)dnnl_set_max_cpu_isa(limits[isa]);
  const dnnl_cpu_isa_t effective = dnnl_get_effective_cpu_isa();
  TRI_CHECK(effective == limits[isa], TRI_ERR_UNSUPPORTED,
            "oneDNN runs with its instruction set 0x%x, not with 0x%x (%s), and takes one per "
            "process: open all devices with one cpu.isa, or use cpu.kernels=tuned",
            (unsigned)effective, (unsigned)limits[isa], tri_cpu_isa_name(isa));
#else
  (void)isa;
#endif
  return TRI_OK;
}

static const tri_gemm_kernels *kernels_for(tri_cpu_isa isa)
{
#ifdef TRI_HAVE_X86
  if (isa >= TRI_CPU_AVX512) return &tri_gemm_f32_avx512;
  if (isa >= TRI_CPU_AVX2) return &tri_gemm_f32_avx2;
#else
  (void)isa;
#endif
  return &tri_gemm_f32_baseline;
}

tri_status tri_cpu_onednn_create(tri_kernels *table, tri_cpu_isa isa, int n_threads,
                                 tri_cpu_onednn **out)
{
  tri_status status = TRI_OK;
  tri_cpu_onednn *onednn = NULL;
  TRI_CALL(limit_isa(isa));
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &onednn));
  onednn->kernels = kernels_for(isa);
  onednn->n_threads = n_threads;
  CALL_DNNL_GOTO(undo, dnnl_engine_create(&onednn->engine, dnnl_cpu, 0));
  CALL_DNNL_GOTO(undo,
                 dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags));
  table->linear_prepare = linear_prepare;
  table->linear_forward = linear_forward;
  table->linear_backward_input = linear_backward_input;
  table->linear_backward_weight = linear_backward_weight;
  *out = onednn;
  return TRI_OK;

undo:
  tri_cpu_onednn_destroy(&onednn);
  return status;
}

void tri_cpu_onednn_destroy(tri_cpu_onednn **onednn)
{
  tri_cpu_onednn *it = *onednn;
  if (it == NULL) return;
  while (it->plans != NULL) {
    plan *first = it->plans;
    it->plans = first->next;
    destroy_plan(first);
  }
  if (it->scratchpad.at != NULL) tri_cpu_memory_give_back(&it->blocks, it->scratchpad.at);
  if (it->sums.at != NULL) tri_cpu_memory_give_back(&it->blocks, it->sums.at);
  (void)dnnl_stream_destroy(it->stream);
  (void)dnnl_engine_destroy(it->engine);
  TRI_FREE(onednn);
}

void tri_cpu_onednn_describe(char *out, size_t size)
{
  const dnnl_version_t *version = dnnl_version();
  snprintf(out, size, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}
