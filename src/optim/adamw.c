#include "trireme/optim/adamw.h"

#include <math.h>

// 1 - beta^step, in double.
static float correction(float beta, int64_t step)
{
  return (float)(1.0 - pow((double)beta, (double)step));
}

// The first parameter that ends after element `first`.
static int find_parameter(const tri_parameters *parameters, int64_t first)
{
  int low = 0, high = parameters->n;
  while (low < high) {
    const int middle = (low + high) / 2;
    const tri_parameter *p = &parameters->list[middle];
    if (p->offset + p->count > first)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// The rule works on each element by itself, so only the borders of parameters matter, where the
// decay changes. What lies between parameters is left alone.
tri_status tri_adamw_update(const tri_adamw *adamw, tri_stream *stream,
                            const tri_parameters *parameters, int64_t first, int64_t end, float *p,
                            tri_bf16 *p_bf16, float *m, float *v, const float *g, int64_t step,
                            float lr, float grad_scale)
{
  TRI_CHECK(0 <= first && first <= end && end <= parameters->flat_count && step >= 1,
            TRI_ERR_ARGUMENT, "elements [%lld, %lld) of a flat space of %lld at step %lld",
            (long long)first, (long long)end, (long long)parameters->flat_count, (long long)step);
  const tri_kernels *k = tri_device_kernels(tri_stream_device(stream));
  const float correction1 = correction(adamw->beta1, step);
  const float correction2 = correction(adamw->beta2, step);
  for (int i = find_parameter(parameters, first); i < parameters->n; i++) {
    const tri_parameter *parameter = &parameters->list[i];
    if (parameter->offset >= end) break;
    const int64_t from = parameter->offset > first ? parameter->offset : first;
    const int64_t parameter_end = parameter->offset + parameter->count;
    const int64_t to = parameter_end < end ? parameter_end : end;
    const int64_t at = from - first;
    TRI_CALL(k->adamw(stream, p + at, p_bf16 == NULL ? NULL : p_bf16 + at, m + at, v + at, g + at,
                      to - from, lr, adamw->beta1, adamw->beta2, adamw->eps,
                      parameter->decay ? adamw->weight_decay : 0.0f, grad_scale, correction1,
                      correction2));
  }
  return TRI_OK;
}
