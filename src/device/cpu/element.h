// One element of an f32 or bf16 array as a double: how the reference kernels read and write.
#pragma once

#include "trireme/tensor/dtype.h"

// x[i]. `dtype` is f32 or bf16, checked by the entry.
static inline double tri_cpu_load(const void *x, tri_dtype dtype, int64_t i)
{
  if (dtype == TRI_DTYPE_BF16) return (double)tri_bf16_to_float(((const tri_bf16 *)x)[i]);
  return (double)((const float *)x)[i];
}

// The bf16 nearest to a double, ties to even, in one rounding: by way of a float a number just
// beside a tie of bf16 would become that tie, so the float is moved off it, to the side of `value`.
static inline tri_bf16 tri_cpu_bf16_from_double(double value)
{
  float nearest = (float)value;
  const double error = value - (double)nearest;
  uint32_t bits;
  memcpy(&bits, &nearest, sizeof bits);
  if ((bits & 0xffffu) == 0x8000u && (error > 0 || error < 0)) {
    const int away_from_zero = (error > 0) == (nearest > 0);
    bits = away_from_zero ? bits + 1 : bits - 1;
    memcpy(&nearest, &bits, sizeof nearest);
  }
  return tri_bf16_from_float(nearest);
}

// x[i] = value, rounded once.
static inline void tri_cpu_store(void *x, tri_dtype dtype, int64_t i, double value)
{
  if (dtype == TRI_DTYPE_BF16) {
    ((tri_bf16 *)x)[i] = tri_cpu_bf16_from_double(value);
  } else {
    ((float *)x)[i] = (float)value;
  }
}
