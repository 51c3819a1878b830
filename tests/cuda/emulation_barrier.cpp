// Barriers of a block, and memory fences.
//
// A thread that has exited counts as arrived, as on the device since compute capability 7.0. All
// others must come to the same line: the device would let different barriers meet, by luck.
#include "cuda/emulation_internal.h"

static int n_arrived, n_true;
static enum emu_barrier_kind barrier_kind;
static struct emu_site barrier_site;
static unsigned generation;
static char barrier_sync[2], fence_sync; // ThreadSanitizer; two, as threads may be a barrier ahead

void emu_barrier_start_block(void)
{
  n_arrived = 0;
}

static int answer(void)
{
  switch (barrier_kind) {
  case EMU_BARRIER_OR: return n_true > 0;
  case EMU_BARRIER_AND: return n_true == n_arrived;
  case EMU_BARRIER_COUNT: return n_true;
  case EMU_BARRIER: break;
  }
  return 0;
}

// Lets the waiting threads go on; returns what they are told.
static int open_barrier(void)
{
  const int result = answer();
  n_arrived = 0;
  generation++;
  emu_counted.barriers++;
  for (int i = 0; i < emu_block.n_threads; i++) {
    emu_fiber *fiber = emu_block.threads[i];
    if (fiber->state != EMU_AT_BARRIER) continue;
    memcpy(fiber->result, &result, sizeof result);
    emu_make_ready(fiber);
  }
  return result;
}

static bool complete(void)
{
  return n_arrived > 0 && n_arrived + emu_block.n_exited == emu_block.n_threads;
}

void emu_barrier_thread_exited(void)
{
  if (complete()) open_barrier();
}

extern "C" int emu_barrier(enum emu_barrier_kind kind, int predicate, struct emu_site site)
{
  if (n_arrived == 0) {
    barrier_kind = kind;
    barrier_site = site;
    n_true = 0;
  } else if (barrier_site.line != site.line || strcmp(barrier_site.file, site.file) != 0) {
    emu_fail(site, "divergent barrier: other threads of the block wait at the one at %s:%d",
             barrier_site.file, barrier_site.line);
  }
  n_arrived++;
  n_true += predicate != 0;
  char *sync = &barrier_sync[generation % 2];
  EMU_RELEASE(sync);
  int result = 0;
  if (complete()) {
    result = open_barrier(); // the last one goes on without a switch
  } else {
    emu_wait(EMU_AT_BARRIER, site);
    memcpy(&result, emu_current->result, sizeof result);
  }
  EMU_ACQUIRE(sync);
  return result;
}

// Generous: every fence is ordered with every other one.
extern "C" void emu_fence(void)
{
  EMU_RELEASE(&fence_sync);
  EMU_ACQUIRE(&fence_sync);
}
