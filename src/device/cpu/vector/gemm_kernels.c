// The inner parts of a matrix product: packing, the tile of C in registers, GELU on finished rows.
//
// The tile is MR rows of VECTORS vectors. A fused multiply-add has a latency of 4 cycles and two
// begin in each, so 8 sums must be on their way. On AVX2 12 sums, 3 vectors of B and one element of
// A spread over a vector fill the 16 registers: 7 loads for 12 products, and 24 divides the widths
// of the GPT-2 family. AVX-512 has 32 registers: 24 sums, 2 vectors of B.
#include "device/cpu/gemm.h"
#include "device/cpu/vector/gelu.h"
#include "device/cpu/vector/vector.h"

#if W == 16
enum { MR = 12, VECTORS = 2, K_BLOCK = 192 };
#else
enum { MR = 4, VECTORS = 3, K_BLOCK = 256 };
#endif
enum { NR = VECTORS * W, M_BLOCK = 240, LINE = 16 };

// --- packing, in squares of 4 x 4: panels are multiples of 4 wide

typedef V_TYPE(float, 4) v4;
typedef V_TYPE(int32_t, 4) v4i;
typedef V_TYPE(uint16_t, 4) v4h;
typedef V_TYPE(uint32_t, 4) v4u;

V_INLINE v4 load4(const void *x, int64_t at, tri_dtype dtype)
{
  if (dtype == TRI_DTYPE_F32) {
    v4 r;
    memcpy(&r, (const float *)x + at, sizeof r);
    return r;
  }
  v4h r;
  memcpy(&r, (const tri_bf16 *)x + at, sizeof r);
  return (v4)(__builtin_convertvector(r, v4u) << 16);
}

V_INLINE float load1(const void *x, int64_t at, tri_dtype dtype)
{
  return dtype == TRI_DTYPE_F32 ? ((const float *)x)[at]
                                : tri_bf16_to_float(((const tri_bf16 *)x)[at]);
}

// The cache line of an element that will be read soon; it may lie outside the operand.
V_INLINE void prefetch(const void *x, int64_t at, tri_dtype dtype)
{
  __builtin_prefetch((const void *)((uintptr_t)x + (size_t)at * tri_dtype_size(dtype)));
}

// Elements that have no whole square: rows [r, end) and columns [j, k), zeros from `width` on.
V_INLINE void pack_rest(float *packed, tri_gemm_operand a, int64_t r, int64_t end, int64_t width,
                        int64_t j, int64_t k, const int panel, tri_dtype dtype)
{
  for (; j < k; j++)
    for (int64_t i = r; i < end; i++)
      packed[j * panel + i] = i < width ? load1(a.at, i * a.row + j * a.column, dtype) : 0.0f;
}

// Four rows and four columns, transposed in registers.
V_INLINE void pack_square(float *packed, tri_gemm_operand a, int64_t r, int64_t j, const int panel,
                          tri_dtype dtype)
{
  const v4 r0 = load4(a.at, r * a.row + j, dtype), r1 = load4(a.at, (r + 1) * a.row + j, dtype);
  const v4 r2 = load4(a.at, (r + 2) * a.row + j, dtype);
  const v4 r3 = load4(a.at, (r + 3) * a.row + j, dtype);
  const v4 low01 = __builtin_shuffle(r0, r1, (v4i){0, 4, 1, 5});
  const v4 low23 = __builtin_shuffle(r2, r3, (v4i){0, 4, 1, 5});
  const v4 high01 = __builtin_shuffle(r0, r1, (v4i){2, 6, 3, 7});
  const v4 high23 = __builtin_shuffle(r2, r3, (v4i){2, 6, 3, 7});
  const v4 columns[4] = {__builtin_shuffle(low01, low23, (v4i){0, 1, 4, 5}),
                         __builtin_shuffle(low01, low23, (v4i){2, 3, 6, 7}),
                         __builtin_shuffle(high01, high23, (v4i){0, 1, 4, 5}),
                         __builtin_shuffle(high01, high23, (v4i){2, 3, 6, 7})};
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++)
    memcpy(packed + (j + c) * panel + r, &columns[c], sizeof columns[c]);
}

// Rows are contiguous: a cache line of each, then the next line. The lines of one column may all
// fall into one set of the first-level cache, so each is used up at once.
V_INLINE void pack_rows(float *packed, tri_gemm_operand a, int64_t width, int64_t k,
                        const int panel, tri_dtype dtype)
{
  const int64_t whole = width < panel ? 0 : k / LINE * LINE;
  for (int64_t j = 0; j < whole; j += LINE)
    for (int64_t r = 0; r < panel; r += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++)
        prefetch(a.at, (r + i) * a.row + j + 2 * LINE, dtype);
#pragma GCC unroll 4
      for (int c = 0; c < LINE; c += 4)
        pack_square(packed, a, r, j + c, panel, dtype);
    }
  pack_rest(packed, a, 0, panel, width, whole, k, panel, dtype);
}

// Columns [j, j + n) of one panel, each contiguous.
V_INLINE void pack_columns(float *packed, tri_gemm_operand a, int64_t width, int64_t j, int64_t n,
                           const int panel, tri_dtype dtype)
{
  if (width < panel) {
    pack_rest(packed, a, 0, panel, width, j, j + n, panel, dtype);
    return;
  }
  for (int64_t c = j; c < j + n; c++) {
    prefetch(a.at, (c + n) * a.column, dtype);
#pragma GCC unroll 8
    for (int r = 0; r < panel; r += 4) {
      const v4 x = load4(a.at, c * a.column + r, dtype);
      memcpy(packed + c * panel + r, &x, sizeof x);
    }
  }
}

V_INLINE tri_gemm_operand from_row(tri_gemm_operand a, int64_t i, tri_dtype dtype)
{
  a.at = (const char *)a.at + (size_t)(i * a.row) * tri_dtype_size(dtype);
  return a;
}

// Where columns are contiguous, a few columns of all panels, then the next: what was read for one
// panel is still in the first-level cache for its neighbour.
V_INLINE void pack(float *packed, tri_gemm_operand a, int64_t width, int64_t k, const int panel,
                   tri_dtype dtype)
{
  if (a.column == 1) {
    for (int64_t i = 0; i < width; i += panel)
      pack_rows(packed + i * k, from_row(a, i, dtype), width - i, k, panel, dtype);
    return;
  }
  enum { COLUMNS = 16 };
  for (int64_t j = 0; j < k; j += COLUMNS)
    for (int64_t i = 0; i < width; i += panel)
      pack_columns(packed + i * k, from_row(a, i, dtype), width - i, j,
                   k - j < COLUMNS ? k - j : COLUMNS, panel, dtype);
}

static void pack_a(float *packed, tri_gemm_operand a, int64_t width, int64_t k)
{
  V_BY_DTYPE(a.dtype, pack, packed, a, width, k, MR);
}

static void pack_b(float *packed, tri_gemm_operand b, int64_t width, int64_t k)
{
  V_BY_DTYPE(b.dtype, pack, packed, b, width, k, NR);
}

// Four partial sums by k modulo 4, of four rows.
V_INLINE v4 sum_rows(const float *packed, int64_t k)
{
  v4 parts[4] = {{0}};
  int64_t j = 0;
  for (; j + 4 <= k; j += 4) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++)
      parts[part] += load4(packed, (j + part) * MR, TRI_DTYPE_F32);
  }
  for (; j < k; j++)
    parts[j % 4] += load4(packed, j * MR, TRI_DTYPE_F32);
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

static void sum_a(float *sums, const float *packed, int64_t width, int64_t k)
{
  for (int64_t i = 0; i < width; i += 4) {
    const v4 four = sum_rows(packed + i / MR * MR * k + i % MR, k);
    for (int64_t r = 0; r < 4 && i + r < width; r++)
      sums[i + r] += four[r];
  }
}

// --- the tile of C

V_INLINE void multiply_tile(float *c, int64_t ldc, const float *a, const float *b, int64_t k,
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
  for (int64_t j = 0; j < k; j++) {
    vf row[VECTORS];
#pragma GCC unroll 4
    for (int u = 0; u < VECTORS; u++)
      row[u] = v_get(b + u * W);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      const vf element = v_set(a[i]);
#pragma GCC unroll 4
      for (int u = 0; u < VECTORS; u++)
        sums[i][u] = v_fma(element, row[u], sums[i][u]);
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
                          int64_t n, int64_t k, const float *init, int64_t init_row)
{
  float tile[MR * NR] = {0};
  for (int64_t i = 0; i < m; i++)
    memcpy(tile + i * NR, init + i * init_row, (size_t)n * sizeof *tile);
  multiply_tile(tile, NR, a, b, k, tile, NR);
  for (int64_t i = 0; i < m; i++)
    memcpy(c + i * ldc, tile + i * NR, (size_t)n * sizeof *tile);
}

static void multiply(float *c, int64_t ldc, const float *a, const float *b, int64_t m, int64_t n,
                     int64_t k, const float *init, int64_t init_row)
{
  // While a panel of B is used for all of A, the next one comes from the last-level cache.
  const int64_t lines = NR * k / LINE, n_tiles = (m + MR - 1) / MR;
  const int64_t ahead = (lines + n_tiles - 1) / n_tiles;
  for (int64_t j = 0; j < n; j += NR) {
    const float *next = b + (j + NR) * k;
    for (int64_t i = 0; i < m; i += MR) {
      for (int64_t line = 0; line < ahead; line++, next += LINE)
        __builtin_prefetch(next, 0, 2);
      const float *from = init + i * init_row + j;
      if (m - i >= MR && n - j >= NR) {
        multiply_tile(c + i * ldc + j, ldc, a + i * k, b + j * k, k, from, init_row);
      } else {
        multiply_edge(c + i * ldc + j, ldc, a + i * k, b + j * k, m - i < MR ? m - i : MR,
                      n - j < NR ? n - j : NR, k, from, init_row);
      }
    }
  }
}

// --- finished rows

V_INLINE void finish_vector(void *out, void *gelu, const float *sums, const void *pre, int64_t j,
                            int64_t left, tri_dtype dtype)
{
  vf y = v_load(sums, j, left, TRI_DTYPE_F32);
  if (pre != NULL) y *= v_gelu_derivative(v_load(pre, j, left, dtype));
  if (dtype == TRI_DTYPE_BF16 || pre != NULL) v_store(out, j, left, dtype, y);
  if (gelu == NULL) return;
  if (dtype == TRI_DTYPE_BF16) y = v_from_bf16(v_to_bf16(y));
  v_store(gelu, j, left, dtype, v_gelu(y));
}

V_INLINE void finish_row(void *out, void *gelu, const float *sums, const void *pre, int64_t n,
                         tri_dtype dtype)
{
  int64_t j = 0;
  for (; j + W <= n; j += W)
    finish_vector(out, gelu, sums, pre, j, W, dtype);
  if (j < n) finish_vector(out, gelu, sums, pre, j, n - j, dtype);
}

// A loop of its own for each of what a layer asks for.
static void finish(void *out, void *gelu, const float *sums, const void *pre, int64_t n,
                   tri_dtype dtype)
{
  if (pre != NULL) {
    V_BY_DTYPE(dtype, finish_row, out, NULL, sums, pre, n);
  } else if (gelu != NULL) {
    V_BY_DTYPE(dtype, finish_row, out, gelu, sums, NULL, n);
  } else {
    V_BY_DTYPE(dtype, finish_row, out, NULL, sums, NULL, n);
  }
}

const tri_gemm_kernels TRI_ISA(tri_gemm_kernels) = {.panel_rows = MR,
                                                    .panel_columns = NR,
                                                    .k_block = K_BLOCK,
                                                    .m_block = M_BLOCK,
                                                    .pack_a = pack_a,
                                                    .pack_b = pack_b,
                                                    .sum_a = sum_a,
                                                    .multiply = multiply,
                                                    .finish = finish};
