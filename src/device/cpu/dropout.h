// Dropout masks, exactly as trireme/device/kernels.h defines them, for every CPU kernel.
//
// A mask is a pure function of (key, ordinal of the sample in the run, element inside the sample),
// so that forward and backward agree and no way of cutting a batch moves a bit of it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "trireme/base/random.h"
#include "trireme/device/kernels.h"

static inline bool tri_cpu_dropout_is_on(const tri_dropout *dropout)
{
  return dropout != NULL && dropout->p > 0.0f;
}

// An element is dropped when its word is below this. p is a float, so the product is exact.
static inline uint32_t tri_cpu_dropout_threshold(const tri_dropout *dropout)
{
  return (uint32_t)((double)dropout->p * 0x1p32);
}

// The number in the micro-batch of a call's first row, in the layer of its first head.
static inline int64_t tri_cpu_dropout_first(const tri_dropout *dropout)
{
  return dropout == NULL ? 0 : dropout->first;
}

// The words of elements 4 * block … 4 * block + 3 of the micro-batch's sample s.
static inline void tri_cpu_dropout_words(const tri_dropout *dropout, int64_t s, int64_t block,
                                         uint32_t words[4])
{
  const uint64_t sample = dropout->first_sample + (uint64_t)s;
  const uint32_t counter[4] = {(uint32_t)block, (uint32_t)((uint64_t)block >> 32), (uint32_t)sample,
                               (uint32_t)(sample >> 32)};
  tri_random_philox(dropout->key, counter, words);
}

// What element e of the micro-batch's sample s is multiplied by: 0, 1 / (1 - p), or 1 when there is
// no dropout.
static inline double tri_cpu_dropout_factor(const tri_dropout *dropout, int64_t s, int64_t e)
{
  if (!tri_cpu_dropout_is_on(dropout)) return 1.0;
  uint32_t words[4];
  tri_cpu_dropout_words(dropout, s, e / 4, words);
  if (words[e % 4] < tri_cpu_dropout_threshold(dropout)) return 0.0;
  return 1.0 / (1.0 - (double)dropout->p);
}

// The same of element c of row n of a call on rows of C elements, T rows to a sample.
static inline double tri_cpu_dropout_row_factor(const tri_dropout *dropout, int64_t n, int64_t T,
                                                int64_t C, int64_t c)
{
  const int64_t row = tri_cpu_dropout_first(dropout) + n;
  return tri_cpu_dropout_factor(dropout, row / T, row % T * C + c);
}
