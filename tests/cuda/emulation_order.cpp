// Which of the runnable threads of a block goes next: see emu_set_order.
//
// Orders 0 and 1 keep the runnable threads in a queue and take the first or the last. Order 3 keeps
// a bit for each lane of each warp; bits of a warp stand at a random permutation of its lanes (lane
// xor `flip`), warps at a random rank, so that the next thread is two count-trailing-zeros away.
#include "cuda/emulation_internal.h"

#include <cstdlib>

static int order = -1; // not chosen yet
static uint64_t random_state = 1;

static emu_fiber *queue[EMU_MAX_THREADS];
static unsigned queue_head, queue_tail; // taken modulo the size

static unsigned ready_ranks, ready_lanes[EMU_MAX_WARPS];
static int rank_of_warp[EMU_MAX_WARPS], warp_of_rank[EMU_MAX_WARPS], flip[EMU_MAX_WARPS];

static uint64_t number_from_environment(const char *name, uint64_t otherwise)
{
  const char *text = getenv(name);
  if (text == nullptr || text[0] == '\0') return otherwise;
  char *end = nullptr;
  const uint64_t number = strtoull(text, &end, 10);
  if (*end != '\0') emu_fail(emu_site{__FILE__, __LINE__}, "%s=%s: not a number", name, text);
  return number;
}

extern "C" void emu_set_order(int wanted, uint64_t seed)
{
  if (wanted != 0 && wanted != 1 && wanted != 3)
    emu_fail(emu_site{__FILE__, __LINE__}, "order %d of threads: there are 0, 1 and 3", wanted);
  order = wanted;
  random_state = 0x9e3779b97f4a7c15u * (seed + 1); // seeds differ in few bits, states in many
  if (random_state == 0) random_state = 1;
}

int emu_order(void)
{
  if (order < 0)
    emu_set_order(static_cast<int>(number_from_environment("TRI_EMU_ORDER", 0)),
                  number_from_environment("TRI_EMU_SEED", 1));
  return order;
}

// xorshift64 (Marsaglia 2003)
uint64_t emu_random(void)
{
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static void draw_priorities(int n_warps)
{
  for (int w = 0; w < n_warps; w++) {
    flip[w] = static_cast<int>(emu_random() >> 40 & 31);
    warp_of_rank[w] = w;
  }
  for (int i = n_warps - 1; i > 0; i--) {
    const int j = static_cast<int>((emu_random() >> 16) % static_cast<unsigned>(i + 1));
    std::swap(warp_of_rank[i], warp_of_rank[j]);
  }
  for (int i = 0; i < n_warps; i++)
    rank_of_warp[warp_of_rank[i]] = i;
}

void emu_order_start_block(int n_threads)
{
  queue_head = queue_tail = 0;
  ready_ranks = 0;
  if (order == 3) draw_priorities((n_threads + EMU_WARP - 1) / EMU_WARP);
}

void emu_order_push(emu_fiber *fiber)
{
  if (order == 3) {
    ready_lanes[fiber->warp] |= 1u << (fiber->lane ^ flip[fiber->warp]);
    ready_ranks |= 1u << rank_of_warp[fiber->warp];
  } else {
    queue[queue_tail++ % EMU_MAX_THREADS] = fiber;
  }
}

static emu_fiber *pop_by_priority(void)
{
  if (ready_ranks == 0) return nullptr;
  const int rank = __builtin_ctz(ready_ranks), warp = warp_of_rank[rank];
  const int bit = __builtin_ctz(ready_lanes[warp]);
  ready_lanes[warp] &= ready_lanes[warp] - 1;
  if (ready_lanes[warp] == 0) ready_ranks &= ~(1u << rank);
  return emu_block.threads[warp * EMU_WARP + (bit ^ flip[warp])];
}

emu_fiber *emu_order_pop(void)
{
  if (order == 3) return pop_by_priority();
  if (queue_head == queue_tail) return nullptr;
  return order == 1 ? queue[--queue_tail % EMU_MAX_THREADS] : queue[queue_head++ % EMU_MAX_THREADS];
}
