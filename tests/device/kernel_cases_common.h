// What the files of kernel cases share: sizes, dropout, bounds of f32 sums.
#pragma once

#include <math.h>

#include "device/kernel_arrays.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const tri_dtype KERNEL_DTYPES[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16};

// None, none by p, and some. The samples of the last begin just below 2^32, so that a batch of two
// needs both words of the ordinal.
static const tri_dropout KERNEL_DROPOUTS[] = {
    {.p = 0.0f},
    {.p = 0.2f, .key = 0x0123456789abcdefull, .first_sample = 0xffffffffull},
};

static inline const tri_kernels *kernel_table(const kernel_run *run, int side)
{
  return run->comparison->sides[side].kernels;
}

static inline tri_stream *kernel_stream(const kernel_run *run, int side)
{
  return run->comparison->sides[side].stream;
}

// What dropout multiplies by.
static inline double kernel_keep_scale(const tri_dropout *dropout)
{
  return dropout == NULL ? 1.0 : 1.0 / (1.0 - (double)dropout->p);
}

// An f32 sum of n products of either sign, each at most t, in any order: a partial sum of k terms
// is of size sqrt(k) t, each rounding is at most 2^-24 of it, and n independent roundings add up to
// less than n 2^-24 t; twice that, and 16 roundings for short sums.
static inline double kernel_sum_error(int64_t n, double t)
{
  return (2.0 * (double)n + 16.0) * 0x1p-24 * t;
}

// The relative error of an f32 sum of n positive terms: roundings of either sign of growing partial
// sums, so sqrt(n); four deviations, and 32 roundings for the terms (exp, tanh) and short sums.
static inline double kernel_positive_sum_error(int64_t n)
{
  return (4.0 * sqrt((double)n) + 32.0) * 0x1p-24;
}

// What is lost where a factor (a probability, a score's slope) may be rounded to bf16 before it is
// multiplied, as the machine's bf16 products need it: half an ulp.
static inline double kernel_factor_error(tri_dtype dtype)
{
  return dtype == TRI_DTYPE_BF16 ? 0x1p-8 : 0.0;
}
