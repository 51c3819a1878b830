// GELU in the tanh form (Hendrycks and Gimpel 2016, section 2), on vectors. Private to this folder.
//
// With u = sqrt(2/pi) (y + 0.044715 y^3) the share of y that passes, (1 + tanh u) / 2, is
// s = 1 / (1 + 2^t), t = -2 u / ln 2: no cancellation. GELU(y) = y s and GELU'(y) are within 4
// units in the last place of max(1, |y|): t is rounded three times, which moves 2^t by |t| ulp at
// most, but where |t| is large either 2^t or y s is small.
#pragma once

#include "device/cpu/vector/vector.h"

// 2^t for |t| <= 126: t = n + r, |r| <= 1/2, and the polynomial of degree 6 with the least relative
// error on that interval (2.6e-9; by Remez's algorithm), in Estrin's order.
V_INLINE vf v_exp2_bounded(vf t)
{
  const vf magic = v_set(0x1.8p23f); // adding it rounds to an integer, held in the low bits
  const vf shifted = t + magic;
  const vf r = t - (shifted - magic);
  const vf square = r * r;
  const vf low = v_fma(r, v_set(0.693147214968f), v_set(1.0f));
  const vf middle = v_fma(r, v_set(0.0555031055121f), v_set(0.240226527829f));
  const vf high = v_fma(r, v_set(0.00134066438475f), v_set(0.00961769297614f));
  const vf top = v_fma(square, v_set(0.000155946770151f), high);
  const vf p = v_fma(square, v_fma(square, top, middle), low);
  return (vf)((vi)p + ((vi)shifted << 23));
}

// y moved into [-10, 10], a NaN kept: beyond, s is 0 or 1 in f32, and |t| would pass 126.
V_INLINE vf v_gelu_bounded(vf y)
{
  return -v_max(v_set(-10.0f), -v_max(v_set(-10.0f), y));
}

V_INLINE vf v_gelu_share(vf bounded)
{
  const vf square = bounded * bounded;
  // -2 sqrt(2/pi) / ln 2, and that times 0.044715.
  const vf t = bounded * v_fma(square, v_set(-0.10294323958f), v_set(-2.30220819814f));
  return 1.0f / (v_exp2_bounded(t) + 1.0f);
}

// y s(y).
V_INLINE vf v_gelu(vf y)
{
  return y * v_gelu_share(v_gelu_bounded(y));
}

// s + y s (1 - s) 2 u', 2 u' = 2 sqrt(2/pi) (1 + 3 * 0.044715 y^2).
V_INLINE vf v_gelu_derivative(vf y)
{
  const vf near = v_gelu_bounded(y);
  const vf s = v_gelu_share(near);
  const vf slope = v_fma(near * near, v_set(0.2140644488178f), v_set(1.5957691216057f));
  return v_fma(near * slope, s * (1.0f - s), s);
}
