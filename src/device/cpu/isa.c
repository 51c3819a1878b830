#include "config.h"
#include "device/cpu/cpu.h"

tri_cpu_isa tri_cpu_detect_isa(void)
{
#ifdef TRI_HAVE_X86
  // These ask the operating system too: registers that it does not save do not count.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (!avx2) return TRI_CPU_BASELINE;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (!avx512) return TRI_CPU_AVX2;
  return __builtin_cpu_supports("avx512bf16") ? TRI_CPU_AVX512_BF16 : TRI_CPU_AVX512;
#else
  return TRI_CPU_BASELINE;
#endif
}

const char *tri_cpu_isa_name(tri_cpu_isa isa)
{
  switch (isa) {
  case TRI_CPU_BASELINE: return "baseline";
  case TRI_CPU_AVX2: return "avx2";
  case TRI_CPU_AVX512: return "avx512";
  case TRI_CPU_AVX512_BF16: return "avx512_bf16";
  }
  return "?";
}
