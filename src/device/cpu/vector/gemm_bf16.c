// Products of bf16 operands by the machine's own bf16 units (AVX512_BF16): a slot is two elements
// of the summed dimension, and one instruction adds both products to an f32 sum. See gemm_tile.h.
//
// Without those units the same file makes the products by two multiply-adds: so its packing is
// tested on any machine.
#include "device/cpu/vector/gemm_finish.h"
#include "device/cpu/vector/gemm_slot.h"

enum { PER_SLOT = 2 };

V_INLINE v4 slots_of_row(const void *x, int64_t at, tri_dtype dtype)
{
  (void)dtype;
  v4 r;
  memcpy(&r, (const tri_bf16 *)x + at, sizeof r);
  return r;
}

V_INLINE v4 slots_of_columns(const void *x, int64_t at, int64_t column, tri_dtype dtype)
{
  (void)dtype;
  return (v4)(four_bf16(x, at) | (four_bf16(x, at + column) << 16));
}

// The second element is 0 where the summed dimension has ended.
V_INLINE float slot_of(const void *x, int64_t at, int64_t column, int64_t left, tri_dtype dtype)
{
  (void)dtype;
  const tri_bf16 *from = (const tri_bf16 *)x + at;
  const tri_bf16 pair[2] = {from[0], left > 1 ? from[column] : 0};
  float slot;
  memcpy(&slot, pair, sizeof slot);
  return slot;
}

V_INLINE v4 slot_sums(const float *slots)
{
  v4u r;
  memcpy(&r, slots, sizeof r);
  return (v4)(r << 16) + (v4)(r & 0xffff0000u);
}

V_INLINE vf slot_spread(const float *slot)
{
  int32_t bits;
  memcpy(&bits, slot, sizeof bits);
  return (vf)(bits - (vi){0});
}

V_INLINE vf slot_multiply_add(vf a, vf b, vf sums)
{
#if defined __AVX512BF16__
  return (vf)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b);
#else
  const vi high = (vi){0} + (int32_t)0xffff0000;
  sums = v_fma((vf)((vi)a & high), (vf)((vi)b & high), sums);
  return v_fma((vf)((vi)a << 16), (vf)((vi)b << 16), sums);
#endif
}

#include "device/cpu/vector/gemm_tile.h"

static void pack_a(float *packed, tri_gemm_operand a, int64_t width, int64_t k)
{
  pack(packed, a, width, k, MR, TRI_DTYPE_BF16);
}

static void pack_b(float *packed, tri_gemm_operand b, int64_t width, int64_t k)
{
  pack(packed, b, width, k, NR, TRI_DTYPE_BF16);
}

const tri_gemm_kernels TRI_ISA(tri_gemm_bf16) = {.panel_rows = MR,
                                                 .panel_columns = NR,
                                                 .per_slot = PER_SLOT,
                                                 .depth = DEPTH,
                                                 .m_block = M_BLOCK,
                                                 .pack_a = pack_a,
                                                 .pack_b = pack_b,
                                                 .sum_a = sum_a,
                                                 .multiply = multiply,
                                                 .finish = finish};
