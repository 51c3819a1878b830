// Pieces of src/device/cpu/vector, compiled once for each instruction set as the kernels are.
#pragma once

#include <stdint.h>

#define VECTOR_PIECES(suffix) \
  void vector_exp_##suffix(float *out, const float *x, int64_t n); \
  void vector_bf16_##suffix(uint16_t *out, const float *x, int64_t n)

VECTOR_PIECES(baseline);
VECTOR_PIECES(avx2);
VECTOR_PIECES(avx512);
