// Twin of src/device/cpu/adamw.c.

#include "element.cuh"
#include "launch.cuh"
#include "launchers.h"

enum { THREADS = 256 };

// The scalars of one step.
struct adamw_step {
  float lr, eps, weight_decay, grad_scale;
  float beta1, rest1, scale1; // rest1 = 1 - beta1, scale1 = 1 / correction1
  float beta2, rest2, scale2;
};

// One element, with p updated from the m and v that are stored.
__device__ __forceinline__ void update(float &p, float &m, float &v, float g, const adamw_step &s)
{
  const float slope = s.grad_scale * g;
  m = fmaf(s.beta1, m, s.rest1 * slope);
  v = fmaf(s.beta2, v, s.rest2 * slope * slope);
  const float m_hat = m * s.scale1, v_hat = v * s.scale2;
  const float change = fmaf(s.weight_decay, p, m_hat / (sqrtf(v_hat) + s.eps));
  p = fmaf(-s.lr, change, p);
}

template <int W, bool COPY>
static __global__ void __launch_bounds__(THREADS)
    adamw(float *p, tri_bf16 *p_bf16, float *m, float *v, const float *g, int64_t n,
          adamw_step step)
{
  each_run<W>(n, [=](int64_t i, auto w) {
    float p_run[w.value], m_run[w.value], v_run[w.value], g_run[w.value];
    load(p_run, p + i);
    load(m_run, m + i);
    load(v_run, v + i);
    load(g_run, g + i);
#pragma unroll
    for (int k = 0; k < w.value; k++)
      update(p_run[k], m_run[k], v_run[k], g_run[k], step);
    store(p + i, p_run);
    store(m + i, m_run);
    store(v + i, v_run);
    if (COPY) store(p_bf16 + i, p_run);
  });
}

template <bool COPY>
static cudaError_t launch_adamw(const tri_launch *launch, float *p, tri_bf16 *p_bf16, float *m,
                                float *v, const float *g, int64_t n, const adamw_step &step)
{
  with_runs<4>(are_aligned(p, m, v, g) && are_aligned(p_bf16), [=](auto w) {
    TRI_LAUNCH((adamw<w.value, COPY>), dim3(grid_of(n, THREADS * w.value)), dim3(THREADS), 0,
               launch->stream, p, p_bf16, m, v, g, n, step);
  });
  return cudaGetLastError();
}

extern "C" cudaError_t tri_launch_adamw(const tri_launch *launch, float *p, tri_bf16 *p_bf16,
                                        float *m, float *v, const float *g, int64_t n, float lr,
                                        float beta1, float beta2, float eps, float weight_decay,
                                        float grad_scale, float correction1, float correction2)
{
  if (n == 0) return cudaSuccess;
  const double b1 = (double)beta1, b2 = (double)beta2;
  const adamw_step step = {lr,
                           eps,
                           weight_decay,
                           grad_scale,
                           beta1,
                           (float)(1.0 - b1),
                           (float)(1.0 / (double)correction1),
                           beta2,
                           (float)(1.0 - b2),
                           (float)(1.0 / (double)correction2)};
  return p_bf16 != NULL ? launch_adamw<true>(launch, p, p_bf16, m, v, g, n, step)
                        : launch_adamw<false>(launch, p, p_bf16, m, v, g, n, step);
}
