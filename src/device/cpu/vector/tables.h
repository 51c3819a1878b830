// What the files of this folder add to the kernel table: each overrides its own entries. One set
// for each instruction set that is compiled.
#pragma once

#include "trireme/device/kernels.h"

#define TRI_VECTOR_TABLES(suffix) \
  void tri_vector_elementwise_##suffix(tri_kernels *table); \
  void tri_vector_adamw_##suffix(tri_kernels *table); \
  void tri_vector_embedding_##suffix(tri_kernels *table); \
  void tri_vector_layernorm_##suffix(tri_kernels *table); \
  void tri_vector_cross_entropy_##suffix(tri_kernels *table); \
  void tri_vector_attention_forward_##suffix(tri_kernels *table); \
  void tri_vector_attention_backward_##suffix(tri_kernels *table); \
  void tri_vector_attention_decode_##suffix(tri_kernels *table); \
  void tri_vector_all_##suffix(tri_kernels *table)

TRI_VECTOR_TABLES(baseline);
TRI_VECTOR_TABLES(avx2);
TRI_VECTOR_TABLES(avx512);
