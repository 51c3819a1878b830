// Shared memory of the block that runs: dynamic first, then each static array as its name is met.
//
// All of it is 0xFF bytes at the start of a block, and so are the gaps between arrays; a gap that
// has changed when the block ends is an overrun. Under AddressSanitizer the gaps are poisoned, and
// the access itself is reported.
#include "cuda/emulation_internal.h"

#include <sys/mman.h>

static const size_t ARENA_BYTES = 512 * 1024, GAP_BYTES = 32;
static const size_t MAX_STATIC_BYTES = 48 * 1024, MAX_BYTES = 227 * 1024; // compute capability 9.0
enum { MAX_ARRAYS = 64 };

struct shared_array {
  const void *key;
  const char *name;
  size_t first, bytes;
};

static unsigned char *arena;
static struct shared_array arrays[MAX_ARRAYS]; // 0 is the dynamic memory
static int n_arrays;
static size_t end_of_arrays, static_bytes;

static const struct emu_site here = {__FILE__, __LINE__};

// By hand, through volatile: a call of memset would be seen by ThreadSanitizer.
static void fill(size_t bytes)
{
  volatile uint64_t *words = reinterpret_cast<volatile uint64_t *>(arena);
  for (size_t i = 0; i < bytes / sizeof *words; i++)
    words[i] = ~UINT64_C(0);
}

static void place(const void *key, const char *name, size_t bytes, size_t alignment)
{
  const size_t first = (end_of_arrays + GAP_BYTES + alignment - 1) / alignment * alignment;
  if (n_arrays == MAX_ARRAYS) emu_fail(here, "more than %d shared arrays", MAX_ARRAYS);
  if (first + bytes + GAP_BYTES > ARENA_BYTES || static_bytes + arrays[0].bytes > MAX_BYTES)
    emu_fail(here, "shared memory: %zu bytes are more than a block can have, %zu",
             static_bytes + arrays[0].bytes, MAX_BYTES);
  arrays[n_arrays++] = shared_array{key, name, first, bytes};
  EMU_UNPOISON(arena + first, bytes);
  end_of_arrays = first + bytes;
}

static void map_arena(size_t bytes)
{
  const int fixed = arena == nullptr ? 0 : MAP_FIXED;
  void *pages =
      mmap(arena, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  if (pages == MAP_FAILED) emu_fail(here, "no memory for the shared arena");
  arena = static_cast<unsigned char *>(pages);
}

void emu_shared_start_block(size_t dynamic_bytes)
{
  if (arena == nullptr) {
    map_arena(ARENA_BYTES);
    fill(ARENA_BYTES);
  }
#ifdef TRI_EMU_TSAN
  // A new mapping has no history: else this block would race with the one before.
  map_arena(ARENA_BYTES);
  fill(ARENA_BYTES);
#endif
  EMU_POISON(arena, ARENA_BYTES);
  n_arrays = 0;
  end_of_arrays = static_bytes = 0;
  arrays[0] = shared_array{nullptr, nullptr, 0, dynamic_bytes};
  place(nullptr, "dynamic shared memory", dynamic_bytes, 1024);
}

static void check_gap(size_t first, size_t end, const char *before, const char *after)
{
  for (size_t i = first; i < end; i++)
    if (arena[i] != 0xFF)
      emu_fail(here, "shared memory: byte %zu after the end of %s, before %s, was written",
               i - first, before, after);
}

void emu_shared_end_block(void)
{
  EMU_UNPOISON(arena, ARENA_BYTES);
  size_t end = 0;
  const char *before = "nothing";
  for (int i = 0; i < n_arrays; i++) {
    check_gap(end, arrays[i].first, before, arrays[i].name);
    end = arrays[i].first + arrays[i].bytes;
    before = arrays[i].name;
  }
  check_gap(end, end + GAP_BYTES, before, "nothing");
  fill((end_of_arrays + GAP_BYTES + 7) / 8 * 8);
}

extern "C" void *emu_shared(const void *key, const char *name, size_t bytes, size_t alignment)
{
  for (int i = 1; i < n_arrays; i++)
    if (arrays[i].key == key) return arena + arrays[i].first;
  static_bytes += bytes;
  if (static_bytes > MAX_STATIC_BYTES)
    emu_fail(here, "static shared memory: %zu bytes with %s, more than %zu", static_bytes, name,
             MAX_STATIC_BYTES);
  place(key, name, bytes, alignment < 16 ? 16 : alignment);
  return arena + arrays[n_arrays - 1].first;
}

extern "C" void *emu_dynamic_shared(void)
{
  return arena + arrays[0].first;
}

extern "C" bool emu_is_shared(const void *address, size_t bytes)
{
  const unsigned char *p = static_cast<const unsigned char *>(address);
  return p >= arena && p + bytes <= arena + end_of_arrays;
}
