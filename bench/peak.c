#include "peak.h"

#include <stddef.h>
#include <time.h>

#if defined __x86_64__
#include <immintrin.h>
#define TARGET(flags) __attribute__((target(flags)))
#define REGISTER "+x"
#else
#include <arm_neon.h>
#define TARGET(flags)
#define REGISTER "+w"
#endif

enum { SUMS = 12, ROUNDS = 500000 };

static double now(void)
{
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// SUMS independent chains of multiply-adds hide the latency; the asm keeps every round.
#define CHAINS(name, flags, vec, set, multiply_add) \
  TARGET(flags) static void name(void) \
  { \
    vec sums[SUMS], factor = set; \
    for (int i = 0; i < SUMS; i++) \
      sums[i] = factor; \
    for (int round = 0; round < ROUNDS; round++) { \
      _Pragma("GCC unroll 12") for (int i = 0; i < SUMS; i++) sums[i] = multiply_add; \
      __asm__ volatile("" : REGISTER(factor)); \
    } \
    for (int i = 1; i < SUMS; i++) \
      sums[0] = sums[0] + sums[i]; \
    __asm__ volatile("" : REGISTER(sums[0])); \
  }

#if defined __x86_64__
CHAINS(chains_avx2, "avx2,fma", __m256, _mm256_set1_ps(0.5f),
       _mm256_fmadd_ps(sums[i], factor, factor))
CHAINS(chains_avx512, "avx512f", __m512, _mm512_set1_ps(0.5f),
       _mm512_fmadd_ps(sums[i], factor, factor))
CHAINS(chains_bf16, "avx512f,avx512bf16", __m512, _mm512_set1_ps(0.5f),
       _mm512_dpbf16_ps(sums[i], (__m512bh)factor, (__m512bh)factor))
CHAINS(chains_baseline, "default", __m128, _mm_set1_ps(0.5f), sums[i] * factor + factor)
#else
CHAINS(chains_baseline, , float32x4_t, vdupq_n_f32(0.5f), vfmaq_f32(factor, sums[i], factor))
#endif

double peak_flops(bool bf16, const char **what)
{
  void (*chains)(void) = chains_baseline;
  double flops_per_round = SUMS * 4 * 2;
#if defined __x86_64__
  *what = "4 f32, multiply and add";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    chains = chains_avx2;
    flops_per_round = SUMS * 8 * 2;
    *what = "8 f32";
  }
  if (__builtin_cpu_supports("avx512f")) {
    chains = chains_avx512;
    flops_per_round = SUMS * 16 * 2;
    *what = "16 f32";
  }
  if (bf16 && __builtin_cpu_supports("avx512bf16")) {
    chains = chains_bf16;
    flops_per_round = SUMS * 32 * 2;
    *what = "32 bf16";
  }
#else
  *what = "4 f32";
  (void)bf16;
#endif
  double best = 0.0;
  for (int repeat = 0; repeat < 60; repeat++) {
    const double start = now();
    chains();
    const double rate = flops_per_round * ROUNDS / (now() - start);
    best = rate > best ? rate : best;
  }
  return best;
}
