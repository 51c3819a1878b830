// What is left to do with finished rows of a product: GELU, its derivative, rounding to bf16.
// Private to this folder.
#pragma once

#include "device/cpu/vector/gelu.h"

V_INLINE void finish_vector(void *out, void *gelu, const float *sums, const void *pre, int64_t j,
                            int64_t left, tri_dtype dtype)
{
  vf y = v_load(sums, j, left, TRI_DTYPE_F32);
  if (pre != NULL) y *= v_gelu_derivative(v_load(pre, j, left, dtype));
  if (dtype == TRI_DTYPE_BF16 || pre != NULL) v_store(out, j, left, dtype, y);
  if (gelu == NULL) return;
  if (dtype == TRI_DTYPE_BF16) y = v_from_bf16(v_to_bf16(y));
  v_store(gelu, j, left, dtype, v_gelu(y));
}

V_INLINE void finish_row(void *out, void *gelu, const float *sums, const void *pre, int64_t n,
                         tri_dtype dtype)
{
  int64_t j = 0;
  for (; j + W <= n; j += W)
    finish_vector(out, gelu, sums, pre, j, W, dtype);
  if (j < n) finish_vector(out, gelu, sums, pre, j, n - j, dtype);
}

// A loop of its own for each of what a layer asks for.
static void finish(void *out, void *gelu, const float *sums, const void *pre, int64_t n,
                   tri_dtype dtype)
{
  if (pre != NULL) {
    V_BY_DTYPE(dtype, finish_row, out, NULL, sums, pre, n);
  } else if (gelu != NULL) {
    V_BY_DTYPE(dtype, finish_row, out, gelu, sums, NULL, n);
  } else {
    V_BY_DTYPE(dtype, finish_row, out, NULL, sums, NULL, n);
  }
}
