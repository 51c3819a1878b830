// The check that the boxes of an array, on whatever ranks or in whatever files, hold every element
// exactly once. Local.
#pragma once

#include <stdint.h>

#include "trireme/base/status.h"
#include "trireme/tensor/box.h"

typedef struct tri_cover {
  const char *name; // of the array, for the message
  const tri_shape *shape;
  const tri_box *boxes; // not empty, inside `shape`
  const int *holders;   // for each box the number of its rank or file, for the message
  const char *holder;   // "rank" or "file"
  int64_t n_boxes;
} tri_cover;

// TRI_ERR_FORMAT names a range of elements that are held by nobody or several times, and by whom.
TRI_MUST_CHECK tri_status tri_ckpt_check_cover(const tri_cover *cover);
