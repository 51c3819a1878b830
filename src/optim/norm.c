#include <math.h>

#include "trireme/optim/adamw.h"

// The left half of a tree over n leaves is the largest power of two below n, so that the shape
// depends on n alone.
static double tree_sum(const double *values, int64_t n)
{
  if (n == 0) return 0.0;
  if (n == 1) return values[0];
  int64_t left = 1;
  while (2 * left < n)
    left *= 2;
  return tree_sum(values, left) + tree_sum(values + left, n - left);
}

double tri_norm_of_chunks(const double *chunk_sums, int64_t n)
{
  return sqrt(tree_sum(chunk_sums, n));
}

float tri_clip_scale(double norm, float clip)
{
  // Written so that a norm that is not a number stays one.
  if (clip == 0.0f || norm <= clip) return 1.0f;
  return (float)((double)clip / norm);
}
