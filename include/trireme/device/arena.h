// An arena: all memory of one kind, planned first, allocated once.
//
// Local. Reserve every piece, then commit, then take the pointers. So a run is out of memory before
// its first step or never, and the bytes printed in its header are the bytes it uses.
#pragma once

#include <stddef.h>

#include "trireme/device/device.h"

typedef struct tri_arena {
  tri_device *device; // borrowed: must outlive the arena
  const char *kind;   // "parameters", …; borrowed, a literal
  size_t size_bytes;  // reserved so far
  char *base;         // NULL until committed
} tri_arena;

void tri_arena_begin(tri_arena *arena, tri_device *device, const char *kind);

// Reserves a piece aligned to 256 bytes; returns its offset. Before commit only.
size_t tri_arena_reserve(tri_arena *arena, size_t size_bytes);

// Allocates all that is reserved. TRI_ERR_MEMORY names the kind and the bytes.
TRI_MUST_CHECK tri_status tri_arena_commit(tri_arena *arena);

// The device pointer of a piece, after commit.
void *tri_arena_at(const tri_arena *arena, size_t offset);

// Releases the memory; safe on a zeroed or released arena.
void tri_arena_end(tri_arena *arena);
