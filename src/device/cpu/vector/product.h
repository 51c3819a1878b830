// Products of small matrices that lie in the first- and second-level cache, and how tiles are
// packed for them. Private to this folder.
//
// C (m, NR) = A (m, n) B (n, NR): rows of B are two vectors, elements of A are spread over a
// vector, MR rows of C stay in registers. With fused multiply-adds of latency 4, two each cycle, at
// least 8 accumulators are needed; MR * 2 = 12 of them, 2 rows of B and one element of A fill the
// 16 registers of AVX2.
#pragma once

#include "device/cpu/vector/vector.h"

enum { MR = 6, NR = 2 * W };

// A matrix whose element (i, j) is at[i * row + j * column].
typedef struct strided {
  const float *at;
  int64_t row, column;
} strided;

// What becomes of C: replaced; added to; multiplied by a factor for each column, then added to.
typedef enum product_mode { PRODUCT_WRITE, PRODUCT_ADD, PRODUCT_SCALE_ADD } product_mode;

// Which columns j of A in row i are not known to be 0: all; those j <= i; those j >= i.
typedef enum product_shape { PRODUCT_FULL, PRODUCT_LOWER, PRODUCT_UPPER } product_shape;

V_INLINE void product_rows(int m, float *c, int64_t ldc, strided a, const float *b, int64_t ldb,
                           int64_t first, int64_t end, product_mode mode, const float *factor)
{
  vf sums[MR][2];
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 2
    for (int u = 0; u < 2; u++) {
      sums[i][u] = mode == PRODUCT_WRITE ? v_set(0.0f) : v_get(c + i * ldc + u * W);
      if (mode == PRODUCT_SCALE_ADD) sums[i][u] *= v_get(factor + u * W);
    }
  }
  for (int64_t j = first; j < end; j++) {
    const vf b0 = v_get(b + j * ldb), b1 = v_get(b + j * ldb + W);
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      const vf element = v_set(a.at[i * a.row + j * a.column]);
      sums[i][0] = v_fma(element, b0, sums[i][0]);
      sums[i][1] = v_fma(element, b1, sums[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) {
    v_put(c + i * ldc, sums[i][0]);
    v_put(c + i * ldc + W, sums[i][1]);
  }
}

// Rows [0, m) of one panel of C. `factor`: NR numbers, for PRODUCT_SCALE_ADD.
V_CALLED void product_panel(float *c, int64_t ldc, strided a, const float *b, int64_t ldb,
                            int64_t m, int64_t n, product_mode mode, product_shape shape,
                            const float *factor)
{
  for (int64_t i = 0; i < m; i += MR) {
    const int64_t first = shape == PRODUCT_UPPER ? i : 0;
    const int64_t end = shape == PRODUCT_LOWER && i + MR < n ? i + MR : n;
    const strided rows = {a.at + i * a.row, a.row, a.column};
    float *out = c + i * ldc;
    switch (m - i) {
    case 1: product_rows(1, out, ldc, rows, b, ldb, first, end, mode, factor); break;
    case 2: product_rows(2, out, ldc, rows, b, ldb, first, end, mode, factor); break;
    case 3: product_rows(3, out, ldc, rows, b, ldb, first, end, mode, factor); break;
    case 4: product_rows(4, out, ldc, rows, b, ldb, first, end, mode, factor); break;
    case 5: product_rows(5, out, ldc, rows, b, ldb, first, end, mode, factor); break;
    default: product_rows(MR, out, ldc, rows, b, ldb, first, end, mode, factor);
    }
  }
}

// --- tiles in f32. Rows of the arrays outside begin `stride` elements apart, the first at `at`.

// out (n, ld) = factor * rows of D elements, 0 up to ld (a multiple of W).
V_INLINE void pack_rows_as(float *out, int64_t ld, const void *x, int64_t at, int64_t stride,
                           int64_t n, int64_t D, float factor, tri_dtype dtype)
{
  for (int64_t i = 0; i < n; i++) {
    for (int64_t d = 0; d < ld; d += W)
      v_put(out + i * ld + d, v_load(x, at + i * stride + d, D - d, dtype) * factor);
  }
}

V_CALLED void pack_rows(float *out, int64_t ld, const void *x, int64_t at, int64_t stride,
                        int64_t n, int64_t D, float factor, tri_dtype dtype)
{
  V_BY_DTYPE(dtype, pack_rows_as, out, ld, x, at, stride, n, D, factor);
}

// out (D, ld) = factor * the transpose of n rows of D elements, 0 from column n up to ld (a
// multiple of W).
V_INLINE void pack_columns_as(float *out, int64_t ld, const void *x, int64_t at, int64_t stride,
                              int64_t n, int64_t D, float factor, tri_dtype dtype)
{
  for (int64_t i = 0; i < ld; i += W) {
    for (int64_t d = 0; d < D; d += W) {
      vf rows[W];
#pragma GCC unroll 16
      for (int r = 0; r < W; r++) {
        const int64_t left = i + r < n ? D - d : 0;
        rows[r] = v_load(x, at + (i + r) * stride + d, left, dtype) * factor;
      }
      v_transpose(rows);
#pragma GCC unroll 16
      for (int r = 0; r < W; r++) {
        if (d + r < D) v_put(out + (d + r) * ld + i, rows[r]);
      }
    }
  }
}

V_CALLED void pack_columns(float *out, int64_t ld, const void *x, int64_t at, int64_t stride,
                           int64_t n, int64_t D, float factor, tri_dtype dtype)
{
  V_BY_DTYPE(dtype, pack_columns_as, out, ld, x, at, stride, n, D, factor);
}

// n rows of D elements outside = factor * x (n, ld).
V_INLINE void unpack_rows_as(void *out, int64_t at, int64_t stride, const float *x, int64_t ld,
                             int64_t n, int64_t D, float factor, tri_dtype dtype)
{
  for (int64_t i = 0; i < n; i++) {
    for (int64_t d = 0; d < D; d += W)
      v_store(out, at + i * stride + d, D - d, dtype, v_get(x + i * ld + d) * factor);
  }
}

V_CALLED void unpack_rows(void *out, int64_t at, int64_t stride, const float *x, int64_t ld,
                          int64_t n, int64_t D, float factor, tri_dtype dtype)
{
  V_BY_DTYPE(dtype, unpack_rows_as, out, at, stride, x, ld, n, D, factor);
}
