// The inner parts of a matrix product: packing and the tile of C in registers. Included by a file
// that says what a slot is, the four bytes that lie beside each other in a packed panel:
//   PER_SLOT                 elements of the summed dimension in a slot
//   slots_of_row             four slots, of elements that lie one after another
//   slots_of_columns         four slots of four rows, whose elements lie one after another
//   slot_of                  one slot
//   slot_sums                the sum of the elements of each of four slots, in f32
//   slot_spread, slot_multiply_add   sums + a b, one slot of A spread over a vector
//
// The tile is MR rows of VECTORS vectors. A fused multiply-add has a latency of 4 cycles and two
// begin in each, so 8 sums must be on their way. On AVX2 12 sums, 3 vectors of B and one element of
// A spread over a vector fill the 16 registers: 7 loads for 12 products, and 24 divides the widths
// of the GPT-2 family. AVX-512 has 32 registers: 24 sums, 2 vectors of B.
#pragma once

#include "device/cpu/gemm.h"
#include "device/cpu/vector/gemm_slot.h"

#if W == 16
enum { MR = 12, VECTORS = 2, DEPTH = 192 };
#else
enum { MR = 4, VECTORS = 3, DEPTH = 256 };
#endif
enum { NR = VECTORS * W, M_BLOCK = 240, LINE = 16 };

// --- packing, in squares of 4 x 4: panels are multiples of 4 wide

// The cache line of an element that will be read soon; it may lie outside the operand.
V_INLINE void prefetch(const void *x, int64_t at, tri_dtype dtype)
{
  __builtin_prefetch((const void *)((uintptr_t)x + (size_t)at * tri_dtype_size(dtype)));
}

// Slots that have no whole square: rows [0, panel) and slots [s, depth), zeros from `width` on.
V_INLINE void pack_rest(float *packed, tri_gemm_operand a, int64_t width, int64_t s, int64_t depth,
                        int64_t k, const int panel, tri_dtype dtype)
{
  for (; s < depth; s++)
    for (int64_t i = 0; i < panel; i++)
      packed[s * panel + i] = i < width ? slot_of(a.at, i * a.row + s * PER_SLOT * a.column,
                                                  a.column, k - s * PER_SLOT, dtype)
                                        : 0.0f;
}

// Four rows and four slots, transposed in registers.
V_INLINE void pack_square(float *packed, tri_gemm_operand a, int64_t r, int64_t s, const int panel,
                          tri_dtype dtype)
{
  v4 rows[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    rows[i] = slots_of_row(a.at, (r + i) * a.row + s * PER_SLOT, dtype);
  const v4 low01 = __builtin_shuffle(rows[0], rows[1], (v4i){0, 4, 1, 5});
  const v4 low23 = __builtin_shuffle(rows[2], rows[3], (v4i){0, 4, 1, 5});
  const v4 high01 = __builtin_shuffle(rows[0], rows[1], (v4i){2, 6, 3, 7});
  const v4 high23 = __builtin_shuffle(rows[2], rows[3], (v4i){2, 6, 3, 7});
  const v4 columns[4] = {__builtin_shuffle(low01, low23, (v4i){0, 1, 4, 5}),
                         __builtin_shuffle(low01, low23, (v4i){2, 3, 6, 7}),
                         __builtin_shuffle(high01, high23, (v4i){0, 1, 4, 5}),
                         __builtin_shuffle(high01, high23, (v4i){2, 3, 6, 7})};
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++)
    memcpy(packed + (s + c) * panel + r, &columns[c], sizeof columns[c]);
}

// Rows are contiguous: a cache line of each, then the next line. The lines of one column may all
// fall into one set of the first-level cache, so each is used up at once.
V_INLINE void pack_rows(float *packed, tri_gemm_operand a, int64_t width, int64_t depth, int64_t k,
                        const int panel, tri_dtype dtype)
{
  const int64_t whole = width < panel ? 0 : k / PER_SLOT / LINE * LINE;
  for (int64_t s = 0; s < whole; s += LINE)
    for (int64_t r = 0; r < panel; r += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++)
        prefetch(a.at, (r + i) * a.row + (s + 2 * LINE) * PER_SLOT, dtype);
#pragma GCC unroll 4
      for (int c = 0; c < LINE; c += 4)
        pack_square(packed, a, r, s + c, panel, dtype);
    }
  pack_rest(packed, a, width, whole, depth, k, panel, dtype);
}

V_INLINE tri_gemm_operand from_row(tri_gemm_operand a, int64_t i, tri_dtype dtype)
{
  a.at = (const char *)a.at + (size_t)(i * a.row) * tri_dtype_size(dtype);
  return a;
}

// Slots [s, end) of a few whole panels whose columns are contiguous: all of a cache line is used
// at once.
V_INLINE void pack_columns(float *packed, tri_gemm_operand a, int64_t n_panels, int64_t s,
                           int64_t end, int64_t depth, const int panel, tri_dtype dtype)
{
  const int64_t ahead = (end - s) * PER_SLOT * a.column;
  for (; s < end; s++) {
    const int64_t at = s * PER_SLOT * a.column;
    prefetch(a.at, at + ahead, dtype);
    prefetch(a.at, at + ahead + (PER_SLOT - 1) * a.column, dtype);
    for (int64_t i = 0; i < n_panels; i++) {
#pragma GCC unroll 8
      for (int r = 0; r < panel; r += 4) {
        const v4 x = slots_of_columns(a.at, at + i * panel + r, a.column, dtype);
        memcpy(packed + (i * depth + s) * panel + r, &x, sizeof x);
      }
    }
  }
}

// A run of slots of a few panels, of the next few panels, then the next run.
V_INLINE void pack_by_columns(float *packed, tri_gemm_operand a, int64_t width, int64_t depth,
                              int64_t k, const int panel, tri_dtype dtype)
{
  const int64_t whole = k / PER_SLOT, few = panel < LINE ? 4 : 2;
  for (int64_t s = 0; s < whole; s += LINE)
    for (int64_t i = 0; i + panel <= width; i += few * panel) {
      const int64_t n = (width - i) / panel;
      pack_columns(packed + i * depth, from_row(a, i, dtype), n < few ? n : few, s,
                   whole - s < LINE ? whole : s + LINE, depth, panel, dtype);
    }
  for (int64_t i = 0; i < width; i += panel)
    pack_rest(packed + i * depth, from_row(a, i, dtype), width - i, width - i < panel ? 0 : whole,
              depth, k, panel, dtype);
}

V_INLINE void pack(float *packed, tri_gemm_operand a, int64_t width, int64_t k, const int panel,
                   tri_dtype dtype)
{
  const int64_t depth = (k + PER_SLOT - 1) / PER_SLOT;
  if (a.column != 1) {
    pack_by_columns(packed, a, width, depth, k, panel, dtype);
    return;
  }
  for (int64_t i = 0; i < width; i += panel)
    pack_rows(packed + i * depth, from_row(a, i, dtype), width - i, depth, k, panel, dtype);
}

// Four partial sums by slot modulo 4, of four rows.
V_INLINE v4 sum_rows(const float *packed, int64_t depth)
{
  v4 parts[4] = {{0}};
  int64_t s = 0;
  for (; s + 4 <= depth; s += 4) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++)
      parts[part] += slot_sums(packed + (s + part) * MR);
  }
  for (; s < depth; s++)
    parts[s % 4] += slot_sums(packed + s * MR);
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

static void sum_a(float *sums, const float *packed, int64_t width, int64_t depth)
{
  for (int64_t i = 0; i < width; i += 4) {
    const v4 four = sum_rows(packed + i / MR * MR * depth + i % MR, depth);
    for (int64_t r = 0; r < 4 && i + r < width; r++)
      sums[i + r] += four[r];
  }
}

// --- the tile of C

V_INLINE void multiply_tile(float *c, int64_t ldc, const float *a, const float *b, int64_t depth,
                            const float *init, int64_t init_row)
{
  vf sums[MR][VECTORS];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
    for (int u = 0; u < VECTORS; u++)
      sums[i][u] = v_set(0.0f);
#pragma GCC unroll 4
    for (int line = 0; line < NR; line += LINE)
      __builtin_prefetch(c + i * ldc + line);
    __builtin_prefetch(c + i * ldc + NR - 1);
  }
#pragma GCC unroll 4
  for (int64_t s = 0; s < depth; s++) {
    vf row[VECTORS];
#pragma GCC unroll 4
    for (int u = 0; u < VECTORS; u++)
      row[u] = v_get(b + u * W);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      const vf element = slot_spread(a + i);
#pragma GCC unroll 4
      for (int u = 0; u < VECTORS; u++)
        sums[i][u] = slot_multiply_add(element, row[u], sums[i][u]);
    }
    a += MR;
    b += NR;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
    for (int u = 0; u < VECTORS; u++)
      v_put(c + i * ldc + u * W, sums[i][u] + v_get(init + i * init_row + u * W));
  }
}

static void multiply_edge(float *c, int64_t ldc, const float *a, const float *b, int64_t m,
                          int64_t n, int64_t depth, const float *init, int64_t init_row)
{
  float tile[MR * NR] = {0};
  for (int64_t i = 0; i < m; i++)
    memcpy(tile + i * NR, init + i * init_row, (size_t)n * sizeof *tile);
  multiply_tile(tile, NR, a, b, depth, tile, NR);
  for (int64_t i = 0; i < m; i++)
    memcpy(c + i * ldc, tile + i * NR, (size_t)n * sizeof *tile);
}

static void multiply(float *c, int64_t ldc, const float *a, const float *b, int64_t m, int64_t n,
                     int64_t depth, const float *init, int64_t init_row)
{
  // While a panel of B is used for all of A, the next one comes from the last-level cache.
  const int64_t lines = NR * depth / LINE, n_tiles = (m + MR - 1) / MR;
  const int64_t ahead = (lines + n_tiles - 1) / n_tiles;
  for (int64_t j = 0; j < n; j += NR) {
    const float *next = b + (j + NR) * depth;
    for (int64_t i = 0; i < m; i += MR) {
      for (int64_t line = 0; line < ahead; line++, next += LINE)
        __builtin_prefetch(next, 0, 2);
      const float *from = init + i * init_row + j;
      if (m - i >= MR && n - j >= NR) {
        multiply_tile(c + i * ldc + j, ldc, a + i * depth, b + j * depth, depth, from, init_row);
      } else {
        multiply_edge(c + i * ldc + j, ldc, a + i * depth, b + j * depth, m - i < MR ? m - i : MR,
                      n - j < NR ? n - j : NR, depth, from, init_row);
      }
    }
  }
}
