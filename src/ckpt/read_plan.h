// What a rank reads of a checkpoint: which pieces of which files go into which of its boxes. Local.
#pragma once

#include <stdint.h>

#include "ckpt/manifest.h"
#include "trireme/base/status.h"
#include "trireme/ckpt/ckpt.h"

// A piece that holds something of arrays[index].box.
typedef struct tri_read {
  int file;
  int index;
  int64_t piece;
} tri_read;

// Lists all reads file by file, in a file array by array, so that every file and every dataset is
// opened once. TRI_ERR_CONFIG when an array is missing or of another type or shape; messages begin
// with `path`. A box is compared with the pieces whose index ranges overlap its own: few when both
// are cut along the first axis or by the index, all of the array's when they are columns. *out
// owned: tri_free.
TRI_MUST_CHECK tri_status tri_read_plan(const char *path, const tri_manifest *manifest,
                                        const tri_ckpt_state *state, tri_read **out, int64_t *n);
