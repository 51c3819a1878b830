// Chunks of an array: TRI_CHUNK_ELEMENTS of global index, the units of the state digest. Local.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/pieces.h"
#include "trireme/base/digest.h"
#include "trireme/base/status.h"
#include "trireme/ckpt/ckpt.h"

// The digest of one chunk, as it travels to root. chunk -1: tells only that the array exists, which
// is all there is to tell of one without elements.
typedef struct tri_chunk {
  char name[96];
  int32_t dtype;
  tri_shape shape;
  int64_t chunk;
  tri_digest digest;
} tri_chunk;

typedef struct tri_chunk_list {
  tri_chunk *chunks; // owned: tri_free
  int64_t n, room;
} tri_chunk_list;

// Adds one; digest NULL: only that the array exists.
TRI_MUST_CHECK tri_status tri_chunk_list_add(tri_chunk_list *list, const tri_ckpt_array *array,
                                             int64_t chunk, const tri_digest *digest);

// The elements of a chunk as boxes in the order of the index; returns how many.
int tri_chunk_boxes(const tri_shape *shape, int64_t chunk, tri_box out[TRI_RANGE_BOXES]);

// Elements of a chunk (the last one of an array is shorter).
int64_t tri_chunk_elements(const tri_shape *shape, int64_t chunk);
int64_t tri_chunk_count(const tri_shape *shape);

// Elements of the chunk that lie in `box`.
int64_t tri_chunk_common(const tri_shape *shape, int64_t chunk, const tri_box *box);

// First and last chunk that a non-empty box can touch.
void tri_chunk_range(const tri_shape *shape, const tri_box *box, int64_t *first, int64_t *last);
