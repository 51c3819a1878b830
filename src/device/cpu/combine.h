// The loss of one row whose vocabulary lies in parts: what cross_entropy_combine does, for every
// CPU kernel. A few numbers a row, so there is nothing to tune.
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

// Part k's three numbers are at statistics + k * stride.
static inline void tri_cpu_combine_row(float *loss, float softmax[2], const float *statistics,
                                       int64_t stride, int64_t count, bool ignored)
{
  *loss = softmax[0] = softmax[1] = 0.0f;
  if (ignored) return;
  double largest = -INFINITY, sum = 0.0, at_target = 0.0;
  for (int64_t k = 0; k < count; k++) {
    const double value = (double)statistics[k * stride];
    if (value > largest) largest = value;
  }
  for (int64_t k = 0; k < count; k++) {
    const float *part = statistics + k * stride;
    sum += (double)part[1] * exp((double)part[0] - largest); // an empty part: 0 * exp(-inf)
    at_target += (double)part[2];
  }
  *loss = (float)(log(sum) + (largest - at_target));
  softmax[0] = (float)largest;
  softmax[1] = (float)(1.0 / sum);
}
