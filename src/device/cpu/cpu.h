// The CPU backend's parts: private to src/device.
//
// The kernel table is filled in layers: the reference first (complete, double accumulation, the
// specification), then the entries written with vectors for the chosen instruction set, then the
// matrix products of gemm.h, or those of onednn.h.
#pragma once

#include "device/device_operations.h"

typedef enum tri_cpu_isa {
  TRI_CPU_BASELINE, // x86-64-v2, or whatever the compiler's default is on another machine
  TRI_CPU_AVX2,     // x86-64-v3: AVX2 and FMA
  TRI_CPU_AVX512,   // x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  TRI_CPU_AVX512_BF16
} tri_cpu_isa;

typedef struct tri_cpu_linear tri_cpu_linear;
typedef struct tri_cpu_onednn tri_cpu_onednn;

typedef struct tri_cpu_device {
  tri_device base; // first
  tri_cpu_isa isa;
  int n_threads;
  tri_cpu_linear *linear;       // owned; NULL but with the tuned kernels
  tri_cpu_onednn *onednn;       // owned; NULL but with oneDNN's products
  struct tri_cpu_block *blocks; // memory handed out and not yet given back, owned by its takers
  char description[160];
} tri_cpu_device;

// Opens the CPU device. Called by tri_device_open("cpu").
TRI_MUST_CHECK tri_status tri_cpu_open(const tri_device_options *options, tri_device **out);

// The widest instruction set of this machine.
tri_cpu_isa tri_cpu_detect_isa(void);
const char *tri_cpu_isa_name(tri_cpu_isa isa);

// Fills every entry with the plain implementation.
void tri_cpu_reference_kernels(tri_kernels *table);

// Overrides the entries that have a vector version for this instruction set (all but linear_*).
void tri_cpu_vector_kernels(tri_kernels *table, tri_cpu_isa isa);

// Overrides linear_* with the products of gemm.h for this instruction set; *out holds their
// scratch, owned by the device. The entries find it through their stream's device.
TRI_MUST_CHECK tri_status tri_cpu_linear_create(tri_kernels *table, tri_cpu_isa isa, int n_threads,
                                                tri_cpu_linear **out);
void tri_cpu_linear_destroy(tri_cpu_linear **linear);
