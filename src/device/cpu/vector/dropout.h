// Dropout masks in vectors: Philox4x32-10 on W counters at once. The numbers are those that
// trireme/device/kernels.h defines. Private to this folder.
#pragma once

#include "device/cpu/dropout.h"
#include "device/cpu/vector/vector.h"

// Dropout of one call, ready for use.
typedef struct dropout_mask {
  uint64_t key;
  uint64_t first_sample;
  int64_t first;      // row of the micro-batch, or head of the layer
  uint32_t threshold; // elements whose word is below are dropped
  float scale;        // of the others
} dropout_mask;

V_INLINE dropout_mask dropout_mask_of(const tri_dropout *dropout)
{
  const int64_t first = tri_cpu_dropout_first(dropout);
  if (!tri_cpu_dropout_is_on(dropout)) return (dropout_mask){.first = first, .scale = 1.0f};
  return (dropout_mask){.key = dropout->key,
                        .first_sample = dropout->first_sample,
                        .first = first,
                        .threshold = tri_cpu_dropout_threshold(dropout),
                        .scale = (float)(1.0 / (1.0 - (double)dropout->p))};
}

// What elements with these words are multiplied by.
V_INLINE vf dropout_factor(const dropout_mask *mask, vu words)
{
  const vi kept = (vi)(words >= mask->threshold - (vu){0});
  return (vf)(kept & (vi)v_set(mask->scale));
}

// words[k] of lane i: word k of Philox(key, {low[i], high[i], sample}).
V_INLINE void philox(uint64_t key, vu low, vu high, uint64_t sample, vu words[4])
{
  vu c0 = low, c1 = high;
  vu c2 = (uint32_t)sample - (vu){0}, c3 = (uint32_t)(sample >> 32) - (vu){0};
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; round++) {
    vu low0, high0, low1, high1;
    v_multiply_wide(c0, 0xD2511F53u, &low0, &high0);
    v_multiply_wide(c2, 0xCD9E8D57u, &low1, &high1);
    c0 = high1 ^ c1 ^ key0;
    c2 = high0 ^ c3 ^ key1;
    c1 = low1;
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// The elements whose words one call of dropout_words makes, and the room for them.
enum { DROPOUT_RUN = 256, DROPOUT_ROOM = DROPOUT_RUN + 4 * W + 4 };

// The words of n <= DROPOUT_RUN elements from `first` on of sample `sample` of the micro-batch;
// returns where in `room` they begin.
V_INLINE const uint32_t *dropout_words(const dropout_mask *mask, int64_t sample, int64_t first,
                                       int64_t n, uint32_t room[DROPOUT_ROOM])
{
  const int64_t skipped = first % 4;
  for (int64_t done = 0; done < skipped + n; done += 4 * W) {
    const uint64_t block = (uint64_t)(first / 4 + done / 4);
    const vu low = (uint32_t)block + (vu)v_lane();
    const vu carry = (vu)(low < (uint32_t)block - (vu){0}) & 1u;
    vu words[4];
    philox(mask->key, low, (uint32_t)(block >> 32) + carry, mask->first_sample + (uint64_t)sample,
           words);
    // Lane i holds four numbers in a row, one in each vector: two rounds of zips line them up.
    const vf even_low = v_zip_low((vf)words[0], (vf)words[2]);
    const vf even_high = v_zip_high((vf)words[0], (vf)words[2]);
    const vf odd_low = v_zip_low((vf)words[1], (vf)words[3]);
    const vf odd_high = v_zip_high((vf)words[1], (vf)words[3]);
    float *out = (float *)(void *)(room + done);
    v_put(out, v_zip_low(even_low, odd_low));
    v_put(out + W, v_zip_high(even_low, odd_low));
    v_put(out + 2 * W, v_zip_low(even_high, odd_high));
    v_put(out + 3 * W, v_zip_high(even_high, odd_high));
  }
  return room + skipped;
}

// Factors of the elements at words + at, `left` of them before the end.
V_INLINE vf dropout_factor_at(const dropout_mask *mask, const uint32_t *words, int64_t at)
{
  vu w;
  memcpy(&w, words + at, sizeof w);
  return dropout_factor(mask, w);
}
