#include "trireme/base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// Lies before every block; a whole cache line, so that blocks keep their alignment.
typedef struct block_header {
  size_t size_bytes;
  tri_module module;
  uint32_t mark;
} block_header;

enum { HEADER_BYTES = 64, MARK = 0x7472696du };

static const char *const module_names[TRI_MODULE_COUNT] = {
    "base",  "telemetry", "device",   "tensor", "comm", "runtime", "nn",
    "optim", "data",      "parallel", "ckpt",   "job",  "cli",     "test"};

static _Atomic int64_t blocks[TRI_MODULE_COUNT];
static _Atomic int64_t bytes[TRI_MODULE_COUNT];
static _Atomic int64_t allocations;

void *tri_calloc(tri_module module, size_t count, size_t size)
{
  size_t wanted;
  if (__builtin_mul_overflow(count, size, &wanted) || wanted > SIZE_MAX - 2 * HEADER_BYTES) {
    (void)TRI_ERROR(TRI_ERR_MEMORY, "%zu objects of %zu bytes overflow the address space", count,
                    size);
    return NULL;
  }
  const size_t padded = (wanted + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES + HEADER_BYTES;
  char *raw = aligned_alloc(HEADER_BYTES, padded);
  if (raw == NULL) {
    (void)TRI_ERROR(TRI_ERR_MEMORY, "%zu bytes for module %s cannot be had", wanted,
                    module_names[module]);
    return NULL;
  }
  memset(raw, 0, padded);
  *(block_header *)raw = (block_header){.size_bytes = wanted, .module = module, .mark = MARK};
  atomic_fetch_add(&blocks[module], 1);
  atomic_fetch_add(&bytes[module], (int64_t)wanted);
  atomic_fetch_add(&allocations, 1);
  return raw + HEADER_BYTES;
}

void tri_free(void *block)
{
  if (block == NULL) return;
  char *raw = (char *)block - HEADER_BYTES;
  block_header *header = (block_header *)raw;
  TRI_ASSERT(header->mark == MARK);
  header->mark = 0;
  atomic_fetch_sub(&blocks[header->module], 1);
  atomic_fetch_sub(&bytes[header->module], (int64_t)header->size_bytes);
  free(raw);
}

char *tri_strdup(tri_module module, const char *text)
{
  const size_t size = strlen(text) + 1;
  char *copy = tri_calloc(module, size, 1);
  if (copy != NULL) memcpy(copy, text, size);
  return copy;
}

int64_t tri_memory_blocks(tri_module module)
{
  return atomic_load(&blocks[module]);
}

int64_t tri_memory_bytes(tri_module module)
{
  return atomic_load(&bytes[module]);
}

int64_t tri_memory_allocations(void)
{
  return atomic_load(&allocations);
}

tri_status tri_memory_check_balance(void)
{
  for (int m = 0; m < TRI_MODULE_COUNT; m++) {
    const int64_t held = tri_memory_blocks((tri_module)m);
    TRI_CHECK(held == 0, TRI_ERR_INTERNAL,
              "module %s still holds %lld blocks, %lld bytes at the end", module_names[m],
              (long long)held, (long long)tri_memory_bytes((tri_module)m));
  }
  return TRI_OK;
}
