#include <math.h>
#include <string.h>

#include "trireme/nn/gpt.h"

// A key that orders as the number does: negative numbers have all bits turned, others the sign bit.
static uint32_t order_key(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

static int count_at_least(const float *logits, int n, uint32_t key)
{
  int count = 0;
  for (int i = 0; i < n; i++)
    count += order_key(logits[i]) >= key;
  return count;
}

// The key of the k-th largest number, by bisection of the keys: no copy, no sort, 32 scans.
static uint32_t kth_largest_key(const float *logits, int n, int k)
{
  uint32_t key = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if (count_at_least(logits, n, key | bit) >= k) key |= bit;
  }
  return key;
}

static int32_t largest(const float *logits, int n)
{
  int best = 0;
  for (int i = 1; i < n; i++) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

int32_t tri_sample_token(const float *logits, int n, float temperature, int top_k, double uniform)
{
  const int best = largest(logits, n);
  if (temperature == 0.0f) return best;
  const int k = top_k == 0 || top_k > n ? n : top_k;
  const uint32_t limit = kth_largest_key(logits, n, k);
  // Of those equal to the k-th largest, the lowest indices take the places left.
  const int above = limit == UINT32_MAX ? 0 : count_at_least(logits, n, limit + 1);
  double total = 0.0;
  int equal_left = k - above;
  for (int i = 0; i < n; i++) {
    const uint32_t key = order_key(logits[i]);
    if (key > limit || (key == limit && equal_left-- > 0))
      total += exp(((double)logits[i] - logits[best]) / temperature);
  }
  double sum = 0.0;
  int32_t last = best;
  equal_left = k - above;
  for (int i = 0; i < n; i++) {
    const uint32_t key = order_key(logits[i]);
    if (!(key > limit || (key == limit && equal_left-- > 0))) continue;
    sum += exp(((double)logits[i] - logits[best]) / temperature);
    last = i;
    if (sum > uniform * total) break;
  }
  return last;
}
