// Dropout masks, exactly as trireme/device/kernels.h defines them: twin of
// src/device/cpu/dropout.h.
#pragma once

#include <cstdint>

#include "portable.cuh"
#include "trireme/device/kernels.h"

// What a kernel takes by value in place of a tri_dropout.
struct dropout_mask {
  uint64_t key;
  uint64_t first_sample;
  int64_t first;      // row of the micro-batch, or head of the layer
  uint32_t threshold; // an element is dropped when its word is below this
  float scale;        // of those that are kept
};

static inline bool dropout_is_on(const tri_dropout *dropout)
{
  return dropout != NULL && dropout->p > 0.0f;
}

// Nothing is dropped by the mask of no dropout.
static inline dropout_mask dropout_mask_of(const tri_dropout *dropout)
{
  const int64_t first = dropout == NULL ? 0 : dropout->first;
  if (!dropout_is_on(dropout)) return dropout_mask{0, 0, first, 0, 1.0f};
  // p is a float, so the product is exact.
  const uint32_t threshold = (uint32_t)((double)dropout->p * 4294967296.0);
  const float scale = (float)(1.0 / (1.0 - (double)dropout->p));
  return dropout_mask{dropout->key, dropout->first_sample, first, threshold, scale};
}

// Philox4x32-10: twin of tri_random_philox.
__device__ __forceinline__ void philox(uint64_t key, uint32_t (&c)[4])
{
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint64_t product0 = (uint64_t)0xD2511F53u * c[0];
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * c[2];
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
    c[1] = (uint32_t)product1;
    c[2] = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
    c[3] = (uint32_t)product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

// The words of elements 4 * block … 4 * block + 3 of the micro-batch's sample s.
__device__ __forceinline__ void dropout_words(const dropout_mask &mask, int64_t s, int64_t block,
                                              uint32_t (&words)[4])
{
  const uint64_t sample = mask.first_sample + (uint64_t)s;
  words[0] = (uint32_t)block;
  words[1] = (uint32_t)((uint64_t)block >> 32);
  words[2] = (uint32_t)sample;
  words[3] = (uint32_t)(sample >> 32);
  philox(mask.key, words);
}

__device__ __forceinline__ float dropout_factor_of(const dropout_mask &mask, uint32_t word)
{
  return word < mask.threshold ? 0.0f : mask.scale;
}

// What elements e … e + W - 1 of the micro-batch's sample s are multiplied by. W is 1, or it and e
// are multiples of 4.
template <int W>
__device__ __forceinline__ void dropout_factors(float (&factors)[W], const dropout_mask &mask,
                                                int64_t s, int64_t e)
{
  static_assert(W == 1 || W % 4 == 0, "a run is one element or whole blocks");
  uint32_t words[4];
  if constexpr (W == 1) {
    dropout_words(mask, s, e / 4, words);
    // Chosen, not indexed: an index that is not known would put the words in local memory.
    const uint32_t even = (e & 2) != 0 ? words[2] : words[0];
    const uint32_t odd = (e & 2) != 0 ? words[3] : words[1];
    factors[0] = dropout_factor_of(mask, (e & 1) != 0 ? odd : even);
  } else {
#pragma unroll
    for (int k = 0; k < W / 4; k++) {
      dropout_words(mask, s, e / 4 + k, words);
#pragma unroll
      for (int i = 0; i < 4; i++)
        factors[4 * k + i] = dropout_factor_of(mask, words[i]);
    }
  }
}
