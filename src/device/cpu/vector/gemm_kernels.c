// The inner parts of a matrix product: packing, the tile of C in registers, GELU on finished rows.
//
// The tile is MR rows of two vectors. A fused multiply-add has a latency of 4 cycles and two begin
// in each, so 8 sums must be on their way: 12 of them, two vectors of B and one element of A spread
// over a vector fill the 16 registers of AVX2; AVX-512 has 32.
#include "device/cpu/gemm.h"
#include "device/cpu/vector/gelu.h"
#include "device/cpu/vector/vector.h"

#if W == 16
enum { MR = 12, NR = 2 * W, K_BLOCK = 192, M_BLOCK = 240 };
#else
enum { MR = 6, NR = 2 * W, K_BLOCK = 256, M_BLOCK = 144 };
#endif

// --- packing

// The `count` first floats of a vector, count <= W.
V_INLINE void put_some(float *x, vf value, int count)
{
  memcpy(x, &value, (size_t)count * sizeof *x);
}

// Rows are contiguous (column == 1): W columns of W rows are transposed in registers.
V_INLINE void pack_rows(float *packed, tri_gemm_operand a, int64_t width, int64_t k,
                        const int panel, tri_dtype dtype)
{
  for (int64_t j = 0; j < k; j += W) {
    const int n = k - j < W ? (int)(k - j) : W;
#pragma GCC unroll 4
    for (int first = 0; first < panel; first += W) {
      vf rows[W];
#pragma GCC unroll 16
      for (int r = 0; r < W; r++)
        rows[r] =
            first + r < width ? v_load(a.at, (first + r) * a.row + j, k - j, dtype) : v_set(0.0f);
      v_transpose(rows);
      const int some = panel - first < W ? panel - first : W;
      if (n == W) {
#pragma GCC unroll 16
        for (int c = 0; c < W; c++)
          put_some(packed + (j + c) * panel + first, rows[c], some);
      } else {
        for (int c = 0; c < n; c++)
          put_some(packed + (j + c) * panel + first, rows[c], some);
      }
    }
  }
}

// Columns are contiguous (row == 1): copied. What lies beyond the panel but inside the operand may
// be read and is not stored.
V_INLINE void pack_columns(float *packed, tri_gemm_operand a, int64_t width, int64_t k,
                           int64_t left, const int panel, tri_dtype dtype)
{
  const bool whole = left >= (panel + W - 1) / W * W;
  for (int64_t j = 0; j < k; j++) {
#pragma GCC unroll 4
    for (int first = 0; first < panel; first += W) {
      const int some = panel - first < W ? panel - first : W;
      const vf x = v_load(a.at, j * a.column + first, whole ? W : width - first, dtype);
      put_some(packed + j * panel + first, x, some);
    }
  }
}

V_INLINE void pack(float *packed, tri_gemm_operand a, int64_t width, int64_t k, int64_t left,
                   const int panel, tri_dtype dtype)
{
  if (a.column == 1) {
    pack_rows(packed, a, width, k, panel, dtype);
  } else {
    pack_columns(packed, a, width, k, left, panel, dtype);
  }
}

static void pack_a(float *packed, tri_gemm_operand a, int64_t width, int64_t k, int64_t left)
{
  V_BY_DTYPE(a.dtype, pack, packed, a, width, k, left, MR);
}

static void pack_b(float *packed, tri_gemm_operand b, int64_t width, int64_t k, int64_t left)
{
  V_BY_DTYPE(b.dtype, pack, packed, b, width, k, left, NR);
}

// Four partial sums by k modulo 4.
static void sum_a(float *sums, const float *packed, int64_t width, int64_t k)
{
  float parts[4][MR] = {{0}};
  for (int64_t j = 0; j < k; j++)
    for (int r = 0; r < MR; r++)
      parts[j % 4][r] += packed[j * MR + r];
  for (int64_t r = 0; r < width; r++)
    sums[r] += (parts[0][r] + parts[1][r]) + (parts[2][r] + parts[3][r]);
}

// --- the tile of C

V_INLINE void multiply_tile(float *c, int64_t ldc, const float *a, const float *b, int64_t k,
                            const float *init, int64_t init_row)
{
  vf sums[MR][2];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
    sums[i][0] = sums[i][1] = v_set(0.0f);
    __builtin_prefetch(init + i * init_row);
    __builtin_prefetch(init + i * init_row + NR - 1);
  }
#pragma GCC unroll 4
  for (int64_t j = 0; j < k; j++) {
    const vf b0 = v_get(b), b1 = v_get(b + W);
    __builtin_prefetch(a + 16 * MR);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      const vf element = v_set(a[i]);
      sums[i][0] = v_fma(element, b0, sums[i][0]);
      sums[i][1] = v_fma(element, b1, sums[i][1]);
    }
    a += MR;
    b += NR;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
    v_put(c + i * ldc, sums[i][0] + v_get(init + i * init_row));
    v_put(c + i * ldc + W, sums[i][1] + v_get(init + i * init_row + W));
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
  for (int64_t j = 0; j < n; j += NR)
    for (int64_t i = 0; i < m; i += MR) {
      const float *from = init + i * init_row + j;
      if (m - i >= MR && n - j >= NR) {
        multiply_tile(c + i * ldc + j, ldc, a + i * k, b + j * k, k, from, init_row);
      } else {
        multiply_edge(c + i * ldc + j, ldc, a + i * k, b + j * k, m - i < MR ? m - i : MR,
                      n - j < NR ? n - j : NR, k, from, init_row);
      }
    }
}

// --- finished rows

V_INLINE void finish_row(void *out, void *gelu, const float *sums, const void *pre, int64_t n,
                         tri_dtype dtype)
{
  for (int64_t j = 0; j < n; j += W) {
    vf y = v_load(sums, j, n - j, TRI_DTYPE_F32);
    if (pre != NULL) y *= v_gelu_derivative(v_load(pre, j, n - j, dtype));
    if (dtype == TRI_DTYPE_BF16 || pre != NULL) v_store(out, j, n - j, dtype, y);
    if (gelu == NULL) continue;
    if (dtype == TRI_DTYPE_BF16) y = v_from_bf16(v_to_bf16(y));
    v_store(gelu, j, n - j, dtype, v_gelu(y));
  }
}

static void finish(void *out, void *gelu, const float *sums, const void *pre, int64_t n,
                   tri_dtype dtype)
{
  V_BY_DTYPE(dtype, finish_row, out, gelu, sums, pre, n);
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
