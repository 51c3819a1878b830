// The folder that holds the checkpoints of a run: names, scan, commit, removal. Local: called by
// root alone.
//
//   step-00000123                     a committed checkpoint
//   damaged-step-00000123             set aside: a newer checkpoint that a run could not go on from
//   .step-00000123.partial-<16 hex>   being written, or being removed; locked (flock) while its run
//                                     lives
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/base/status.h"

enum { TRI_CKPT_NAME_BYTES = 64 };

// The names in a folder, owned: tri_ckpt_folder_clear.
typedef struct tri_ckpt_folder {
  int64_t *steps; // of committed checkpoints, newest first
  int n_steps;
  char (*partial)[TRI_CKPT_NAME_BYTES]; // temporary folders
  int n_partial;
} tri_ckpt_folder;

// Reads a folder; a missing one is empty. TRI_ERR_IO when it cannot be read.
TRI_MUST_CHECK tri_status tri_ckpt_folder_scan(const char *path, tri_ckpt_folder *out);
void tri_ckpt_folder_clear(tri_ckpt_folder *folder);

// FOLDER/step-%08d.
TRI_MUST_CHECK tri_status tri_ckpt_step_path(const char *folder, int64_t step, char *out,
                                             size_t size);

// Makes a temporary folder for `step` and locks it. *lock is closed by the caller when the folder
// has its final name or is gone.
TRI_MUST_CHECK tri_status tri_ckpt_folder_begin(const char *folder, int64_t step, char *out,
                                                size_t size, int *lock);

// Gives the whole temporary folder its final name, durably. A checkpoint that had the name is
// removed after that; where the file system can swap two names (Linux, most local file systems) one
// of the two has the name at every moment, elsewhere there is a moment between two renames at which
// none has.
TRI_MUST_CHECK tri_status tri_ckpt_folder_commit(const char *folder, const char *temporary,
                                                 int64_t step);

// Removes the checkpoint of a step: it loses its name first, so that half a checkpoint is never
// seen.
TRI_MUST_CHECK tri_status tri_ckpt_folder_remove(const char *folder, int64_t step);

// Renames the checkpoint of a step to damaged-step-%08d, which is no name of a checkpoint; an older
// folder of that name is removed. *out: its new path.
TRI_MUST_CHECK tri_status tri_ckpt_folder_set_aside(const char *folder, int64_t step, char *out,
                                                    size_t size);

// Removes the temporary folders whose run is dead.
TRI_MUST_CHECK tri_status tri_ckpt_folder_sweep(const char *path, const tri_ckpt_folder *folder);
