// What launchers share: sizes of grids, alignment of pointers. Host code.
//
// The cut of the work depends on sizes alone, never on the device, so that results have the same
// bits on every one (but for attention in bf16: launchers.h). Every kernel loops over its grid: the
// limits bound no size.
#pragma once

#include <cstdint>

#include "element.cuh"
#include "portable.cuh"

enum { GRID_LIMIT = 1 << 20, GRID_Y_LIMIT = 65535 };

static inline int64_t ceil_div(int64_t n, int64_t per)
{
  return n / per + (n % per != 0);
}

static inline int64_t at_most(int64_t n, int64_t limit)
{
  return n < limit ? n : limit;
}

// Blocks for n pieces of work of which a block takes `per_block` at a time.
static inline unsigned grid_of(int64_t n, int64_t per_block)
{
  return (unsigned)at_most(ceil_div(n, per_block), GRID_LIMIT);
}

static inline unsigned grid_y_of(int64_t n)
{
  return (unsigned)at_most(n, GRID_Y_LIMIT);
}

// body(width<W>()) when the arrays take runs of W elements, else body(width<1>()), which takes any.
template <int W, class Body> static inline void with_runs(bool fit, Body body)
{
  if (fit) {
    body(width<W>());
  } else {
    body(width<1>());
  }
}

// Whether all pointers take 16-byte accesses. NULL does.
template <class... P> static inline bool are_aligned(const P *...pointers)
{
  return ((reinterpret_cast<uintptr_t>(pointers) | ... | 0u) & 15u) == 0;
}
