// Products in f32: a slot is one element, bf16 widened. See gemm_tile.h.
#include "device/cpu/vector/gemm_finish.h"
#include "device/cpu/vector/gemm_slot.h"

enum { PER_SLOT = 1 };

V_INLINE v4 slots_of_row(const void *x, int64_t at, tri_dtype dtype)
{
  if (dtype == TRI_DTYPE_BF16) return (v4)(four_bf16(x, at) << 16);
  v4 r;
  memcpy(&r, (const float *)x + at, sizeof r);
  return r;
}

V_INLINE v4 slots_of_columns(const void *x, int64_t at, int64_t column, tri_dtype dtype)
{
  (void)column;
  return slots_of_row(x, at, dtype);
}

V_INLINE float slot_of(const void *x, int64_t at, int64_t column, int64_t left, tri_dtype dtype)
{
  (void)column;
  (void)left;
  return dtype == TRI_DTYPE_BF16 ? tri_bf16_to_float(((const tri_bf16 *)x)[at])
                                 : ((const float *)x)[at];
}

V_INLINE v4 slot_sums(const float *slots)
{
  v4 r;
  memcpy(&r, slots, sizeof r);
  return r;
}

V_INLINE vf slot_spread(const float *slot)
{
  return v_set(*slot);
}

V_INLINE vf slot_multiply_add(vf a, vf b, vf sums)
{
  return v_fma(a, b, sums);
}

#include "device/cpu/vector/gemm_tile.h"

static void pack_a(float *packed, tri_gemm_operand a, int64_t width, int64_t k)
{
  V_BY_DTYPE(a.dtype, pack, packed, a, width, k, MR);
}

static void pack_b(float *packed, tri_gemm_operand b, int64_t width, int64_t k)
{
  V_BY_DTYPE(b.dtype, pack, packed, b, width, k, NR);
}

const tri_gemm_kernels TRI_ISA(tri_gemm_f32) = {.panel_rows = MR,
                                                .panel_columns = NR,
                                                .per_slot = PER_SLOT,
                                                .depth = DEPTH,
                                                .m_block = M_BLOCK,
                                                .pack_a = pack_a,
                                                .pack_b = pack_b,
                                                .sum_a = sum_a,
                                                .multiply = multiply,
                                                .finish = finish};
