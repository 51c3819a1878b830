// AdamW. Bound by memory: 28 bytes an element, 30 with the bf16 copy.
#include "device/check.h"
#include "device/cpu/vector/tables.h"
#include "device/cpu/vector/vector.h"

// Scalars of one call, as the formula of trireme/device/kernels.h needs them.
typedef struct adamw_scalars {
  float lr, beta1, beta2, eps, weight_decay, grad_scale;
  float rest1, rest2;       // 1 - beta
  float inverse1, inverse2; // 1 / correction
} adamw_scalars;

V_INLINE vf adamw_vector(vf p, vf *m, vf *v, vf g, const adamw_scalars *s)
{
  const vf slope = g * s->grad_scale;
  *m = v_fma(*m, v_set(s->beta1), slope * s->rest1);
  *v = v_fma(*v, v_set(s->beta2), slope * slope * s->rest2);
  const vf step = (*m * s->inverse1) / (v_sqrt(*v * s->inverse2) + s->eps);
  return v_fma(v_fma(p, v_set(s->weight_decay), step), v_set(-s->lr), p);
}

static void adamw_chunk(float *p, tri_bf16 *p_bf16, float *m, float *v, const float *g, int64_t n,
                        const adamw_scalars *s)
{
  const tri_dtype f32 = TRI_DTYPE_F32;
  for (int64_t i = 0; i < n; i += W) {
    vf m_new = v_load(m, i, n - i, f32), v_new = v_load(v, i, n - i, f32);
    const vf p_new =
        adamw_vector(v_load(p, i, n - i, f32), &m_new, &v_new, v_load(g, i, n - i, f32), s);
    v_store(m, i, n - i, f32, m_new);
    v_store(v, i, n - i, f32, v_new);
    v_store(p, i, n - i, f32, p_new);
    if (p_bf16 != NULL) v_store(p_bf16, i, n - i, TRI_DTYPE_BF16, p_new);
  }
}

static tri_status adamw(struct tri_stream *stream, float *p, tri_bf16 *p_bf16, float *m, float *v,
                        const float *g, int64_t n, float lr, float beta1, float beta2, float eps,
                        float weight_decay, float grad_scale, float correction1, float correction2)
{
  TRI_CALL(tri_kernel_check_sizes("adamw", 1, &n));
  const adamw_scalars s = {.lr = lr,
                           .beta1 = beta1,
                           .beta2 = beta2,
                           .eps = eps,
                           .weight_decay = weight_decay,
                           .grad_scale = grad_scale,
                           .rest1 = (float)(1.0 - (double)beta1),
                           .rest2 = (float)(1.0 - (double)beta2),
                           .inverse1 = (float)(1.0 / (double)correction1),
                           .inverse2 = (float)(1.0 / (double)correction2)};
#pragma omp parallel for num_threads(v_threads(stream, n)) schedule(static)
  for (int64_t k = 0; k < (n + TRI_NORM_CHUNK - 1) / TRI_NORM_CHUNK; k++) {
    const int64_t at = k * TRI_NORM_CHUNK;
    adamw_chunk(p + at, p_bf16 == NULL ? NULL : p_bf16 + at, m + at, v + at, g + at,
                n - at < TRI_NORM_CHUNK ? n - at : TRI_NORM_CHUNK, &s);
  }
  return TRI_OK;
}

void TRI_ISA(tri_vector_adamw)(tri_kernels *table)
{
  table->adamw = adamw;
}
