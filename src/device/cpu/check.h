// The argument checks that CPU kernels share. Each names the kernel and the argument that is wrong.
#pragma once

#include "trireme/device/kernels.h"

// Each of `n` sizes is at least 0: tri_cpu_check_sizes("linear_forward", 3, (int64_t[]){N, IC,
// OC}).
TRI_MUST_CHECK tri_status tri_cpu_check_sizes(const char *kernel, int n, const int64_t *sizes);

// The storage type is f32 or bf16.
TRI_MUST_CHECK tri_status tri_cpu_check_dtype(const char *kernel, tri_dtype dtype);

// NULL, or 0 <= p < 1.
TRI_MUST_CHECK tri_status tri_cpu_check_dropout(const char *kernel, const tri_dropout *dropout);

// Sizes and type of a linear layer's call.
TRI_MUST_CHECK tri_status tri_cpu_check_linear(const char *kernel, int64_t N, int64_t IC,
                                               int64_t OC, tri_dtype dtype);
