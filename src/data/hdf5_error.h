// HDF5's own account of a failure, for our messages. Local; not thread-safe, as HDF5 is not.
#pragma once

#include <hdf5.h>
#include <stddef.h>

#include "trireme/base/status.h"

// Stops HDF5 from printing its error stacks. Every function here that calls HDF5 begins with it.
void tri_hdf5_quiet(void);

// The innermost description on HDF5's error stack ("unknown reason" when it is empty).
void tri_hdf5_reason(char *buffer, size_t size);

// The function holds a variable `status`. `format` begins with the path.
#define TRI_CHECK_HDF5_GOTO(label, condition, code, format, ...) \
  do { \
    if (!(condition)) { \
      char reason_[256]; \
      tri_hdf5_reason(reason_, sizeof reason_); \
      status = TRI_ERROR(code, format ": %s", __VA_ARGS__, reason_); \
      goto label; \
    } \
  } while (0)
