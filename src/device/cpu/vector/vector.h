// Vectors of floats for the instruction set that a file is compiled for. Private to this folder.
//
// Every file here is compiled once for each instruction set (src/device/module.mk), which sets the
// width: 4, 8 or 16 floats. The kernels are written for any width. What an element becomes does
// not depend on its place in a vector: a full vector and the masked one at the end of a row go
// through the same operations, and a fused multiply-add is one only where v_fma is written
// (contraction is off), so element-wise results do not move when an array is cut elsewhere.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined __x86_64__
#include <immintrin.h>
#endif

#include "device/cpu/cpu.h"
#include "trireme/device/kernels.h"

#ifndef TRI_ISA_SUFFIX
#define TRI_ISA_SUFFIX baseline
#endif
#define TRI_PASTE_(name, suffix) name##_##suffix
#define TRI_PASTE(name, suffix) TRI_PASTE_(name, suffix)
// The name of a symbol that exists once for each instruction set.
#define TRI_ISA(name) TRI_PASTE(name, TRI_ISA_SUFFIX)

// W: floats in a vector. V_LANES(f): f(0), f(1), … f(W - 1).
#define V_LANES4(f, i) f(i), f(i + 1), f(i + 2), f(i + 3)
#if defined __AVX512F__
#define W 16
#define V_LANES(f) V_LANES4(f, 0), V_LANES4(f, 4), V_LANES4(f, 8), V_LANES4(f, 12)
#define V_X86(operation) _mm512_##operation
#elif defined __AVX2__
#define W 8
#define V_LANES(f) V_LANES4(f, 0), V_LANES4(f, 4)
#define V_X86(operation) _mm256_##operation
#else
#define W 4
#define V_LANES(f) V_LANES4(f, 0)
#if defined __SSE4_1__
#define V_X86(operation) _mm_##operation
#endif
#endif

#define V_INLINE static inline __attribute__((always_inline))
// A function that is called once for much work, so that each file holds one copy of its code.
#define V_CALLED __attribute__((noinline, unused)) static
#define V_TYPE(type, n) type __attribute__((vector_size(sizeof(type) * (n))))

typedef V_TYPE(float, W) vf;
typedef V_TYPE(int32_t, W) vi;
typedef V_TYPE(uint32_t, W) vu;
typedef V_TYPE(uint64_t, W / 2) vw;   // the same bits as W / 2 wide words
typedef V_TYPE(uint16_t, W) vh;       // W bf16
typedef V_TYPE(float, W / 2) vf_half; // what widens to one vector of doubles
typedef V_TYPE(double, W / 2) vd;

// --- arithmetic beyond + - * /

// a * b + c: rounded once where the instruction set has it, twice on the x86-64 baseline.
V_INLINE vf v_fma(vf a, vf b, vf c)
{
#if defined V_X86 && defined __FMA__
  return (vf)V_X86(fmadd_ps)(a, b, c);
#elif defined V_X86
  return a * b + c;
#else
  vf r;
  for (int i = 0; i < W; i++)
    r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
#endif
}

// max(a, b); b where one of them is a NaN.
V_INLINE vf v_max(vf a, vf b)
{
#if defined V_X86
  return (vf)V_X86(max_ps)(a, b);
#else
  vf r;
  for (int i = 0; i < W; i++)
    r[i] = a[i] > b[i] ? a[i] : b[i];
  return r;
#endif
}

V_INLINE vf v_sqrt(vf a)
{
#if defined V_X86
  return (vf)V_X86(sqrt_ps)(a);
#else
  vf r;
  for (int i = 0; i < W; i++)
    r[i] = __builtin_sqrtf(a[i]);
  return r;
#endif
}

V_INLINE vf v_set(float value)
{
  return value - (vf){0};
}

// a where the mask is all ones, b where it is zero.
V_INLINE vf v_select(vi mask, vf a, vf b)
{
#if defined V_X86 && W < 16
  return (vf)V_X86(blendv_ps)(b, a, (vf)mask);
#else
  return (vf)(((vi)a & mask) | ((vi)b & ~mask));
#endif
}

#define V_INDEX_(i) (i)
V_INLINE vi v_lane(void)
{
  return (vi){V_LANES(V_INDEX_)};
}

#define V_EVEN_ODD_(i) ((i) + (i) % 2 * W)
// The low and the high halves of a[i] * b.
V_INLINE void v_multiply_wide(vu a, uint32_t b, vu *low, vu *high)
{
#if defined V_X86
  const vu factor = b - (vu){0};
#if W == 16
  const vw even = (vw)_mm512_mul_epu32((__m512i)a, (__m512i)factor);
  const vw odd = (vw)_mm512_mul_epu32((__m512i)((vw)a >> 32), (__m512i)factor);
#elif W == 8
  const vw even = (vw)_mm256_mul_epu32((__m256i)a, (__m256i)factor);
  const vw odd = (vw)_mm256_mul_epu32((__m256i)((vw)a >> 32), (__m256i)factor);
#else
  const vw even = (vw)_mm_mul_epu32((__m128i)a, (__m128i)factor);
  const vw odd = (vw)_mm_mul_epu32((__m128i)((vw)a >> 32), (__m128i)factor);
#endif
  // Each product fills two lanes: take the even lanes of the one, the odd lanes of the other.
  const vi even_odd = {V_LANES(V_EVEN_ODD_)};
  *low = __builtin_shuffle((vu)even, (vu)(odd << 32), even_odd);
  *high = __builtin_shuffle((vu)(even >> 32), (vu)odd, even_odd);
#else
  for (int i = 0; i < W; i++) {
    const uint64_t product = (uint64_t)a[i] * b;
    (*low)[i] = (uint32_t)product;
    (*high)[i] = (uint32_t)(product >> 32);
  }
#endif
}

// --- reductions, in a fixed order: halves are folded onto each other

V_INLINE float v_sum(vf a)
{
  float lanes[W];
  memcpy(lanes, &a, sizeof a);
#pragma GCC unroll 4
  for (int half = W / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; i++)
      lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

V_INLINE double v_sum_double(vd a)
{
  double lanes[W / 2];
  memcpy(lanes, &a, sizeof a);
#pragma GCC unroll 4
  for (int half = W / 4; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; i++)
      lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

V_INLINE float v_largest(vf a)
{
  float lanes[W];
  memcpy(lanes, &a, sizeof a);
#pragma GCC unroll 4
  for (int half = W / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; i++)
      lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  }
  return lanes[0];
}

// --- memory. `left` is the number of elements from `at` to the end of the row: beyond it nothing
// is read or written, and lanes read as 0.

V_INLINE vf v_from_bf16(vh x)
{
  return (vf)(__builtin_convertvector(x, vu) << 16);
}

// The W numbers at x, widened on the way from memory.
V_INLINE vf v_get_bf16(const tri_bf16 *x)
{
#if defined V_X86 && W == 16
  return (vf)((vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x))
              << 16);
#elif defined V_X86 && W == 8
  return (vf)((vu)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x)) << 16);
#elif defined V_X86
  return (vf)((vu)_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x)) << 16);
#else
  vh bits;
  memcpy(&bits, x, sizeof bits);
  return v_from_bf16(bits);
#endif
}

// As tri_bf16_from_float: round to nearest even, a NaN stays a quiet NaN.
V_INLINE vh v_to_bf16(vf x)
{
  const vu bits = (vu)x;
  const vu rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const vu upper = (vu)v_select(x != x, (vf)(bits | 0x400000u), (vf)rounded) >> 16;
#if defined V_X86 && W == 8
  const __m256i wide = (__m256i)upper;
  return (vh)_mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
#else
  return __builtin_convertvector(upper, vh);
#endif
}

V_INLINE vf v_get(const float *x)
{
  vf r;
  memcpy(&r, x, sizeof r);
  return r;
}

V_INLINE void v_put(float *x, vf value)
{
  memcpy(x, &value, sizeof value);
}

// The W / 2 numbers at x, in double.
V_INLINE vd v_get_double(const float *x)
{
#if defined V_X86 && W == 16
  return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(x));
#elif defined V_X86 && W == 8
  return (vd)_mm256_cvtps_pd(_mm_loadu_ps(x));
#elif defined V_X86
  return (vd)_mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)x)));
#else
  vf_half narrow;
  memcpy(&narrow, x, sizeof narrow);
  return __builtin_convertvector(narrow, vd);
#endif
}

// Writes past the caches, for arrays larger than those: memory need not be read before. x is
// aligned to a vector; v_put_past_end() before the thread tells anyone.
V_INLINE void v_put_past(float *x, vf value)
{
#if defined V_X86
  V_X86(stream_ps)(x, value);
#else
  v_put(x, value);
#endif
}

V_INLINE void v_put_past_end(void)
{
#if defined V_X86
  _mm_sfence();
#endif
}

// Mask of the lanes below `left`.
V_INLINE vi v_first(int64_t left)
{
  return v_lane() < (int32_t)(left < W ? left : W) - (vi){0};
}

// The first n < W elements from `at` on, 0 behind them. Called, not inlined: rows end once.
V_CALLED vf v_load_part(const void *x, int64_t at, int64_t n, tri_dtype dtype)
{
  float lanes[W] = {0};
  for (int64_t i = 0; i < n; i++)
    lanes[i] = dtype == TRI_DTYPE_F32 ? ((const float *)x)[at + i]
                                      : tri_bf16_to_float(((const tri_bf16 *)x)[at + i]);
  return v_get(lanes);
}

V_CALLED void v_store_part(void *x, int64_t at, int64_t n, tri_dtype dtype, vf value)
{
  const vh rounded = v_to_bf16(value);
  for (int64_t i = 0; i < n; i++) {
    if (dtype == TRI_DTYPE_F32) {
      ((float *)x)[at + i] = value[i];
    } else {
      ((tri_bf16 *)x)[at + i] = rounded[i];
    }
  }
}

V_INLINE vf v_load(const void *x, int64_t at, int64_t left, tri_dtype dtype)
{
  if (left < W) return v_load_part(x, at, left, dtype);
  return dtype == TRI_DTYPE_F32 ? v_get((const float *)x + at)
                                : v_get_bf16((const tri_bf16 *)x + at);
}

V_INLINE void v_store(void *x, int64_t at, int64_t left, tri_dtype dtype, vf value)
{
  if (left < W) {
    v_store_part(x, at, left, dtype, value);
  } else if (dtype == TRI_DTYPE_F32) {
    v_put((float *)x + at, value);
  } else {
    const vh rounded = v_to_bf16(value);
    memcpy((tri_bf16 *)x + at, &rounded, sizeof rounded);
  }
}

// --- shuffles

#define V_LOW_(i) ((i) / 2 + ((i) % 2) * W)
#define V_HIGH_(i) ((i) / 2 + ((i) % 2) * W + W / 2)
// a0 b0 a1 b1 … of the lower and of the upper halves.
V_INLINE vf v_zip_low(vf a, vf b)
{
  return __builtin_shuffle(a, b, (vi){V_LANES(V_LOW_)});
}
V_INLINE vf v_zip_high(vf a, vf b)
{
  return __builtin_shuffle(a, b, (vi){V_LANES(V_HIGH_)});
}

// Rows become columns: log2(W) perfect shuffles of the W * W elements.
V_INLINE void v_transpose(vf r[W])
{
#pragma GCC unroll 4
  for (int stage = 1; stage < W; stage *= 2) {
    vf next[W];
#pragma GCC unroll 8
    for (int i = 0; i < W / 2; i++) {
      next[2 * i] = v_zip_low(r[i], r[i + W / 2]);
      next[2 * i + 1] = v_zip_high(r[i], r[i + W / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; i++)
      r[i] = next[i];
  }
}

// --- exp

// e^x within 2 units in the last place for -87.3 <= x <= 88; 0 for x <= -87.7; NaN for NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, the first exact times n); e^r = 1 + r +
// r^2 p(r) with the p of degree 4 that is nearest in the relative error of e^r (3.2e-9), by Remez.
V_INLINE vf v_exp(vf x)
{
  // n = -127 makes the power of two below 0. The order of the arguments keeps a NaN.
  const vf bounded = v_max(v_set(-127 * 0.693147182f), x);
  // Adding this rounds to an integer and leaves n + 127, the exponent of 2^n, in the low bits.
  const vf magic = v_set(0x1.8p23f + 127.0f);
  const vf shifted = v_fma(bounded, v_set(1.44269504f), magic);
  const vf n = shifted - magic;
  vf r = v_fma(n, v_set(-0.693359375f), bounded);
  r = v_fma(n, v_set(2.12194440e-4f), r);
  vf p = v_fma(v_set(1.383671421e-3f), r, v_set(8.369140327e-3f));
  p = v_fma(p, r, v_set(4.166810587e-2f));
  p = v_fma(p, r, v_set(1.666651666e-1f));
  p = v_fma(p, r, v_set(4.999999404e-1f));
  p = v_fma(p, r, v_set(1.0f));
  p = v_fma(p, r, v_set(1.0f));
  return p * (vf)((vu)shifted << 23);
}

// --- threads

// How many threads share a loop over outputs that touches `n` elements: all of the device's, or
// one where waking them would cost more than the loop.
V_INLINE int v_threads(const struct tri_stream *stream, int64_t n)
{
  return n < 8192 ? 1 : ((const tri_cpu_device *)stream->device)->n_threads;
}

// f(…, dtype) with the type as a constant, so that the compiler makes one body for each.
#define V_BY_DTYPE(dtype, f, ...) \
  ((dtype) == TRI_DTYPE_F32 ? f(__VA_ARGS__, TRI_DTYPE_F32) : f(__VA_ARGS__, TRI_DTYPE_BF16))
