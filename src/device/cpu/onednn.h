// The linear layers as products of oneDNN: the choice `cpu.kernels: onednn`. Private to src/device.
//
// Each product is one primitive on whole matrices with oneDNN's own threading, so its bits may
// depend on the number of threads, unlike those of gemm.h. A call of a shape that was not prepared
// makes its primitives, and they stay until the device is closed.
#pragma once

#include "device/cpu/cpu.h"

// Overrides linear_*; *out holds the primitives and their scratch, owned by the device. The entries
// find it through their stream's device.
//
// oneDNN takes its instruction set once per process: TRI_ERR_UNSUPPORTED when it already runs with
// another one than `isa`. Where it has no products of a type, linear_prepare and the calls give
// TRI_ERR_UNSUPPORTED.
TRI_MUST_CHECK tri_status tri_cpu_onednn_create(tri_kernels *table, tri_cpu_isa isa, int n_threads,
                                                tri_cpu_onednn **out);
void tri_cpu_onednn_destroy(tri_cpu_onednn **onednn);

// Writes the library's name and version, "oneDNN 2.6.3".
void tri_cpu_onednn_describe(char *out, size_t size);
