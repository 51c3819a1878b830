// Files and folders that are whole or not there: small wrappers that name the path in every error.
//
// Local. All errors are TRI_ERR_IO with the path and the system's reason. New files get mode 0644 &
// ~umask, new folders 0755 & ~umask.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/base/status.h"

// "a/b" from "a" and "b" into buffer; TRI_ERR_ARGUMENT when it does not fit.
TRI_MUST_CHECK tri_status tri_path_join(char *buffer, size_t size, const char *folder,
                                        const char *name);

// The folder that `path` lies in ("." for a bare name, "/" for "/a") into buffer; TRI_ERR_ARGUMENT
// when it does not fit.
TRI_MUST_CHECK tri_status tri_path_folder(char *buffer, size_t size, const char *path);

bool tri_file_exists(const char *path);

// Makes a folder and its missing parents; no error when it is there.
TRI_MUST_CHECK tri_status tri_file_make_folder(const char *path);

// Writes the whole buffer to `path` by temporary name, fsync, rename, fsync of the folder: after a
// crash either the old or the new content is there.
TRI_MUST_CHECK tri_status tri_file_write_atomic(const char *path, const void *data,
                                                size_t size_bytes);

// Reads a whole file, at most `limit_bytes` (TRI_ERR_FORMAT when larger). *out is zero-terminated
// beyond *size_bytes, owned by the caller, released by tri_free.
TRI_MUST_CHECK tri_status tri_file_read(const char *path, size_t limit_bytes, char **out,
                                        size_t *size_bytes);

// fsync of a file or folder by path.
TRI_MUST_CHECK tri_status tri_file_sync(const char *path);

TRI_MUST_CHECK tri_status tri_file_rename(const char *from, const char *to);

// Removes a file, or a folder with all it holds (symbolic links are removed, never followed); no
// error when it is not there.
TRI_MUST_CHECK tri_status tri_file_remove(const char *path);

TRI_MUST_CHECK tri_status tri_file_size(const char *path, int64_t *size_bytes);
