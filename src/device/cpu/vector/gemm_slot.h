// Vectors of four slots, the unit in which panels of a matrix product are packed. Private to this
// folder.
#pragma once

#include "device/cpu/vector/vector.h"

typedef V_TYPE(float, 4) v4;
typedef V_TYPE(int32_t, 4) v4i;
typedef V_TYPE(uint32_t, 4) v4u;
typedef V_TYPE(uint16_t, 4) v4h;

// Four bf16 at any address, each in the low half of a word.
V_INLINE v4u four_bf16(const void *x, int64_t at)
{
  v4h r;
  memcpy(&r, (const tri_bf16 *)x + at, sizeof r);
  return __builtin_convertvector(r, v4u);
}
