#include <math.h>
#include <stddef.h>

#include "device/check.h"
#include "device/cpu/reference.h"

// Each element in double; p is updated from the m and v that are stored.
tri_status tri_cpu_adamw(struct tri_stream *stream, float *p, tri_bf16 *p_bf16, float *m, float *v,
                         const float *g, int64_t n, float lr, float beta1, float beta2, float eps,
                         float weight_decay, float grad_scale, float correction1, float correction2)
{
  (void)stream;
  TRI_CALL(tri_kernel_check_sizes("adamw", 1, &n));
  const double b1 = (double)beta1, b2 = (double)beta2;
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) {
    const double slope = (double)grad_scale * (double)g[i];
    m[i] = (float)(b1 * (double)m[i] + (1.0 - b1) * slope);
    v[i] = (float)(b2 * (double)v[i] + (1.0 - b2) * slope * slope);
    const double m_hat = (double)m[i] / (double)correction1;
    const double v_hat = (double)v[i] / (double)correction2;
    const double decay = (double)weight_decay * (double)p[i];
    p[i] = (float)((double)p[i] - (double)lr * (decay + m_hat / (sqrt(v_hat) + (double)eps)));
    if (p_bf16 != NULL) p_bf16[i] = tri_bf16_from_float(p[i]);
  }
  return TRI_OK;
}
