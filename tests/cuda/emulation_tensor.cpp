// Tensor-core collectives from the fragment tables of the PTX ISA (section "Matrix Fragments for
// mma.m16n8k16 with floating point type", and ldmatrix), and the queues of cp.async.
#include "cuda/emulation_internal.h"

#include <deque>

// --- mma.m16n8k16: with g = lane / 4 and t = lane % 4, element i of a lane's fragment is
//       A (16, 16): row g + 8 for i in {2, 3, 6, 7}, else g; column 2t + (i & 1) + 8 for i >= 4
//       B (16, 8):  row 2t + (i & 1) + 8 for i >= 2; column g
//       C, D (16, 8): row g + 8 for i >= 2; column 2t + (i & 1)

static float number_of(enum emu_collective_kind kind, uint16_t bits)
{
  if (kind == EMU_MMA_BF16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
  __half_raw raw;
  raw.x = bits;
  return __half2float(__half(raw));
}

static uint16_t half_word(const uint32_t *words, int i)
{
  return static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)));
}

// The device rounds the sum of the 16 products in a way of its own; plain f32 sums, k ascending,
// are within the tolerance any caller must grant.
void emu_combine_mma(struct emu_meeting *meeting)
{
  float A[16][16], B[16][8], C[16][8];
  for (int lane = 0; lane < EMU_WARP; lane++) {
    const int g = lane / 4, t = lane % 4;
    const emu_mma_operands *o = &meeting->operands[lane];
    for (int i = 0; i < 8; i++)
      A[g + 8 * (i / 2 % 2)][2 * t + i % 2 + 8 * (i / 4)] =
          number_of(meeting->kind, half_word(o->a, i));
    for (int i = 0; i < 4; i++)
      B[2 * t + i % 2 + 8 * (i / 2)][g] = number_of(meeting->kind, half_word(o->b, i));
    for (int i = 0; i < 4; i++)
      C[g + 8 * (i / 2)][2 * t + i % 2] = o->c[i];
  }
  for (int m = 0; m < 16; m++)
    for (int k = 0; k < 16; k++)
      for (int n = 0; n < 8; n++)
        C[m][n] += A[m][k] * B[k][n];
  for (int lane = 0; lane < EMU_WARP; lane++) {
    const int g = lane / 4, t = lane % 4;
    float d[4];
    for (int i = 0; i < 4; i++)
      d[i] = C[g + 8 * (i / 2)][2 * t + i % 2];
    memcpy(meeting->lanes[lane]->result, d, sizeof d);
  }
  emu_counted.mmas++;
}

// --- ldmatrix: lane 8m + r brings the address of row r of matrix m. Lane l receives row l / 4,
//     columns 2 (l % 4) and + 1; transposed, rows 2 (l % 4) and + 1 of column l / 4.

static void count_conflicts(const uint64_t *rows, int n_matrices)
{
  for (int m = 0; m < n_matrices; m++) {
    unsigned banks = 0; // of 16 bytes
    for (int r = 0; r < 8; r++) {
      const unsigned bank = 1u << (rows[8 * m + r] / 16 % 8);
      if ((banks & bank) != 0) emu_counted.ldmatrix_conflicts++;
      banks |= bank;
    }
  }
}

void emu_combine_ldmatrix(struct emu_meeting *meeting)
{
  const bool four = meeting->kind == EMU_LDMATRIX_X4 || meeting->kind == EMU_LDMATRIX_X4_TRANS;
  const bool transposed =
      meeting->kind == EMU_LDMATRIX_X2_TRANS || meeting->kind == EMU_LDMATRIX_X4_TRANS;
  const int n_matrices = four ? 4 : 2;
  count_conflicts(meeting->values, n_matrices);
  for (int lane = 0; lane < EMU_WARP; lane++) {
    uint64_t rows[8] = {0}; // of the first number, and (transposed) of the second
    for (int m = 0; m < n_matrices; m++) {
      const uint64_t *matrix = &meeting->values[8 * m];
      rows[m] = matrix[transposed ? 2 * (lane % 4) : lane / 4];
      rows[4 + m] = matrix[transposed ? 2 * (lane % 4) + 1 : lane / 4];
    }
    memcpy(meeting->lanes[lane]->result, rows, sizeof rows);
  }
  emu_counted.ldmatrices++;
}

// --- cp.async: each thread's copies in the order it asked for them

struct emu_pending_copy {
  struct emu_copy copy;
  int64_t group;
};

struct emu_copy_queue {
  std::deque<emu_pending_copy> pending;
  int64_t n_committed = 0;
};

static emu_copy_queue *copies_of_current(void)
{
  emu_fiber *me = static_cast<emu_fiber *>(emu_current);
  if (me->copies == nullptr) me->copies = new emu_copy_queue();
  return me->copies;
}

extern "C" void emu_copy_push(struct emu_copy copy)
{
  emu_copy_queue *queue = copies_of_current();
  queue->pending.push_back(emu_pending_copy{copy, queue->n_committed});
}

extern "C" void emu_copy_commit(void)
{
  copies_of_current()->n_committed++;
}

// The next copy that must be done so that at most n_in_flight committed groups are still out.
extern "C" bool emu_copy_pop(int n_in_flight, struct emu_copy *out)
{
  emu_copy_queue *queue = copies_of_current();
  if (queue->pending.empty()) return false;
  if (queue->pending.front().group >= queue->n_committed - n_in_flight) return false;
  *out = queue->pending.front().copy;
  queue->pending.pop_front();
  return true;
}

void emu_copies_drop(emu_fiber *fiber)
{
  if (fiber->copies == nullptr) return;
  fiber->copies->pending.clear();
  fiber->copies->n_committed = 0;
}
