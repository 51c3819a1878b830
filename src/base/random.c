#include "trireme/base/random.h"

#include <math.h>
#include <string.h>

#include "trireme/base/digest.h"

// Philox4x32-10, Salmon et al. SC11, section 5.2 (the constants are theirs).
static inline void philox_round(uint32_t c[4], uint32_t key0, uint32_t key1)
{
  const uint64_t product0 = (uint64_t)0xD2511F53u * c[0];
  const uint64_t product1 = (uint64_t)0xCD9E8D57u * c[2];
  const uint32_t c1 = c[1], c3 = c[3];
  c[0] = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
  c[1] = (uint32_t)product1;
  c[2] = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
  c[3] = (uint32_t)product0;
}

void tri_random_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4])
{
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  for (int round = 0; round < 10; round++) {
    philox_round(c, key0, key1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  memcpy(out, c, sizeof c);
}

uint64_t tri_random_key(uint64_t seed, const char *name)
{
  uint8_t bytes[8];
  for (int i = 0; i < 8; i++)
    bytes[i] = (uint8_t)(seed >> (8 * i));
  tri_digest_state state;
  tri_digest digest;
  tri_digest_begin(&state);
  tri_digest_add(&state, bytes, sizeof bytes);
  tri_digest_add(&state, name, strlen(name));
  tri_digest_end(&state, &digest);
  uint64_t key = 0;
  for (int i = 0; i < 8; i++)
    key |= (uint64_t)digest.bytes[i] << (8 * i);
  return key;
}

// log(x) for x in (0, 1], by x = m 2^e with m in [sqrt(1/2), sqrt(2)) and log m = 2 atanh((m - 1) /
// (m + 1)); the series to s^23 leaves less than 1e-17. Only exact or correctly rounded operations.
static double portable_log(double x)
{
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    exponent++;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  // 1/23, 1/21, … 1/1
  static const double odd[12] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
  double sum = 0.0;
  for (int k = 0; k < 12; k++)
    sum = sum * s2 + odd[k];
  return 2.0 * s * sum + (double)exponent * 0.6931471805599453;
}

// sin and cos of 2 pi u for u in [0, 1): the nearest eighth turn is taken off exactly, Taylor does
// the rest.
static void portable_sincos(double u, double *sine, double *cosine)
{
  const int eighth = (int)(u * 8.0 + 0.5);
  const double r = (u - eighth * 0.125) * 6.283185307179586;
  const double r2 = -(r * r);
  // 1 / (k (k - 1)): k = 17, 15, … 3 for the sine, 18, 16, … 2 for the cosine.
  static const double sine_terms[8] = {1.0 / 272, 1.0 / 210, 1.0 / 156, 1.0 / 110,
                                       1.0 / 72,  1.0 / 42,  1.0 / 20,  1.0 / 6};
  static const double cosine_terms[9] = {1.0 / 306, 1.0 / 240, 1.0 / 182, 1.0 / 132, 1.0 / 90,
                                         1.0 / 56,  1.0 / 30,  1.0 / 12,  1.0 / 2};
  double s = 0.0, c = 0.0;
  for (int k = 0; k < 8; k++)
    s = (s + 1.0) * (r2 * sine_terms[k]);
  for (int k = 0; k < 9; k++)
    c = (c + 1.0) * (r2 * cosine_terms[k]);
  s = (s + 1.0) * r;
  c = c + 1.0;
  static const double root = 0.7071067811865476;
  static const double turn_cos[8] = {1, root, 0, -root, -1, -root, 0, root};
  static const double turn_sin[8] = {0, root, 1, root, 0, -root, -1, -root};
  const double tc = turn_cos[eighth & 7], ts = turn_sin[eighth & 7];
  *sine = ts * c + tc * s;
  *cosine = tc * c - ts * s;
}

// Box-Muller: two uniforms of 32 bits, the first in (0, 1].
static void normal_pair(uint32_t a, uint32_t b, double z[2])
{
  const double radius = sqrt(-2.0 * portable_log(((double)a + 1.0) * 0x1p-32));
  double sine, cosine;
  portable_sincos((double)b * 0x1p-32, &sine, &cosine);
  z[0] = radius * cosine;
  z[1] = radius * sine;
}

void tri_random_normal(uint64_t key, int64_t first, int64_t n, float mean, float std, float *out)
{
  for (int64_t done = 0; done < n;) {
    const uint64_t element = (uint64_t)(first + done);
    const uint64_t block = element / 4;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    uint32_t words[4];
    double z[4];
    tri_random_philox(key, counter, words);
    normal_pair(words[0], words[1], z);
    normal_pair(words[2], words[3], z + 2);
    for (int lane = (int)(element % 4); lane < 4 && done < n; lane++, done++) {
      out[done] = (float)((double)mean + (double)std * z[lane]);
    }
  }
}

uint64_t tri_random_u64(uint64_t key, uint64_t index)
{
  const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 1, 0};
  uint32_t words[4];
  tri_random_philox(key, counter, words);
  return (uint64_t)words[0] | (uint64_t)words[1] << 32;
}

double tri_random_uniform(uint64_t key, uint64_t index)
{
  return (double)(tri_random_u64(key, index) >> 11) * 0x1p-53;
}

// One balanced Feistel pass over 2 * half_bits bits: a bijection whatever the round function is.
static uint64_t feistel(uint64_t key, int half_bits, uint64_t x)
{
  const uint64_t mask = (1ull << half_bits) - 1;
  uint64_t left = x >> half_bits, right = x & mask;
  for (uint32_t round = 0; round < 6; round++) {
    const uint32_t counter[4] = {(uint32_t)right, (uint32_t)(right >> 32), 2, round};
    uint32_t words[4];
    tri_random_philox(key, counter, words);
    const uint64_t mixed = left ^ (((uint64_t)words[0] | (uint64_t)words[1] << 32) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

uint64_t tri_random_permute(uint64_t key, uint64_t n, uint64_t index)
{
  int half_bits = 1;
  while (half_bits < 32 && (1ull << (2 * half_bits)) < n)
    half_bits++;
  // The domain is below 4 n, so the walk comes back into [0, n) after 4 tries on average.
  do {
    index = feistel(key, half_bits, index);
  } while (index >= n);
  return index;
}
