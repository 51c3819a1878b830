#include "device/cpu/vector/tables.h"
#include "device/cpu/vector/vector.h"

void TRI_ISA(tri_vector_all)(tri_kernels *table)
{
  TRI_ISA(tri_vector_elementwise)(table);
  TRI_ISA(tri_vector_adamw)(table);
  TRI_ISA(tri_vector_embedding)(table);
  TRI_ISA(tri_vector_layernorm)(table);
  TRI_ISA(tri_vector_cross_entropy)(table);
  TRI_ISA(tri_vector_attention_forward)(table);
  TRI_ISA(tri_vector_attention_backward)(table);
  TRI_ISA(tri_vector_attention_decode)(table);
}
