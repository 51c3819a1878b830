// The linear layers on a CUDA device: twin of ../cpu/linear.c, its products by cuBLASLt.
//
// cuBLASLt thinks in columns: a packed row-major (R, C) array is its (C, R) matrix of leading
// dimension C. So out (N, OC) = x w^T is there (OC, N) = op(w) x, with m = OC, n = N, k = IC.
//
// What is fused: bias, GELU and its slope into the product, for bf16 where the library takes it
// (leading dimensions that are multiples of 8); else the kernels of kernels/linear.cu follow it.
// f32 products are f32 throughout, never TF32. A sum that the library would split over blocks is
// put together from its parts in a fixed order (no in-place reduction), so repeats have the same
// bits. Shapes and addresses that the library does not take go to the plain product of
// kernels/product.cu.
#include <cublasLt.h>
#include <string.h>

#include "device/check.h"
#include "device/cuda/cuda.h"
#include "trireme/base/memory.h"
#include "trireme/device/cuda.h"

// Arrays begin at multiples of this: what is promised to the library.
static const uintptr_t POINTER_ALIGNMENT = 16;
// Of leading dimensions, for the epilogues that read or write another matrix.
enum { EPILOGUE_ALIGNMENT = 8 };

typedef enum product_kind { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT } product_kind;

// What tells one plan from another. Compared as bytes.
typedef struct shape {
  int64_t N, IC, OC;
  int32_t kind, dtype;
  int32_t epilogue; // cublasLtEpilogue_t
  int32_t unused;
} shape;

typedef struct plan {
  struct plan *next;
  shape shape;
  bool taken; // by the library; else the plain product does it
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulAlgo_t algorithm;
} plan;

struct tri_cuda_products {
  cublasLtHandle_t library;
  plan *plans; // owned, newest first
};

static tri_status error_of(cublasStatus_t error, const char *call, const char *file, int line)
{
  const int name = (int)strcspn(call, "(");
  const tri_status code = error == CUBLAS_STATUS_ALLOC_FAILED ? TRI_ERR_MEMORY : TRI_ERR_DEVICE;
  return tri_error_set(code, "cublasLt", file, line, "cuBLASLt: %.*s: %s, %s", name, call,
                       cublasLtGetStatusName(error), cublasLtGetStatusString(error));
}

#define TRI_CALL_CUBLAS(call) \
  do { \
    const cublasStatus_t error_ = (call); \
    if (error_ != CUBLAS_STATUS_SUCCESS) return error_of(error_, #call, __FILE__, __LINE__); \
  } while (0)

static tri_cuda_products *products_of(const tri_stream *stream)
{
  return tri_cuda_device_of(stream->device)->products;
}

// --- plans

static void plan_free(plan *p)
{
  // Destroying a description fails only for one that was never made.
  if (p->description != NULL) (void)cublasLtMatmulDescDestroy(p->description);
  if (p->a != NULL) (void)cublasLtMatrixLayoutDestroy(p->a);
  if (p->b != NULL) (void)cublasLtMatrixLayoutDestroy(p->b);
  if (p->d != NULL) (void)cublasLtMatrixLayoutDestroy(p->d);
  tri_free(p);
}

static tri_status set(plan *p, cublasLtMatmulDescAttributes_t attribute, const void *value,
                      size_t size)
{
  TRI_CALL_CUBLAS(cublasLtMatmulDescSetAttribute(p->description, attribute, value, size));
  return TRI_OK;
}

// The three matrices in the library's terms, and which of the operands are transposed.
static tri_status describe(plan *p)
{
  const shape *s = &p->shape;
  const cudaDataType in = s->dtype == TRI_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType out = s->kind == BACKWARD_WEIGHT ? CUDA_R_32F : in;
  const uint64_t N = (uint64_t)s->N, IC = (uint64_t)s->IC, OC = (uint64_t)s->OC;
  // FORWARD (OC, N) = w^T x; BACKWARD_INPUT (IC, N) = w dout; BACKWARD_WEIGHT (IC, OC) = x dout^T
  const int32_t transpose_a = s->kind == FORWARD ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int32_t transpose_b = s->kind == BACKWARD_WEIGHT ? CUBLAS_OP_T : CUBLAS_OP_N;
  const uint64_t a_columns = s->kind == BACKWARD_WEIGHT ? N : OC;
  const uint64_t b_rows = s->kind == FORWARD ? IC : OC;
  const uint64_t d_rows = s->kind == FORWARD ? OC : IC;
  const uint64_t d_columns = s->kind == BACKWARD_WEIGHT ? OC : N;
  TRI_CALL_CUBLAS(cublasLtMatmulDescCreate(&p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  TRI_CALL(set(p, CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a, sizeof transpose_a));
  TRI_CALL(set(p, CUBLASLT_MATMUL_DESC_TRANSB, &transpose_b, sizeof transpose_b));
  TRI_CALL(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &s->epilogue, sizeof s->epilogue));
  TRI_CALL_CUBLAS(cublasLtMatrixLayoutCreate(&p->a, in, IC, a_columns, s->IC));
  TRI_CALL_CUBLAS(cublasLtMatrixLayoutCreate(&p->b, in, b_rows, N, (int64_t)b_rows));
  TRI_CALL_CUBLAS(cublasLtMatrixLayoutCreate(&p->d, out, d_rows, d_columns, (int64_t)d_rows));
  if (s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX || s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
      s->epilogue == CUBLASLT_EPILOGUE_DGELU) {
    const int64_t aux_ld = (int64_t)d_rows;
    TRI_CALL(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld));
  }
  return TRI_OK;
}

static tri_status prefer(cublasLtMatmulPreference_t preference)
{
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  const uint64_t workspace = TRI_CUDA_WORKSPACE_BYTES;
  const uint32_t alignment = (uint32_t)POINTER_ALIGNMENT;
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  TRI_CALL_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
  TRI_CALL_CUBLAS(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
  for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
    TRI_CALL_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment,
                                                         sizeof alignment));
  return TRI_OK;
}

// The library's first choice for the shape. That it has none is an answer.
static tri_status choose(cublasLtHandle_t library, plan *p)
{
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
  int n = 0;
  TRI_CALL_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  tri_status status = prefer(preference);
  if (status == TRI_OK) {
    const cublasStatus_t found = cublasLtMatmulAlgoGetHeuristic(
        library, p->description, p->a, p->b, p->d, p->d, preference, 1, &result, &n);
    if (found != CUBLAS_STATUS_SUCCESS && found != CUBLAS_STATUS_NOT_SUPPORTED &&
        found != CUBLAS_STATUS_INVALID_VALUE)
      status = error_of(found, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
    p->taken = found == CUBLAS_STATUS_SUCCESS && n > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    p->algorithm = result.algo;
  }
  (void)cublasLtMatmulPreferenceDestroy(preference);
  return status;
}

static tri_status plan_of(tri_stream *stream, const shape *wanted, plan **out)
{
  tri_cuda_products *products = products_of(stream);
  for (plan *p = products->plans; p != NULL; p = p->next) {
    if (memcmp(&p->shape, wanted, sizeof *wanted) != 0) continue;
    *out = p;
    return TRI_OK;
  }
  tri_status status = TRI_OK;
  plan *p = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &p));
  p->shape = *wanted;
  TRI_CALL_GOTO(undo_plan, describe(p));
  TRI_CALL_GOTO(undo_plan, choose(products->library, p));
  p->next = products->plans;
  products->plans = p;
  *out = p;
  return TRI_OK;

undo_plan:
  plan_free(p);
  return status;
}

// --- one product

typedef struct operands {
  const void *a, *b;
  void *d;
  const void *bias; // of the epilogue, or NULL
  void *aux;        // likewise; read by DGELU, else written
  float beta;
} operands;

static bool aligned(const void *pointer)
{
  return (uintptr_t)pointer % POINTER_ALIGNMENT == 0;
}

static tri_status multiply(tri_stream *stream, plan *p, const operands *given)
{
  const float alpha = 1.0f;
  const tri_launch *launch = tri_cuda_launch(stream);
  if (given->bias != NULL)
    TRI_CALL(set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &given->bias, sizeof given->bias));
  if (given->aux != NULL)
    TRI_CALL(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &given->aux, sizeof given->aux));
  TRI_CALL_CUBLAS(cublasLtMatmul(products_of(stream)->library, p->description, &alpha, given->a,
                                 p->a, given->b, p->b, &given->beta, given->d, p->d, given->d, p->d,
                                 &p->algorithm, launch->workspace, TRI_CUDA_WORKSPACE_BYTES,
                                 launch->stream));
  return TRI_OK;
}

static shape shape_of(product_kind kind, int64_t N, int64_t IC, int64_t OC, tri_dtype dtype,
                      cublasLtEpilogue_t epilogue)
{
  shape s;
  memset(&s, 0, sizeof s); // compared as bytes
  s.N = N;
  s.IC = IC;
  s.OC = OC;
  s.kind = (int32_t)kind;
  s.dtype = (int32_t)dtype;
  s.epilogue = (int32_t)epilogue;
  return s;
}

// Whether the library takes the product and these addresses; then *out is its plan.
static tri_status plan_if_taken(tri_stream *stream, const shape *s, const operands *given,
                                plan **out)
{
  plan *p = NULL;
  TRI_CALL(plan_of(stream, s, &p));
  const bool fits = aligned(given->a) && aligned(given->b) && aligned(given->d) &&
                    aligned(given->bias) && aligned(given->aux);
  *out = p->taken && fits ? p : NULL;
  return TRI_OK;
}

// --- the entries

static cublasLtEpilogue_t forward_epilogue(bool gelu, bool bias, int64_t OC, tri_dtype dtype)
{
  if (dtype != TRI_DTYPE_BF16) return CUBLASLT_EPILOGUE_DEFAULT;
  if (gelu && OC % EPILOGUE_ALIGNMENT == 0)
    return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasLtEpilogue_t input_epilogue(bool pre, int64_t IC, tri_dtype dtype)
{
  const bool fused = pre && dtype == TRI_DTYPE_BF16 && IC % EPILOGUE_ALIGNMENT == 0;
  return fused ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT;
}

static tri_status linear_prepare(tri_stream *stream, int64_t N, int64_t IC, int64_t OC,
                                 tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_prepare", N, IC, OC, dtype));
  if (N == 0 || IC == 0 || OC == 0) return TRI_OK;
  TRI_CALL(tri_cuda_select(stream->device));
  plan *p = NULL;
  for (int i = 0; i < 4; i++) {
    const cublasLtEpilogue_t epilogue = forward_epilogue(i & 1, i & 2, OC, dtype);
    const shape s = shape_of(FORWARD, N, IC, OC, dtype, epilogue);
    TRI_CALL(plan_of(stream, &s, &p));
  }
  for (int i = 0; i < 2; i++) {
    const shape s = shape_of(BACKWARD_INPUT, N, IC, OC, dtype, input_epilogue(i, IC, dtype));
    TRI_CALL(plan_of(stream, &s, &p));
  }
  const shape s = shape_of(BACKWARD_WEIGHT, N, IC, OC, dtype, CUBLASLT_EPILOGUE_DEFAULT);
  TRI_CALL(plan_of(stream, &s, &p));
  return TRI_OK;
}

// Product, bias and GELU by kernels of ours.
static tri_status plain_forward(tri_stream *stream, void *out, void *gelu, const void *x,
                                const void *w, const void *bias, int64_t N, int64_t IC, int64_t OC,
                                tri_dtype dtype)
{
  const tri_launch *launch = tri_cuda_launch(stream);
  TRI_CALL_CUDA(tri_launch_product_forward(launch, out, x, w, bias, N, IC, OC, dtype));
  TRI_CALL_CUDA(tri_launch_bias_gelu(launch, out, gelu, NULL, N, OC, dtype));
  return TRI_OK;
}

static tri_status linear_forward(tri_stream *stream, void *out, void *gelu, const void *x,
                                 const void *w, const void *bias, int64_t N, int64_t IC, int64_t OC,
                                 tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_forward", N, IC, OC, dtype));
  if (N == 0 || IC == 0 || OC == 0) return TRI_OK;
  TRI_CALL(tri_cuda_select(stream->device));
  const shape s =
      shape_of(FORWARD, N, IC, OC, dtype, forward_epilogue(gelu != NULL, bias != NULL, OC, dtype));
  const bool fused_gelu =
      s.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || s.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  const bool fused_bias =
      s.epilogue == CUBLASLT_EPILOGUE_BIAS || s.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  const operands given = {.a = w,
                          .b = x,
                          .d = fused_gelu ? gelu : out,
                          .bias = fused_bias ? bias : NULL,
                          .aux = fused_gelu ? out : NULL};
  plan *p = NULL;
  TRI_CALL(plan_if_taken(stream, &s, &given, &p));
  if (p == NULL) {
    TRI_CALL(plain_forward(stream, out, gelu, x, w, bias, N, IC, OC, dtype));
    return TRI_OK;
  }
  TRI_CALL(multiply(stream, p, &given));
  TRI_CALL_CUDA(tri_launch_bias_gelu(tri_cuda_launch(stream), out, fused_gelu ? NULL : gelu,
                                     fused_bias ? NULL : bias, N, OC, dtype));
  return TRI_OK;
}

static tri_status linear_backward_input(tri_stream *stream, void *dx, const void *dout,
                                        const void *w, const void *pre, int64_t N, int64_t IC,
                                        int64_t OC, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_backward_input", N, IC, OC, dtype));
  if (N == 0 || IC == 0 || OC == 0) return TRI_OK;
  TRI_CALL(tri_cuda_select(stream->device));
  const tri_launch *launch = tri_cuda_launch(stream);
  const shape s =
      shape_of(BACKWARD_INPUT, N, IC, OC, dtype, input_epilogue(pre != NULL, IC, dtype));
  const bool fused = s.epilogue == CUBLASLT_EPILOGUE_DGELU;
  // The library only reads what this epilogue's aux points to.
  const operands given = {.a = w, .b = dout, .d = dx, .aux = fused ? (void *)pre : NULL};
  plan *p = NULL;
  TRI_CALL(plan_if_taken(stream, &s, &given, &p));
  if (p == NULL) {
    TRI_CALL_CUDA(tri_launch_product_backward_input(launch, dx, dout, w, N, IC, OC, dtype));
  } else {
    TRI_CALL(multiply(stream, p, &given));
  }
  if (pre != NULL && (p == NULL || !fused))
    TRI_CALL_CUDA(tri_launch_gelu_backward(launch, dx, pre, N * IC, dtype));
  return TRI_OK;
}

static tri_status linear_backward_weight(tri_stream *stream, float *dw, float *dbias,
                                         const void *dout, const void *x, int64_t N, int64_t IC,
                                         int64_t OC, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_linear("linear_backward_weight", N, IC, OC, dtype));
  if (N == 0 || IC == 0 || OC == 0) return TRI_OK;
  TRI_CALL(tri_cuda_select(stream->device));
  const tri_launch *launch = tri_cuda_launch(stream);
  const shape s = shape_of(BACKWARD_WEIGHT, N, IC, OC, dtype, CUBLASLT_EPILOGUE_DEFAULT);
  const operands given = {.a = x, .b = dout, .d = dw, .beta = 1.0f};
  plan *p = NULL;
  TRI_CALL(plan_if_taken(stream, &s, &given, &p));
  if (p == NULL) {
    TRI_CALL_CUDA(tri_launch_product_backward_weight(launch, dw, dout, x, N, IC, OC, dtype));
  } else {
    TRI_CALL(multiply(stream, p, &given));
  }
  if (dbias != NULL) TRI_CALL_CUDA(tri_launch_bias_backward(launch, dbias, dout, N, OC, dtype));
  return TRI_OK;
}

// --- the whole

tri_status tri_cuda_products_create(tri_kernels *table, tri_cuda_products **out)
{
  tri_cuda_products *products = NULL;
  cublasLtHandle_t library = NULL;
  TRI_CALL_CUBLAS(cublasLtCreate(&library));
  const tri_status status = TRI_NEW(TRI_MODULE_DEVICE, 1, &products);
  if (status != TRI_OK) (void)cublasLtDestroy(library);
  TRI_CALL(status);
  products->library = library;
  table->linear_prepare = linear_prepare;
  table->linear_forward = linear_forward;
  table->linear_backward_input = linear_backward_input;
  table->linear_backward_weight = linear_backward_weight;
  *out = products;
  return TRI_OK;
}

void tri_cuda_products_destroy(tri_cuda_products **products)
{
  if (*products == NULL) return;
  for (plan *p = (*products)->plans, *next = NULL; p != NULL; p = next) {
    next = p->next;
    plan_free(p);
  }
  (void)cublasLtDestroy((*products)->library);
  TRI_FREE(products);
}
