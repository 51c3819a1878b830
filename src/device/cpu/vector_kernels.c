#include "config.h"
#include "device/cpu/cpu.h"
#include "device/cpu/vector/tables.h"

void tri_cpu_vector_kernels(tri_kernels *table, tri_cpu_isa isa)
{
  switch (isa) {
#ifdef TRI_HAVE_X86
  case TRI_CPU_AVX512:
  case TRI_CPU_AVX512_BF16: tri_vector_all_avx512(table); return;
  case TRI_CPU_AVX2: tri_vector_all_avx2(table); return;
#endif
  default: tri_vector_all_baseline(table);
  }
}
