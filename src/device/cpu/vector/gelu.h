// GELU in the tanh form (Hendrycks and Gimpel 2016, section 2), on vectors. Private to this folder.
//
// With u = sqrt(2/pi) (y + 0.044715 y^3), (1 + tanh u) / 2 = s = 1 / (1 + e^-2u): one exponential
// and no cancellation, so the relative error is that of e^-2u: its argument is rounded twice, which
// costs |2u| 2^-23 at most, and v_exp 2 ulp.
#pragma once

#include "device/cpu/vector/vector.h"

// s(y); 0 where e^-2u is beyond f32.
V_INLINE vf v_gelu_share(vf y)
{
  // -2 sqrt(2/pi) and -2 sqrt(2/pi) 0.044715.
  const vf x = y * v_fma(y * y, v_set(-0.0713548162726f), v_set(-1.5957691216057f));
  const vi beyond = x > 87.3f;
  const vf s = 1.0f / (v_exp(v_select(beyond, v_set(87.3f), x)) + 1.0f);
  return (vf)((vi)s & ~beyond);
}

// y s(y).
V_INLINE vf v_gelu(vf y)
{
  return y * v_gelu_share(y);
}

// s + y s (1 - s) 2 u', 2 u' = 2 sqrt(2/pi) (1 + 3 * 0.044715 y^2).
V_INLINE vf v_gelu_derivative(vf y)
{
  const vf s = v_gelu_share(y);
  // Beyond 16, s (1 - s) is 0 and y^3 must not become infinite.
  const vf near = -v_max(v_set(-16.0f), -v_max(v_set(-16.0f), y));
  const vf slope = v_fma(near * near, v_set(0.2140644488178f), v_set(1.5957691216057f));
  return v_fma(near * slope, s * (1.0f - s), s);
}
