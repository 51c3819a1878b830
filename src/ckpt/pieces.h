// How logical arrays are cut: into pieces that ranks write and slabs that fit the staging buffer.
// Local.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/base/status.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/tensor/box.h"

enum {
  TRI_PIECE_BYTES = 64 << 10,   // no replica is asked to write less than this, but for the rest
  TRI_STAGING_BYTES = 16 << 20, // most host memory that holds array data at once
  TRI_CHUNK_ELEMENTS = 1 << 20  // elements of one chunk of the state digest
};

// Checks names, types, boxes and replica numbers, and that boxes of one name have one type and
// shape. Whether boxes overlap is found when those of all ranks are known.
TRI_MUST_CHECK tri_status tri_ckpt_check_state(const tri_ckpt_state *state);

// Checks one name: 1 to 95 printable ASCII bytes without '\' and '"', path-like, no empty, "." or
// ".." part.
bool tri_ckpt_name_is_plain(const char *name);

// "(3, 4)".
void tri_ckpt_numbers_text(int n, const int64_t *numbers, char *out, size_t size);

// By the first element in row-major order, for boxes of one array.
int tri_ckpt_compare_starts(const tri_box *a, const tri_box *b);

// Row-major indices of the first and the last element of a non-empty box.
void tri_ckpt_span(const tri_shape *shape, const tri_box *box, int64_t *first, int64_t *last);

// The part of array->box that this replica writes, cut along axis 0; false when it writes nothing.
// The parts of all replicas of a box cover it exactly once, none smaller than TRI_PIECE_BYTES but
// for rows that cannot be joined; which replica takes a small box is drawn by name and place.
bool tri_ckpt_piece(const tri_ckpt_array *array, tri_box *out);

// The replica (0 … n_replicas-1) whose turn the chunk `chunk` of a box is.
int tri_ckpt_turn(const char *name, int64_t chunk, int n_replicas);

// Walks over a box in slabs of at most `limit_bytes` that are contiguous in the packed box.
typedef struct tri_slabs {
  tri_box box;
  int axis;     // slabs are one index thick before this axis and whole after it
  int64_t rows; // thickness along `axis`
  int64_t next[TRI_MAX_AXES];
  bool done;
} tri_slabs;

void tri_slabs_begin(tri_slabs *slabs, const tri_box *box, size_t element_bytes,
                     size_t limit_bytes);
bool tri_slabs_next(tri_slabs *slabs, tri_box *out);
