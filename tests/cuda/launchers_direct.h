// What launchers_test.c, which is C, asks the emulation, which is C++.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Of all kernels that ran so far.
typedef struct tensor_core_use {
  uint64_t products;
  uint64_t bank_conflicts; // rows of one 8x8 matrix that ldmatrix found in the same banks
} tensor_core_use;

tensor_core_use tensor_core_use_so_far(void);

// Of tests/cuda/emulation.h.
void emu_set_order(int order, uint64_t seed);

#ifdef __cplusplus
}
#endif
