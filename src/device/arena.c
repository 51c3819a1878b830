#include "trireme/device/arena.h"

enum { PIECE_ALIGNMENT = 256 };

void tri_arena_begin(tri_arena *arena, tri_device *device, const char *kind)
{
  *arena = (tri_arena){.device = device, .kind = kind};
}

size_t tri_arena_reserve(tri_arena *arena, size_t size_bytes)
{
  TRI_ASSERT(arena->base == NULL);
  const size_t offset = arena->size_bytes;
  const size_t largest = SIZE_MAX / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
  // An arena that would not fit into the address space stays at its end, and commit refuses it.
  if (size_bytes > largest - offset) {
    arena->size_bytes = largest;
  } else {
    arena->size_bytes += (size_bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
  }
  return offset;
}

tri_status tri_arena_commit(tri_arena *arena)
{
  TRI_ASSERT(arena->base == NULL);
  void *base = NULL;
  const tri_status status = tri_device_alloc(arena->device, arena->size_bytes, &base);
  TRI_CHECK(status == TRI_OK, status, "memory for %s: %s", arena->kind, tri_error_message());
  arena->base = base;
  return TRI_OK;
}

void *tri_arena_at(const tri_arena *arena, size_t offset)
{
  TRI_ASSERT(arena->base != NULL && offset <= arena->size_bytes);
  return arena->base + offset;
}

void tri_arena_end(tri_arena *arena)
{
  void *base = arena->base;
  if (base != NULL) tri_device_free(arena->device, &base);
  *arena = (tri_arena){0};
}
