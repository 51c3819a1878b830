// Every kernel of one table against the same kernel of another, over sizes, types and dropout.
//
// Sides may lie on different devices; all arrays travel by the device interface. Tolerances are
// formulas of the sizes, the type and the size of the inputs, wide enough for any order of f32 sums
// (derivation: beside each case). Each function returns TRI_OK, or the status of the first case
// that failed with a message that names the kernel, the sizes, the element and both values:
//
//   TEST(attention_agrees) { EXPECT_OK(kernel_cases_attention(&comparison)); }
#pragma once

#include "trireme/device/device.h"

typedef struct kernel_side {
  const char *name;           // for messages
  const tri_kernels *kernels; // table whose entries are called
  tri_device *device;         // where its arrays lie
  tri_stream *stream;         // of that device
  int n_threads;              // omp_set_num_threads before each call; 0: leaves it as it is
} kernel_side;

typedef struct kernel_comparison {
  kernel_side sides[2]; // 0: the reference, 1: what is tested against it
  bool f32_only;        // no bf16 cases of the linear layers
  bool same_bits;       // no tolerance: the same table on both sides, with other thread counts
} kernel_comparison;

TRI_MUST_CHECK tri_status kernel_cases_elementwise(const kernel_comparison *comparison);
TRI_MUST_CHECK tri_status kernel_cases_embedding(const kernel_comparison *comparison);
TRI_MUST_CHECK tri_status kernel_cases_layernorm(const kernel_comparison *comparison);
TRI_MUST_CHECK tri_status kernel_cases_residual(const kernel_comparison *comparison);
TRI_MUST_CHECK tri_status kernel_cases_linear(const kernel_comparison *comparison);
TRI_MUST_CHECK tri_status kernel_cases_attention(const kernel_comparison *comparison);
TRI_MUST_CHECK tri_status kernel_cases_attention_decode(const kernel_comparison *comparison);
TRI_MUST_CHECK tri_status kernel_cases_cross_entropy(const kernel_comparison *comparison);
TRI_MUST_CHECK tri_status kernel_cases_adamw(const kernel_comparison *comparison);

// Each entry of the table is there, and refuses sizes below 0, types that are neither f32 nor bf16,
// and probabilities outside [0, 1) with TRI_ERR_ARGUMENT. Touches no memory.
TRI_MUST_CHECK tri_status kernel_cases_refusals(const kernel_side *side);
