#include "device/vector_pieces.h"

#include "device/cpu/vector/dropout.h"

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

void TRI_ISA(vector_words)(uint32_t *out, uint64_t key, uint64_t sample, int64_t first, int64_t n)
{
  uint32_t room[DROPOUT_ROOM];
  const dropout_mask mask = {.key = key, .first_sample = sample};
  memcpy(out, dropout_words(&mask, 0, first, n, room), (size_t)n * sizeof *out);
}

int64_t TRI_ISA(vector_chain)(int64_t n)
{
  enum { CHAINS = 12 };
  vf sums[CHAINS];
  for (int i = 0; i < CHAINS; i++)
    sums[i] = v_set((float)i);
  const vf factor = v_set(0.999f), term = v_set(0.001f);
  for (int64_t round = 0; round < n; round++) {
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
      sums[i] = v_fma(sums[i], factor, term);
  }
  for (int i = 1; i < CHAINS; i++)
    sums[0] += sums[i];
  // The sum is near CHAINS: returned so that it is not left out.
  return n * CHAINS * W * 2 + (v_sum(sums[0]) > 1e9f);
}
