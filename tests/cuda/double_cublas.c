// Double of cuBLASLt: bf16 and f32 products with the documented epilogues, nothing beyond.
//
// Column-major, as the library: D (m, n) = epilogue(alpha op(A) op(B) + beta C). Products and sums
// accumulate in double in ascending k, so equal calls give equal bits. What the documentation does
// not list is CUBLAS_STATUS_NOT_SUPPORTED, from the heuristic and from the product alike.
#include "doubles.h"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t ld, stride;
  int32_t batches;
} layout;

typedef struct description {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t transpose_a, transpose_b;
  uint32_t epilogue;
  void *bias, *aux;
  int64_t aux_ld;
  int32_t bias_type, aux_type; // -1: that of D
} description;

typedef struct preference {
  uint64_t workspace_bytes;
} preference;

struct cublasLtContext {
  int device;
};

// One queued product.
typedef struct product {
  description what;
  layout a_layout, b_layout, c_layout, d_layout;
  const char *a, *b, *c;
  char *d;
  double alpha, beta;
  int64_t m, n, k;
  void *workspace;
  size_t workspace_bytes;
} product;

enum { ALGORITHM_MARK = 0x7213, WORKSPACE_WANTED = 32 << 10, DGELU_BIT = 64 };
enum {
  BIAS_BIT = 4,
  GELU_BIT = 32,
  AUX_BIT = 128,
  BGRAD_BIT = 16,
  BGRADA_BIT = 256,
  BGRADB_BIT = 512
};

static size_t type_size(int type)
{
  return type == CUDA_R_16BF ? 2 : 4;
}

static double load(const void *p, int type, int64_t i)
{
  if (type == CUDA_R_32F) return ((const float *)p)[i];
  const uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void store(void *p, int type, int64_t i, double x)
{
  const float value = (float)x;
  if (type == CUDA_R_32F) {
    ((float *)p)[i] = value;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  ((uint16_t *)p)[i] = nan ? 0x7fff : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// The tanh form, as the library's.
static double gelu(double x)
{
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
  const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static int bias_type(const product *p)
{
  return p->what.bias_type < 0 ? (int)p->d_layout.type : p->what.bias_type;
}

static int aux_type(const product *p)
{
  return p->what.aux_type < 0 ? (int)p->d_layout.type : p->what.aux_type;
}

// op(X) as (outer, k) doubles, k fastest: the dot products then run over neighbours.
static double *unpack(const char *x, const layout *l, bool k_is_row, int64_t outer, int64_t k)
{
  double *out = malloc((size_t)(outer * k + 1) * sizeof *out);
  if (out == NULL) double_die("out of host memory");
  for (int64_t i = 0; i < outer; i++)
    for (int64_t q = 0; q < k; q++)
      out[i * k + q] = load(x, l->type, k_is_row ? q + i * l->ld : i + q * l->ld);
  return out;
}

static double apply(const product *p, double x, int64_t i, int64_t j)
{
  const description *what = &p->what;
  if ((what->epilogue & BIAS_BIT) != 0) x += load(what->bias, bias_type(p), i);
  if ((what->epilogue & GELU_BIT) != 0) {
    if ((what->epilogue & AUX_BIT) != 0) store(what->aux, aux_type(p), i + j * what->aux_ld, x);
    return gelu(x);
  }
  if ((what->epilogue & DGELU_BIT) != 0)
    return x * gelu_slope(load(what->aux, aux_type(p), i + j * what->aux_ld));
  return x;
}

// The sums of rows of `x` (n, k): what the BGRAD epilogues add up.
static void store_sums(const product *p, const double *x, int64_t n, int64_t k)
{
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int64_t q = 0; q < k; q++)
      sum += x[i * k + q];
    store(p->what.bias, bias_type(p), i, sum);
  }
}

static void run_one(const product *p, const char *a, const char *b, const char *c, char *d)
{
  const int64_t m = p->m, n = p->n, k = p->k;
  double *left = unpack(a, &p->a_layout, p->what.transpose_a != 0, m, k);
  double *right = unpack(b, &p->b_layout, p->what.transpose_b == 0, n, k);
  double *result = malloc((size_t)(m * n + 1) * sizeof *result);
  if (result == NULL) double_die("out of host memory");
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t q = 0; q < k; q++)
        sum += left[i * k + q] * right[j * k + q];
      double x = p->alpha * sum;
      if (p->beta != 0) x += p->beta * load(c, p->c_layout.type, i + j * p->c_layout.ld);
      result[i * n + j] = apply(p, x, i, j);
    }
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      store(d, p->d_layout.type, i + j * p->d_layout.ld, result[i * n + j]);
  if ((p->what.epilogue & BGRAD_BIT) != 0) store_sums(p, result, m, n);
  if ((p->what.epilogue & BGRADA_BIT) != 0) store_sums(p, left, m, k);
  if ((p->what.epilogue & BGRADB_BIT) != 0) store_sums(p, right, n, k);
  free(left);
  free(right);
  free(result);
}

static bool run(void *body)
{
  const product *p = body;
  // The library leaves something in its work space: nobody may rely on what was there.
  if (p->workspace_bytes > 0) memset(p->workspace, 0xff, p->workspace_bytes);
  for (int32_t i = 0; i < p->d_layout.batches; i++)
    run_one(p, p->a + i * p->a_layout.stride * (int64_t)type_size(p->a_layout.type),
            p->b + i * p->b_layout.stride * (int64_t)type_size(p->b_layout.type),
            p->c + i * p->c_layout.stride * (int64_t)type_size(p->c_layout.type),
            p->d + i * p->d_layout.stride * (int64_t)type_size(p->d_layout.type));
  return true;
}

// --- what is documented

static bool types_fit(const product *p)
{
  const int a = p->a_layout.type, c = p->c_layout.type, d = p->d_layout.type;
  if (a != (int)p->b_layout.type || c != d || p->what.scale != CUDA_R_32F) return false;
  if (p->what.compute != CUBLAS_COMPUTE_32F && p->what.compute != CUBLAS_COMPUTE_32F_FAST_TF32 &&
      p->what.compute != CUBLAS_COMPUTE_32F_FAST_16BF)
    return false;
  return (a == CUDA_R_16BF && (d == CUDA_R_16BF || d == CUDA_R_32F)) ||
         (a == CUDA_R_32F && d == CUDA_R_32F);
}

static bool epilogue_fits(const product *p)
{
  switch (p->what.epilogue) {
  case CUBLASLT_EPILOGUE_DEFAULT: return true;
  case CUBLASLT_EPILOGUE_BIAS:
  case CUBLASLT_EPILOGUE_GELU:
  case CUBLASLT_EPILOGUE_GELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU_AUX:
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
  case CUBLASLT_EPILOGUE_DGELU:
  case CUBLASLT_EPILOGUE_DGELU_BGRAD:
  case CUBLASLT_EPILOGUE_BGRADA:
  case CUBLASLT_EPILOGUE_BGRADB: break;
  default: return false;
  }
  if (p->d_layout.batches != 1) return false;
  if (bias_type(p) != (int)p->d_layout.type || aux_type(p) != (int)p->d_layout.type) return false;
  const bool aux = (p->what.epilogue & AUX_BIT) != 0;
  return !aux || (p->what.aux_ld >= p->m && p->what.aux_ld % 8 == 0);
}

// Tensor-core kernels read 16 bytes at a time; bf16 with other leading dimensions needs 4.
static bool alignment_fits(const layout *l)
{
  return l->type != CUDA_R_16BF || l->ld % 2 == 0 || l->columns == 1;
}

static cublasStatus_t check_shape(product *p)
{
  const layout *a = &p->a_layout, *b = &p->b_layout, *c = &p->c_layout, *d = &p->d_layout;
  p->m = (int64_t)d->rows;
  p->n = (int64_t)d->columns;
  p->k = (int64_t)(p->what.transpose_a != 0 ? a->rows : a->columns);
  const uint64_t a_m = p->what.transpose_a != 0 ? a->columns : a->rows;
  const uint64_t b_k = p->what.transpose_b != 0 ? b->columns : b->rows;
  const uint64_t b_n = p->what.transpose_b != 0 ? b->rows : b->columns;
  if (a_m != d->rows || b_n != d->columns || b_k != (uint64_t)p->k || c->rows != d->rows ||
      c->columns != d->columns || a->batches != d->batches || b->batches != d->batches ||
      c->batches != d->batches || p->m == 0 || p->n == 0 || p->k == 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const layout *all[] = {a, b, c, d};
  for (int i = 0; i < 4; i++)
    if (all[i]->ld < (int64_t)all[i]->rows) return CUBLAS_STATUS_INVALID_VALUE;
  if (!types_fit(p) || !epilogue_fits(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < 4; i++)
    if (!alignment_fits(all[i])) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

static void check_matrix(const void *start, const layout *l, int device, const char *what)
{
  const int64_t last = (l->batches - 1) * l->stride + l->ld * ((int64_t)l->columns - 1);
  double_check_device(start, (size_t)(last + (int64_t)l->rows) * type_size(l->type), device, what);
  if ((uintptr_t)start % type_size(l->type) != 0) double_die("%s: %p is misaligned", what, start);
}

static void check_pointers(const product *p, int device)
{
  check_matrix(p->a, &p->a_layout, device, "A of cublasLtMatmul");
  check_matrix(p->b, &p->b_layout, device, "B of cublasLtMatmul");
  if (p->beta != 0) check_matrix(p->c, &p->c_layout, device, "C of cublasLtMatmul");
  check_matrix(p->d, &p->d_layout, device, "D of cublasLtMatmul");
  const uint32_t epilogue = p->what.epilogue;
  if ((epilogue & (BIAS_BIT | BGRAD_BIT | BGRADA_BIT | BGRADB_BIT)) != 0)
    double_check_device(p->what.bias,
                        (size_t)((epilogue & BGRADB_BIT) != 0 ? p->n : p->m) *
                            type_size(bias_type(p)),
                        device, "bias of cublasLtMatmul");
  if ((epilogue & AUX_BIT) != 0)
    double_check_device(p->what.aux,
                        (size_t)(p->what.aux_ld * (p->n - 1) + p->m) * type_size(aux_type(p)),
                        device, "aux of cublasLtMatmul");
  if (p->workspace_bytes > 0) {
    double_check_device(p->workspace, p->workspace_bytes, device, "work space of cublasLtMatmul");
    if ((uintptr_t)p->workspace % 256 != 0) double_die("cublasLtMatmul: work space not aligned");
  }
}

// --- the interface

static const layout *layout_of(cublasLtMatrixLayout_t handle)
{
  return (const layout *)(const void *)handle;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
  DOUBLE_ENTER(CUBLAS_STATUS_NOT_INITIALIZED);
  *handle = calloc(1, sizeof **handle);
  if (*handle == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
  (*handle)->device = double_current_device();
  double_own(DOUBLE_LT_HANDLE, 1);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
  DOUBLE_ENTER(CUBLAS_STATUS_NOT_INITIALIZED);
  if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
  double_own(DOUBLE_LT_HANDLE, -1);
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
  return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
  switch (status) {
  case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  default: return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
  return cublasLtGetStatusName(status);
}

static void *make(size_t size)
{
  void *out = calloc(1, size);
  if (out == NULL) double_die("out of host memory");
  double_own(DOUBLE_LT_DESCRIPTOR, 1);
  return out;
}

static cublasStatus_t release(void *descriptor)
{
  if (descriptor == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  double_own(DOUBLE_LT_DESCRIPTOR, -1);
  free(descriptor);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
  DOUBLE_ENTER(CUBLAS_STATUS_ALLOC_FAILED);
  layout *l = make(sizeof *l);
  *l = (layout){type, rows, columns, ld, 0, 1};
  *out = (cublasLtMatrixLayout_t)(void *)l;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle)
{
  DOUBLE_ENTER(CUBLAS_STATUS_INVALID_VALUE);
  return release(handle);
}

static cublasStatus_t put(void *to, size_t wanted, const void *from, size_t size)
{
  if (from == NULL || size != wanted) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, from, size);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t size)
{
  DOUBLE_ENTER(CUBLAS_STATUS_INVALID_VALUE);
  layout *l = (layout *)(void *)handle;
  switch (attribute) {
  case CUBLASLT_MATRIX_LAYOUT_ROWS: return put(&l->rows, sizeof l->rows, value, size);
  case CUBLASLT_MATRIX_LAYOUT_COLS: return put(&l->columns, sizeof l->columns, value, size);
  case CUBLASLT_MATRIX_LAYOUT_LD: return put(&l->ld, sizeof l->ld, value, size);
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return put(&l->batches, sizeof l->batches, value, size);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
    return put(&l->stride, sizeof l->stride, value, size);
  default: double_die("cublasLt layout attribute %d is not modelled", (int)attribute);
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
  DOUBLE_ENTER(CUBLAS_STATUS_ALLOC_FAILED);
  description *d = make(sizeof *d);
  *d = (description){.compute = compute,
                     .scale = scale,
                     .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                     .bias_type = -1,
                     .aux_type = -1};
  *out = (cublasLtMatmulDesc_t)(void *)d;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle)
{
  DOUBLE_ENTER(CUBLAS_STATUS_INVALID_VALUE);
  return release(handle);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size)
{
  DOUBLE_ENTER(CUBLAS_STATUS_INVALID_VALUE);
  description *d = (description *)(void *)handle;
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA: return put(&d->transpose_a, sizeof d->transpose_a, value, size);
  case CUBLASLT_MATMUL_DESC_TRANSB: return put(&d->transpose_b, sizeof d->transpose_b, value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return put(&d->epilogue, sizeof d->epilogue, value, size);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return put(&d->bias, sizeof d->bias, value, size);
  case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
    return put(&d->bias_type, sizeof d->bias_type, value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return put(&d->aux, sizeof d->aux, value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return put(&d->aux_ld, sizeof d->aux_ld, value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
    return put(&d->aux_type, sizeof d->aux_type, value, size);
  default: double_die("cublasLt matmul attribute %d is not modelled", (int)attribute);
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
  DOUBLE_ENTER(CUBLAS_STATUS_ALLOC_FAILED);
  *out = (cublasLtMatmulPreference_t)make(sizeof(preference));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle)
{
  DOUBLE_ENTER(CUBLAS_STATUS_INVALID_VALUE);
  return release(handle);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size)
{
  DOUBLE_ENTER(CUBLAS_STATUS_INVALID_VALUE);
  preference *p = (preference *)(void *)handle;
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    return put(&p->workspace_bytes, sizeof p->workspace_bytes, value, size);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    return size == sizeof(uint32_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  default: double_die("cublasLt preference %d is not modelled", (int)attribute);
  }
}

static product product_of(cublasLtMatmulDesc_t what, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                          cublasLtMatrixLayout_t d)
{
  return (product){.what = *(const description *)(const void *)what,
                   .a_layout = *layout_of(a),
                   .b_layout = *layout_of(b),
                   .c_layout = *layout_of(c),
                   .d_layout = *layout_of(d)};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t what,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preferred, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *n_found)
{
  DOUBLE_ENTER(CUBLAS_STATUS_NOT_SUPPORTED);
  if (handle == NULL || n_wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  product p = product_of(what, a, b, c, d);
  const uint64_t limit =
      preferred == NULL ? 0 : ((const preference *)(const void *)preferred)->workspace_bytes;
  *n_found = 0;
  const cublasStatus_t status = check_shape(&p);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  memset(&results[0], 0, sizeof results[0]);
  results[0].algo.data[0] = ALGORITHM_MARK;
  results[0].workspaceSize = limit < WORKSPACE_WANTED ? 0 : WORKSPACE_WANTED;
  results[0].algo.data[1] = results[0].workspaceSize;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *n_found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t what, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
  DOUBLE_ENTER(CUBLAS_STATUS_EXECUTION_FAILED);
  if (double_sticky_error() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (handle == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
  product p = product_of(what, a, b, c, d);
  const cublasStatus_t status = check_shape(&p);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algorithm != NULL && algorithm->data[0] != ALGORITHM_MARK)
    double_die("cublasLtMatmul: this algorithm came from no heuristic");
  if (algorithm != NULL && algorithm->data[1] > workspace_bytes)
    double_die("cublasLtMatmul: the algorithm wants %llu bytes of work space and gets %zu",
               (unsigned long long)algorithm->data[1], workspace_bytes);
  p.alpha = *(const float *)alpha;
  p.beta = *(const float *)beta;
  p.a = A;
  p.b = B;
  p.c = C;
  p.d = D;
  p.workspace = workspace;
  p.workspace_bytes = workspace_bytes;
  const int device = double_stream_device(stream);
  if (handle->device != device) double_die("cublasLtMatmul: handle of another device");
  check_pointers(&p, device);
  product *body = malloc(sizeof *body);
  if (body == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
  *body = p;
  double_count.matmuls++;
  double_enqueue(stream, (double_work){"cublasLtMatmul", run, free, body, false});
  return CUBLAS_STATUS_SUCCESS;
}
