#include "device/cpu/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/cpu/memory_limits.h"
#include "trireme/base/memory.h"

struct tri_cpu_block {
  tri_cpu_block *next;
  void *memory; // owned
};

static const size_t ALIGNMENT = 256;
static const size_t HUGE_PAGE = (size_t)2 << 20;
static const size_t LARGE_BLOCK = (size_t)4 << 20;
static const size_t PAGE = 4096;
// What is touched between two looks at the free memory: other ranks of this node may be filling it
// at the same time, and then together they overshoot by one slice each and not by a block each.
static const size_t SLICE = (size_t)64 << 20;

// `still_wanted` of the `size_bytes` of a block can be touched now.
static tri_status check_free(size_t still_wanted, size_t size_bytes)
{
  tri_memory_limits limits;
  TRI_CALL(tri_memory_limits_read("", &limits));
  TRI_CHECK(
      still_wanted <= limits.free_bytes, TRI_ERR_MEMORY,
      "%zu bytes wanted, %zu bytes still to come, %zu bytes free by %s: make the model or the "
      "micro-batch smaller, put fewer ranks on this node, or ask for more memory",
      size_bytes, still_wanted, limits.free_bytes, limits.least);
  return TRI_OK;
}

static void touch(char *memory, size_t size_bytes)
{
  // By all threads: a page lies near the thread that touches it first.
#pragma omp parallel for
  for (size_t page = 0; page < (size_bytes + PAGE - 1) / PAGE; page++)
    memory[page * PAGE] = 0;
#ifdef TRI_DEBUG
  memset(memory, 0xff, size_bytes);
#endif
}

static tri_status touch_in_slices(char *memory, size_t size_bytes)
{
  for (size_t done = 0; done < size_bytes; done += SLICE) {
    const size_t left = size_bytes - done;
    TRI_CALL(check_free(left, size_bytes));
    touch(memory + done, left < SLICE ? left : SLICE);
  }
  return TRI_OK;
}

tri_status tri_cpu_memory_take(tri_cpu_block **blocks, size_t size_bytes, void **out)
{
  tri_status status = TRI_OK;
  tri_cpu_block *block = NULL;
  TRI_CALL(check_free(size_bytes, size_bytes));
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &block));

  const bool large = size_bytes >= LARGE_BLOCK;
  const size_t alignment = large ? HUGE_PAGE : ALIGNMENT;
  const size_t padded = (size_bytes + alignment - 1) / alignment * alignment;
  block->memory = aligned_alloc(alignment, padded == 0 ? alignment : padded);
  TRI_CHECK_GOTO(undo_block, block->memory != NULL, TRI_ERR_MEMORY,
                 "%zu bytes wanted, the system gives none: raise the limit on address space "
                 "(ulimit -v) or make the model smaller",
                 size_bytes);
  // Advice only: without huge pages the memory is as good, but slower.
  if (large) (void)madvise(block->memory, padded, MADV_HUGEPAGE);
  TRI_CALL_GOTO(undo_memory, touch_in_slices(block->memory, size_bytes));

  block->next = *blocks;
  *blocks = block;
  *out = block->memory;
  return TRI_OK;

undo_memory:
  free(block->memory);
undo_block:
  TRI_FREE(&block);
  return status;
}

void tri_cpu_memory_give_back(tri_cpu_block **blocks, void *memory)
{
  tri_cpu_block **link = blocks;
  while (*link != NULL && (*link)->memory != memory)
    link = &(*link)->next;
  tri_cpu_block *block = *link;
  TRI_ASSERT(block != NULL);
  if (block == NULL) return;
  *link = block->next;
  free(block->memory);
  TRI_FREE(&block);
}
