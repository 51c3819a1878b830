#include "device/cpu/gemm.h"

#include <string.h>

// The part of a product for which threads meet twice, after packing and after multiplying: rows of
// A, columns of B, and floats of both packed (12 MiB, to stay in last-level caches). One part is
// most of a layer of usual width; larger ones are cut where packing again costs a thousandth. A
// single thread waits for nobody: it packs one block of the summed dimension at a time, into less
// memory.
enum { MACRO_ROWS = 3072, MACRO_COLUMNS = 3072, PACKED_FLOATS = 3 << 20 };
// Columns of C that one thread multiplies, and rows of A or columns of B that it packs, at a time.
enum { TASK_COLUMNS = 384, PACK_WIDTH = 96, TASKS_PER_THREAD = 4 };
// Products of fewer multiplications are done before other threads wake.
static const int64_t SMALL_PRODUCT = 1 << 18;

static int64_t min64(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t ceil_div(int64_t n, int64_t size)
{
  return (n + size - 1) / size;
}

// The size of equal parts of n, each at most `limit` and a multiple of `unit`.
static int64_t part_size(int64_t n, int64_t limit, int64_t unit)
{
  const int64_t part = ceil_div(n, ceil_div(n, limit));
  return ceil_div(part, unit) * unit;
}

// How a product is cut, and where its packed parts lie.
typedef struct plan {
  const tri_gemm_kernels *kernels;
  const tri_gemm *gemm;
  int64_t macro_rows, macro_columns, macro_length; // of a part: of C and of the summed dimension
  int64_t k_block;                                 // what is summed in registers at a time
  int64_t task_rows, task_columns;                 // what a thread multiplies at a time
  int64_t a_width, b_width;                        // of what is packed at a time
  size_t a_floats, b_floats, c_floats, bias_floats;
  float *a, *b;      // packed
  float *c;          // sums of one macro block where C itself is not f32
  const float *bias; // N floats, zeros where there is none
  int64_t bias_step; // 1, or 0: the same zeros for all columns
} plan;

// Room for what vectors read beyond the end of the last panel.
static size_t padded(int64_t floats)
{
  return (size_t)ceil_div(floats, 16) * 16 + 64;
}

// Slots that hold `length` elements of the summed dimension.
static int64_t depth_of(const plan *p, int64_t length)
{
  return ceil_div(length, p->kernels->per_slot);
}

static plan make_plan(const tri_gemm_kernels *kernels, const tri_gemm *gemm, int n_threads)
{
  plan p = {.kernels = kernels, .gemm = gemm};
  p.macro_rows = part_size(gemm->M, MACRO_ROWS, kernels->panel_rows);
  p.macro_columns = part_size(gemm->N, MACRO_COLUMNS, kernels->panel_columns);
  p.k_block = part_size(gemm->K, kernels->depth * kernels->per_slot, 16);
  const int64_t block_floats = (p.macro_rows + p.macro_columns) * depth_of(&p, p.k_block);
  const int64_t n_blocks =
      n_threads == 1 ? 1 : min64(ceil_div(gemm->K, p.k_block), PACKED_FLOATS / block_floats);
  p.macro_length = p.k_block * (n_blocks > 0 ? n_blocks : 1);
  p.task_rows = part_size(p.macro_rows, kernels->m_block, kernels->panel_rows);
  p.task_columns = part_size(p.macro_columns, TASK_COLUMNS, kernels->panel_columns);
  p.a_width = PACK_WIDTH / kernels->panel_rows * kernels->panel_rows;
  p.b_width = PACK_WIDTH / kernels->panel_columns * kernels->panel_columns;
  p.a_floats = padded(p.macro_rows * depth_of(&p, p.macro_length));
  p.b_floats = padded(p.macro_columns * depth_of(&p, p.macro_length));
  p.c_floats = gemm->c_dtype == TRI_DTYPE_F32 ? 0 : padded(p.macro_rows * p.macro_columns);
  // With and without a bias alike, so that what is planned for one serves the other.
  p.bias_floats = padded(gemm->N > p.macro_columns ? gemm->N : p.macro_columns);
  return p;
}

size_t tri_gemm_scratch_floats(const tri_gemm_kernels *kernels, const tri_gemm *gemm, int n_threads)
{
  const plan p = make_plan(kernels, gemm, n_threads);
  return p.a_floats + p.b_floats + p.c_floats + p.bias_floats;
}

static void place(plan *p, float *scratch)
{
  const tri_gemm *gemm = p->gemm;
  p->a = scratch;
  p->b = p->a + p->a_floats;
  p->c = p->b + p->b_floats;
  float *bias = p->c + p->c_floats;
  p->bias = bias;
  p->bias_step = gemm->bias == NULL ? 0 : 1;
  if (gemm->bias == NULL) {
    memset(bias, 0, p->bias_floats * sizeof *bias);
  } else if (gemm->c_dtype == TRI_DTYPE_F32) {
    p->bias = gemm->bias;
  } else {
    for (int64_t j = 0; j < gemm->N; j++)
      bias[j] = tri_bf16_to_float(((const tri_bf16 *)gemm->bias)[j]);
  }
}

// A part of a product.
typedef struct part {
  int64_t i, j, k;                   // where it begins
  int64_t n_rows, n_columns, length; // how far it goes
} part;

// A block of the summed dimension, a k_block or what is left.
typedef struct block {
  int64_t k, length;
  int64_t depth;        // slots it takes in a panel
  int64_t slots_before; // of the part
} block;

static block block_at(const plan *p, const part *at, int64_t k)
{
  const int64_t length = min64(p->k_block, at->k + at->length - k);
  return (block){.k = k,
                 .length = length,
                 .depth = depth_of(p, length),
                 .slots_before = depth_of(p, k - at->k)};
}

static tri_gemm_operand moved(tri_gemm_operand operand, int64_t i, int64_t j)
{
  const size_t offset = (size_t)(i * operand.row + j * operand.column);
  operand.at = (const char *)operand.at + offset * tri_dtype_size(operand.dtype);
  return operand;
}

// Panels of a block lie side by side, blocks one after another.
static float *packed_a(const plan *p, const block *of, int64_t row)
{
  return p->a + of->slots_before * p->macro_rows + row * of->depth;
}

static float *packed_b(const plan *p, const block *of, int64_t column)
{
  return p->b + of->slots_before * p->macro_columns + column * of->depth;
}

// Rows of A, a multiple of its panels' width. Sums of rows are taken block after block.
static void pack_a(const plan *p, const part *at, int64_t first, int64_t width)
{
  const tri_gemm *gemm = p->gemm;
  const int64_t i = at->i + first;
  for (int64_t k = at->k; k < at->k + at->length; k += p->k_block) {
    const block of = block_at(p, at, k);
    float *packed = packed_a(p, &of, first);
    p->kernels->pack_a(packed, moved(gemm->a, i, k), width, of.length);
    if (gemm->a_sums != NULL && at->j == 0)
      p->kernels->sum_a(gemm->a_sums + i, packed, width, of.depth);
  }
}

// Columns of B, packed as rows of its transpose.
static void pack_b(const plan *p, const part *at, int64_t first, int64_t width)
{
  for (int64_t k = at->k; k < at->k + at->length; k += p->k_block) {
    const block of = block_at(p, at, k);
    const tri_gemm_operand b = moved(p->gemm->b, k, at->j + first);
    const tri_gemm_operand transpose = {b.at, b.column, b.row, b.dtype};
    p->kernels->pack_b(packed_b(p, &of, first), transpose, width, of.length);
  }
}

static void finish_task(const plan *p, const part *at, const float *c, int64_t ldc, int64_t i,
                        int64_t j, int64_t m, int64_t n)
{
  const tri_gemm *gemm = p->gemm;
  const size_t size = tri_dtype_size(gemm->c_dtype);
  for (int64_t r = 0; r < m; r++) {
    const size_t offset = (size_t)((at->i + i + r) * gemm->N + at->j + j) * size;
    p->kernels->finish(
        (char *)gemm->c + offset, gemm->gelu == NULL ? NULL : (char *)gemm->gelu + offset,
        c + r * ldc, gemm->pre == NULL ? NULL : (const char *)gemm->pre + offset, n, gemm->c_dtype);
  }
}

static void run_task(const plan *p, const part *at, int64_t task)
{
  const tri_gemm *gemm = p->gemm;
  const bool is_f32 = gemm->c_dtype == TRI_DTYPE_F32;
  const int64_t n_across = ceil_div(at->n_columns, p->task_columns);
  const int64_t i = task / n_across * p->task_rows, j = task % n_across * p->task_columns;
  const int64_t m = min64(p->task_rows, at->n_rows - i);
  const int64_t n = min64(p->task_columns, at->n_columns - j);

  const int64_t ldc = is_f32 ? gemm->N : p->macro_columns;
  float *c = is_f32 ? (float *)gemm->c + (at->i + i) * ldc + at->j + j : p->c + i * ldc + j;
  for (int64_t k = at->k; k < at->k + at->length; k += p->k_block) {
    const block of = block_at(p, at, k);
    const bool from_c = k > 0 || gemm->add;
    const float *init = from_c ? c : p->bias + (at->j + j) * p->bias_step;
    p->kernels->multiply(c, ldc, packed_a(p, &of, i), packed_b(p, &of, j), m, n, of.depth, init,
                         from_c ? ldc : 0);
  }
  const bool is_last = at->k + at->length == gemm->K;
  if (is_last && (!is_f32 || gemm->gelu != NULL || gemm->pre != NULL))
    finish_task(p, at, c, ldc, i, j, m, n);
}

static int64_t n_tasks_of(const plan *p, int64_t n_rows, int64_t n_columns)
{
  return ceil_div(n_rows, p->task_rows) * ceil_div(n_columns, p->task_columns);
}

// All threads: pack, meet, multiply, meet.
static void run_part(const plan *p, const part *at)
{
  const int64_t n_a = ceil_div(at->n_rows, p->a_width);
  const int64_t n_b = ceil_div(at->n_columns, p->b_width);
#pragma omp for schedule(dynamic)
  for (int64_t strip = 0; strip < n_a + n_b; strip++) {
    if (strip < n_a) {
      const int64_t first = strip * p->a_width;
      pack_a(p, at, first, min64(p->a_width, at->n_rows - first));
    } else {
      const int64_t first = (strip - n_a) * p->b_width;
      pack_b(p, at, first, min64(p->b_width, at->n_columns - first));
    }
  }
  const int64_t n_tasks = n_tasks_of(p, at->n_rows, at->n_columns);
#pragma omp for schedule(dynamic)
  for (int64_t task = 0; task < n_tasks; task++)
    run_task(p, at, task);
}

// Smaller tasks, until each thread has a few: large ones use the caches best, but the last to end
// keeps the others waiting. No sum is cut, so this moves no bit.
static void cut_for_threads(plan *p, int n_threads)
{
  const int panel_rows = p->kernels->panel_rows, panel_columns = p->kernels->panel_columns;
  const int64_t wanted = n_threads == 1 ? 1 : TASKS_PER_THREAD * (int64_t)n_threads;
  while (n_tasks_of(p, p->macro_rows, p->macro_columns) < wanted) {
    if (p->task_columns > 4 * panel_columns) {
      p->task_columns = part_size(p->task_columns, p->task_columns / 2, panel_columns);
    } else if (p->task_rows > 8 * panel_rows) {
      p->task_rows = part_size(p->task_rows, p->task_rows / 2, panel_rows);
    } else {
      return;
    }
  }
}

void tri_gemm_run(const tri_gemm_kernels *kernels, const tri_gemm *gemm, int n_threads,
                  float *scratch)
{
  if (gemm->M * gemm->N < SMALL_PRODUCT / gemm->K) n_threads = 1;
  plan p = make_plan(kernels, gemm, n_threads);
  cut_for_threads(&p, n_threads);
  place(&p, scratch);
#pragma omp parallel num_threads(n_threads)
  for (int64_t j = 0; j < gemm->N; j += p.macro_columns)
    for (int64_t i = 0; i < gemm->M; i += p.macro_rows)
      for (int64_t k = 0; k < gemm->K; k += p.macro_length) {
        const part at = {.i = i,
                         .j = j,
                         .k = k,
                         .n_rows = min64(p.macro_rows, gemm->M - i),
                         .n_columns = min64(p.macro_columns, gemm->N - j),
                         .length = min64(p.macro_length, gemm->K - k)};
        run_part(&p, &at);
      }
}
