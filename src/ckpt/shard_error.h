// HDF5's error stack as our message. Local.
#pragma once

#include <hdf5.h>

#include "trireme/base/status.h"

// Keeps HDF5 from printing its errors; they go into our messages.
void tri_shard_quiet(void);

// Sets "PATH: WHAT: <HDF5's innermost reason>", forgets HDF5's stack, returns `code`.
tri_status tri_shard_error_set(tri_status code, const char *function, const char *file, int line,
                               const char *path, const char *what);

// A call that gives a negative number on failure; the function holds `status`.
#define TRI_CALL_HDF5_GOTO(label, code, path, what, call) \
  do { \
    if ((call) < 0) { \
      status = tri_shard_error_set((code), __func__, __FILE__, __LINE__, (path), (what)); \
      goto label; \
    } \
  } while (0)
