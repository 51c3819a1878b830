// Pieces of src/device/cpu/vector, compiled once for each instruction set as the kernels are.
#pragma once

#include <stdint.h>

// vector_chain: n rounds of multiply-adds on registers, nothing else; returns how many operations
// that were. vector_words: the dropout words of n <= 256 elements from `first` on.
#define VECTOR_PIECES(suffix) \
  int64_t vector_chain_##suffix(int64_t n); \
  void vector_exp_##suffix(float *out, const float *x, int64_t n); \
  void vector_bf16_##suffix(uint16_t *out, const float *x, int64_t n); \
  void vector_words_##suffix(uint32_t *out, uint64_t key, uint64_t sample, int64_t first, int64_t n)

VECTOR_PIECES(baseline);
VECTOR_PIECES(avx2);
VECTOR_PIECES(avx512);
