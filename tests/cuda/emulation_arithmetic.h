// The part of the emulated device language that concerns one thread: integer atomics, cached loads
// and stores, arithmetic. Read through emulation.h.
//
// Approximate functions of the device (__expf, rsqrtf, ...) are those of the C library here:
// kernels leave room for the difference in their tolerances. Functions that name their rounding
// (_rn) are exact on both sides.
#pragma once

#define __trap() emu_fail(emu_site{__FILE__, __LINE__}, "__trap()")

// --- integer atomics, relaxed as on the device

template <class T, class U> inline T atomicAdd(T *p, U value)
{
  static_assert(std::is_integral_v<T>,
                "the order of float atomics is not fixed: no kernel uses any");
  return __atomic_fetch_add(p, static_cast<T>(value), __ATOMIC_RELAXED);
}

template <class T, class U> inline T atomicExch(T *p, U value)
{
  static_assert(std::is_integral_v<T>, "atomics are for integers");
  return __atomic_exchange_n(p, static_cast<T>(value), __ATOMIC_RELAXED);
}

template <class T, class U, class V> inline T atomicCAS(T *p, U compare, V value)
{
  static_assert(std::is_integral_v<T>, "atomics are for integers");
  T found = static_cast<T>(compare);
  __atomic_compare_exchange_n(p, &found, static_cast<T>(value), false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return found;
}

template <class T, class U> inline T atomicMax(T *p, U value)
{
  static_assert(std::is_integral_v<T>, "atomics are for integers");
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (old < static_cast<T>(value) &&
         !__atomic_compare_exchange_n(p, &old, static_cast<T>(value), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class T, class U> inline T atomicMin(T *p, U value)
{
  static_assert(std::is_integral_v<T>, "atomics are for integers");
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (static_cast<T>(value) < old &&
         !__atomic_compare_exchange_n(p, &old, static_cast<T>(value), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class T, class U> inline T atomicOr(T *p, U value)
{
  return __atomic_fetch_or(p, static_cast<T>(value), __ATOMIC_RELAXED);
}

template <class T, class U> inline T atomicAnd(T *p, U value)
{
  return __atomic_fetch_and(p, static_cast<T>(value), __ATOMIC_RELAXED);
}

// --- loads and stores with a cache hint

template <class T> inline T __ldg(const T *p)
{
  return *p;
}

template <class T> inline T __ldcs(const T *p)
{
  return *p;
}

template <class T> inline T __ldcg(const T *p)
{
  return *p;
}

template <class T> inline void __stcs(T *p, T value)
{
  *p = value;
}

template <class T> inline void __stcg(T *p, T value)
{
  *p = value;
}

// --- bits

template <class To, class From> inline To emu_bit_cast(From from)
{
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// clang-format off
inline int __float_as_int(float x) { return emu_bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return emu_bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return emu_bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return emu_bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return emu_bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return emu_bit_cast<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline unsigned __brev(unsigned x)
{
  unsigned reversed = 0;
  for (int i = 0; i < 32; i++) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

// --- floating point

inline float __expf(float x) { return expf(x); }
inline float exp2_fast(float x) { return x < -126.0f ? 0.0f : exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float rsqrtf(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(rintf(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }

#define EMU_MIN_MAX(T) \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
#undef EMU_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
// clang-format on
