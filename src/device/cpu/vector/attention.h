// What the attention kernels share: the size of their blocks, and where a row begins. Private to
// this folder.
#pragma once

#include "device/check.h"
#include "device/cpu/vector/dropout.h"
#include "device/cpu/vector/product.h"

// Blocks of BLOCK queries and keys; half of that for heads wider than WIDE, so that a block of any
// head up to MAX_HEAD fits a tile of TILE floats. Tiles lie on the stack of each thread: together
// they take 1 MiB at most, of which narrow heads touch a quarter.
enum { BLOCK = 64, WIDE = 128, MAX_HEAD = 512, TILE = MAX_HEAD * BLOCK / 2 };

_Static_assert((int)BLOCK / 2 % (int)NR == 0, "a block is a whole number of panels");
_Static_assert(WIDE *BLOCK <= TILE, "a block fits a tile");
_Static_assert((int)BLOCK <= (int)DROPOUT_RUN, "one run of dropout covers the keys of a block");

V_INLINE int64_t block_of(int64_t D)
{
  return D <= WIDE ? BLOCK : BLOCK / 2;
}

V_INLINE int64_t round_up(int64_t n, int64_t multiple)
{
  return (n + multiple - 1) / multiple * multiple;
}

V_INLINE int64_t smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

// Sizes of one call: qkv is (B, T, 3, H, D), out (B, T, H, D).
typedef struct attention_sizes {
  int64_t B, T, H, D;
} attention_sizes;

enum { QUERY, KEY, VALUE };

// The first element of position t of the queries, keys or values of a head; rows of positions are
// 3 H D apart.
V_INLINE int64_t qkv_at(const attention_sizes *n, int64_t b, int64_t t, int which, int64_t h)
{
  return (((b * n->T + t) * 3 + which) * n->H + h) * n->D;
}

// The same in out and dout; rows are H D apart.
V_INLINE int64_t out_at(const attention_sizes *n, int64_t b, int64_t t, int64_t h)
{
  return ((b * n->T + t) * n->H + h) * n->D;
}

// Of a query in its sample: the number of its first key's element for dropout.
V_INLINE int64_t dropout_at(const attention_sizes *n, const dropout_mask *mask, int64_t t,
                            int64_t h)
{
  return ((mask->first + h) * n->T + t) * n->T;
}

V_INLINE float score_scale(int64_t D)
{
  return (float)(1.0 / __builtin_sqrt((double)D));
}

static inline tri_status attention_check(const char *kernel, int64_t B, int64_t T, int64_t H,
                                         int64_t D, tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, 4, (int64_t[]){B, T, H, D}));
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  TRI_CALL(tri_kernel_check_dropout(kernel, dropout));
  TRI_CHECK(D <= MAX_HEAD, TRI_ERR_ARGUMENT,
            "%s: heads are %lld wide, the tuned kernels take at most %d: use more heads, or the "
            "reference kernels",
            kernel, (long long)D, MAX_HEAD);
  return TRI_OK;
}
