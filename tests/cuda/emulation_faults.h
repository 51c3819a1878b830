// Kernels with a planted mistake, and the same without: emulation_test and races.sh run them.
//
// Each has 64 threads in each block and an array of 256 floats, zero at first.
#pragma once

#include "portable.cuh"

typedef struct emu_fault {
  const char *name;
  unsigned n_blocks;
  void (*kernel)(float *out);
} emu_fault;

extern const emu_fault emu_faults[];
extern const int emu_n_faults;
const emu_fault *emu_find_fault(const char *name);
