// Counter-based random numbers: every number is a pure function of (key, counter), so no layout
// changes a bit of it.
//
// The generator is Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3,
// SC11). Normal numbers come by Box-Muller with logarithm, sine and cosine of our own, made of +,
// -, *, /, sqrt in double without contraction, so that every IEEE-754 machine gives the same bits
// (libm does not promise that). Local, thread-safe.
#pragma once

#include <stdint.h>

// out = Philox4x32-10 of the 128-bit counter under the 64-bit key.
void tri_random_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]);

// The key of a named stream under a seed: the first 8 bytes (little endian) of BLAKE2b(seed as 8
// bytes little endian, then the name). Streams with different names are independent.
uint64_t tri_random_key(uint64_t seed, const char *name);

// out[i] = mean + std * z(first + i) for 0 <= i < n: z(e) is standard normal, the element e % 4 of
// the block e / 4 of the stream `key` (counter = {block low, block high, 0, 0}).
void tri_random_normal(uint64_t key, int64_t first, int64_t n, float mean, float std, float *out);

// A 64-bit number, element `index` of the stream (counter = {index low, index high, 1, 0}, words 0
// and 1).
uint64_t tri_random_u64(uint64_t key, uint64_t index);

// A uniform double in [0, 1) with 53 bits, from tri_random_u64.
double tri_random_uniform(uint64_t key, uint64_t index);

// A keyed permutation of [0, n): the image of `index`, O(1), a Feistel network with cycle walking.
// n >= 1, index < n.
uint64_t tri_random_permute(uint64_t key, uint64_t n, uint64_t index);
