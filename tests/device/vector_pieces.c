#include "device/vector_pieces.h"

#include "device/cpu/vector/vector.h"

void TRI_ISA(vector_exp)(float *out, const float *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += W)
    v_store(out, i, n - i, TRI_DTYPE_F32, v_exp(v_load(x, i, n - i, TRI_DTYPE_F32)));
}

void TRI_ISA(vector_bf16)(uint16_t *out, const float *x, int64_t n)
{
  for (int64_t i = 0; i < n; i += W)
    v_store(out, i, n - i, TRI_DTYPE_BF16, v_load(x, i, n - i, TRI_DTYPE_F32));
}
