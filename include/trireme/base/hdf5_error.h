// HDF5's own account of a failure, for our messages. Local; not thread-safe, as HDF5 is not.
#pragma once

#include "trireme/base/status.h"

// Stops HDF5 from printing its error stacks. Every function that calls HDF5 first begins with it.
void tri_hdf5_quiet(void);

// Sets "MESSAGE: <innermost description on HDF5's error stack>" ("unknown reason" when it is
// empty), forgets the stack, returns `code`. Used through TRI_ERROR_HDF5, at once after the call
// that failed: every other call of HDF5 empties the stack.
tri_status tri_hdf5_error_set(tri_status code, const char *function, const char *file, int line,
                              const char *format, ...) TRI_PRINTF(5, 6);

#define TRI_ERROR_HDF5(code, ...) \
  tri_hdf5_error_set((code), __func__, __FILE__, __LINE__, __VA_ARGS__)

#define TRI_CHECK_HDF5(condition, code, ...) \
  do { \
    if (!(condition)) return TRI_ERROR_HDF5(code, __VA_ARGS__); \
  } while (0)

// The function holds a variable `status`.
#define TRI_CHECK_HDF5_GOTO(label, condition, code, ...) \
  do { \
    if (!(condition)) { \
      status = TRI_ERROR_HDF5(code, __VA_ARGS__); \
      goto label; \
    } \
  } while (0)
