// Shapes and boxes of logical arrays: what part of a global array somebody holds. Knows no ranks.
// Local.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/base/status.h"

enum {
  TRI_MAX_AXES = 4,
  TRI_RANGE_BOXES = 2 * TRI_MAX_AXES - 1 // most boxes of a range
};

// Row-major, last axis fastest. n_axes 0 is a scalar.
typedef struct tri_shape {
  int n_axes;
  int64_t extent[TRI_MAX_AXES];
} tri_shape;

// The half-open box start <= index < start + count on every axis of a global array.
typedef struct tri_box {
  int n_axes;
  int64_t start[TRI_MAX_AXES];
  int64_t count[TRI_MAX_AXES];
} tri_box;

tri_shape tri_shape_1d(int64_t n);
tri_shape tri_shape_2d(int64_t rows, int64_t columns);
int64_t tri_shape_elements(const tri_shape *shape);
bool tri_shape_equal(const tri_shape *a, const tri_shape *b);

// The box that covers a whole array.
tri_box tri_box_all(const tri_shape *shape);
int64_t tri_box_elements(const tri_box *box);

// The common part; false (and *out empty) when there is none.
bool tri_box_intersect(const tri_box *a, const tri_box *b, tri_box *out);

// The elements first <= index < first + n in the row-major order of `box`, 0 <= first, 0 <= n,
// first + n <= its elements, as boxes of the array that `box` lies in. They are disjoint, not empty
// and in the order of the index, each contiguous in the packed box. Returns how many: 0 when n is
// 0, else at most 1 for 0 or 1 axes, 2 * n_axes - 1 for more.
int tri_box_cut_range(const tri_box *box, int64_t first, int64_t n, tri_box out[TRI_RANGE_BOXES]);

// Copies `part` from an array holding `from_box` to one holding `to_box`, both packed row-major,
// `size_bytes` an element; `part` lies in both.
void tri_box_copy(void *to, const tri_box *to_box, const void *from, const tri_box *from_box,
                  const tri_box *part, size_t size_bytes);

// Checks 0 <= start, 0 <= count, start + count <= extent on every axis and that elements * size
// does not overflow.
TRI_MUST_CHECK tri_status tri_box_check(const tri_box *box, const tri_shape *shape,
                                        size_t size_bytes);
