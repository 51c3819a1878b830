// Element types. Local.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum tri_dtype {
  TRI_DTYPE_F32,
  TRI_DTYPE_BF16,
  TRI_DTYPE_F64,
  TRI_DTYPE_I32,
  TRI_DTYPE_U16
} tri_dtype;

// bfloat16: the upper half of an IEEE-754 single.
typedef uint16_t tri_bf16;

size_t tri_dtype_size(tri_dtype dtype);      // bytes
const char *tri_dtype_name(tri_dtype dtype); // "f32", "bf16", …

static inline float tri_bf16_to_float(tri_bf16 x)
{
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Round to nearest even; a NaN stays a (quiet) NaN.
static inline tri_bf16 tri_bf16_from_float(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (tri_bf16)((bits >> 16) | 0x40u);
  return (tri_bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
