// What a rank owns of the flat space of parameters (parameter.h), alone among those that hold the
// same: the optimizer's state of it, and of ZeRO's later stages the gradient and the parameters.
#pragma once

#include <stdint.h>

typedef struct tri_owned_range {
  int64_t first, end;  // elements of the flat space; `first` is a multiple of TRI_NORM_CHUNK
  int64_t at;          // place of the first in an array of what is owned alone
  int64_t gradient_at; // and in the array of gradients that tri_data_parallel_wait returns
} tri_owned_range;
