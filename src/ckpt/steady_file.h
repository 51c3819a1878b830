// A plain POSIX file for HDF5 to write that never fails in HDF5's eyes.
//
// HDF5 keeps metadata back until a file is flushed or closed. When that write fails (full disk),
// closing fails, and HDF5 1.10 keeps an identifier of memory that it has freed: the program crashes
// when it ends. So this driver remembers the first error, lets every later write pass for done, and
// HDF5 closes the file in good order; the error is then reported by tri_steady_file_check. The file
// format is that of HDF5's own POSIX driver. Local.
#pragma once

#include <hdf5.h>
#include <stdint.h>

#include "trireme/base/status.h"

typedef struct tri_steady_file {
  int fd;
  int64_t end;   // bytes of the file so far
  int error;     // errno of the first failure, 0 for none
  int64_t place; // byte at which it happened
} tri_steady_file;

// Makes a new file (an existing one is an error) and an HDF5 access list for it. `file` is borrowed
// by every HDF5 file made through *access until that is closed. *access: H5Pclose.
TRI_MUST_CHECK tri_status tri_steady_file_create(const char *path, tri_steady_file *file,
                                                 hid_t *access);

// TRI_ERR_IO with the path and the system's reason after the first failed write.
TRI_MUST_CHECK tri_status tri_steady_file_check(const char *path, const tri_steady_file *file);

// fsync and close; reports the first failure of all.
TRI_MUST_CHECK tri_status tri_steady_file_finish(const char *path, tri_steady_file *file);
