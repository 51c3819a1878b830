// Matrix products of the CPU backend: C = A B with what a linear layer does to C on the way.
// Private to src/device.
//
// The scheme is that of Goto and van de Geijn (Anatomy of high-performance matrix multiplication,
// ACM TOMS 34, 2008): blocks of A and B are copied ("packed") into panels in the order in which
// they will be read, and a kernel that keeps a tile of C in registers runs over them.
//
// An element of C is the sum over k of A[i, k] B[k, j]: blocks of the summed dimension, whose size
// depends on K alone, are summed one after another in f32, inside a block in the order of k. So
// its bits depend neither on the number of threads, nor on how rows and columns are shared out,
// nor on M and N.
#pragma once

#include <stdbool.h>

#include "device/cpu/cpu.h"

// Element (i, j) is at[i * row + j * column]; row or column is 1.
typedef struct tri_gemm_operand {
  const void *at;
  int64_t row, column;
  tri_dtype dtype; // f32 or bf16, which is widened when packed
} tri_gemm_operand;

typedef struct tri_gemm {
  int64_t M, N, K; // each > 0
  tri_gemm_operand a, b;
  void *c; // (M, N), row-major
  tri_dtype c_dtype;
  bool add;         // c += A B, f32 only
  const void *bias; // NULL, or (N) in c_dtype: added to every row
  void *gelu;       // NULL, or (M, N) in c_dtype: GELU(c) of the stored c
  const void *pre;  // NULL, or (M, N) in c_dtype: c is multiplied by GELU'(pre); not with gelu
  float *a_sums;    // NULL, or (M): adds the sums of the rows of A
} tri_gemm;

// The parts that exist once for each instruction set and kind of slot. A slot is the four bytes
// that lie beside each other in a packed panel: one f32, or two bf16 of the summed dimension.
typedef struct tri_gemm_kernels {
  int panel_rows, panel_columns; // of the tile of C in registers: panels of A and B are so wide
  int per_slot;                  // elements in a slot: 1, or 2: both operands are bf16
  int64_t depth;                 // slots of a panel of B that stay in the first-level cache
  int64_t m_block;               // rows of packed A that stay in the second-level cache

  // Packs rows [0, width) and columns [0, k) of an operand into panels one after another: slot s
  // of row r of a panel to s * panel width + r, zeros where the last panel has no row and the last
  // slot no element.
  void (*pack_a)(float *packed, tri_gemm_operand a, int64_t width, int64_t k);
  void (*pack_b)(float *packed, tri_gemm_operand b, int64_t width, int64_t k);

  // sums[r] += the sum of row r of packed A, r < width.
  void (*sum_a)(float *sums, const float *packed, int64_t width, int64_t depth);

  // c (m, n) = A B + init, from panels of A and of B, each `depth` slots long. Row i of init is at
  // init + i * init_row; it may be c.
  void (*multiply)(float *c, int64_t ldc, const float *a, const float *b, int64_t m, int64_t n,
                   int64_t depth, const float *init, int64_t init_row);

  // What is left to do with one row of n finished sums: out = sums * GELU'(pre) rounded to dtype,
  // gelu = GELU(out). out may be sums.
  void (*finish)(void *out, void *gelu, const float *sums, const void *pre, int64_t n,
                 tri_dtype dtype);
} tri_gemm_kernels;

extern const tri_gemm_kernels tri_gemm_f32_baseline, tri_gemm_f32_avx2, tri_gemm_f32_avx512;
extern const tri_gemm_kernels tri_gemm_bf16_avx512_bf16;

// Floats of scratch that a product of this size needs on n_threads threads.
size_t tri_gemm_scratch_floats(const tri_gemm_kernels *kernels, const tri_gemm *gemm,
                               int n_threads);

// Runs the product on n_threads threads. `scratch` is aligned to 64 bytes.
void tri_gemm_run(const tri_gemm_kernels *kernels, const tri_gemm *gemm, int n_threads,
                  float *scratch);
