#define _GNU_SOURCE
#include "trireme/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/memory.h"

tri_status tri_path_join(char *buffer, size_t size, const char *folder, const char *name)
{
  const size_t n = strlen(folder);
  const char *separator = n == 0 || folder[n - 1] == '/' ? "" : "/";
  const int written = snprintf(buffer, size, "%s%s%s", folder, separator, name);
  TRI_CHECK(written >= 0 && (size_t)written < size, TRI_ERR_ARGUMENT,
            "path %s/%s is longer than %zu bytes", folder, name, size - 1);
  return TRI_OK;
}

tri_status tri_path_folder(char *buffer, size_t size, const char *path)
{
  const char *slash = strrchr(path, '/');
  const char *from = slash == NULL ? "." : path;
  size_t n = slash == NULL ? 1 : (size_t)(slash - path);
  if (slash == path) n = 1;
  TRI_CHECK(n < size, TRI_ERR_ARGUMENT, "the folder of %s is longer than %zu bytes", path,
            size - 1);
  memcpy(buffer, from, n);
  buffer[n] = '\0';
  return TRI_OK;
}

bool tri_file_exists(const char *path)
{
  struct stat facts;
  return stat(path, &facts) == 0;
}

static tri_status make_one_folder(const char *path)
{
  if (mkdir(path, 0755) == 0) return TRI_OK;
  const int reason = errno;
  struct stat facts;
  if (reason == EEXIST && stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) return TRI_OK;
  return TRI_ERROR(TRI_ERR_IO, "%s: folder cannot be made: %s", path,
                   reason == EEXIST ? "a file of that name is there" : strerror(reason));
}

tri_status tri_file_make_folder(const char *path)
{
  char part[PATH_MAX];
  const size_t n = strlen(path);
  TRI_CHECK(n > 0 && n < sizeof part, TRI_ERR_IO, "'%s' is no usable folder name", path);
  memcpy(part, path, n + 1);
  for (size_t i = 1; i < n; i++) {
    if (part[i] != '/') continue;
    part[i] = '\0';
    TRI_CALL(make_one_folder(part));
    part[i] = '/';
  }
  return make_one_folder(part);
}

static tri_status write_all(int fd, const char *path, const void *data, size_t size_bytes)
{
  const char *next = data;
  while (size_bytes > 0) {
    const ssize_t n = write(fd, next, size_bytes);
    if (n < 0 && errno == EINTR) continue;
    TRI_CHECK(n > 0, TRI_ERR_IO, "%s: writing failed: %s", path,
              n < 0 ? strerror(errno) : "nothing was written");
    next += n;
    size_bytes -= (size_t)n;
  }
  TRI_CHECK(fsync(fd) == 0, TRI_ERR_IO, "%s: fsync failed: %s", path, strerror(errno));
  return TRI_OK;
}

tri_status tri_file_write_atomic(const char *path, const void *data, size_t size_bytes)
{
  tri_status status = TRI_OK;
  char temporary[PATH_MAX];
  char folder[PATH_MAX];
  const int n = snprintf(temporary, sizeof temporary, "%s.partial-%ld", path, (long)getpid());
  TRI_CHECK(n > 0 && (size_t)n < sizeof temporary, TRI_ERR_IO, "path %s is too long", path);
  const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  TRI_CHECK(fd >= 0, TRI_ERR_IO, "%s: cannot be made: %s", temporary, strerror(errno));
  status = write_all(fd, temporary, data, size_bytes);
  if (close(fd) != 0 && status == TRI_OK) {
    status = TRI_ERROR(TRI_ERR_IO, "%s: close failed: %s", temporary, strerror(errno));
  }
  TRI_CALL_GOTO(err_unlink, status);
  TRI_CALL_GOTO(err_unlink, tri_file_rename(temporary, path));
  TRI_CALL(tri_path_folder(folder, sizeof folder, path));
  return tri_file_sync(folder);

err_unlink:
  unlink(temporary);
  return status;
}

tri_status tri_file_read(const char *path, size_t limit_bytes, char **out, size_t *size_bytes)
{
  tri_status status = TRI_OK;
  char *data = NULL;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  TRI_CHECK(fd >= 0, TRI_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  struct stat facts;
  size_t used = 0;
  TRI_CHECK_GOTO(done, fstat(fd, &facts) == 0, TRI_ERR_IO, "%s: %s", path, strerror(errno));
  TRI_CHECK_GOTO(done, S_ISREG(facts.st_mode), TRI_ERR_IO, "%s: is not a regular file", path);
  TRI_CHECK_GOTO(done, (uint64_t)facts.st_size <= limit_bytes, TRI_ERR_FORMAT,
                 "%s: %lld bytes are more than the %zu that are read", path,
                 (long long)facts.st_size, limit_bytes);
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_BASE, facts.st_size + 1, &data));
  while (used < (size_t)facts.st_size) {
    const ssize_t n = read(fd, data + used, (size_t)facts.st_size - used);
    if (n < 0 && errno == EINTR) continue;
    TRI_CHECK_GOTO(done, n >= 0, TRI_ERR_IO, "%s: reading failed: %s", path, strerror(errno));
    if (n == 0) break; // shrank while being read: what is there is what there is
    used += (size_t)n;
  }

done:
  close(fd);
  if (status != TRI_OK) {
    tri_free(data);
    return status;
  }
  *out = data;
  *size_bytes = used;
  return TRI_OK;
}

tri_status tri_file_sync(const char *path)
{
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  TRI_CHECK(fd >= 0, TRI_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  const int failed = fsync(fd);
  const int reason = errno;
  close(fd);
  TRI_CHECK(failed == 0, TRI_ERR_IO, "%s: fsync failed: %s", path, strerror(reason));
  return TRI_OK;
}

tri_status tri_file_rename(const char *from, const char *to)
{
  TRI_CHECK(rename(from, to) == 0, TRI_ERR_IO, "%s: cannot be renamed to %s: %s", from, to,
            strerror(errno));
  return TRI_OK;
}

static int remove_entry(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
  (void)facts;
  (void)kind;
  (void)place;
  return remove(path);
}

tri_status tri_file_remove(const char *path)
{
  struct stat facts;
  if (lstat(path, &facts) != 0 && errno == ENOENT) return TRI_OK;
  TRI_CHECK(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0, TRI_ERR_IO,
            "%s: cannot be removed: %s", path, strerror(errno));
  return TRI_OK;
}

tri_status tri_file_size(const char *path, int64_t *size_bytes)
{
  struct stat facts;
  TRI_CHECK(stat(path, &facts) == 0, TRI_ERR_IO, "%s: %s", path, strerror(errno));
  *size_bytes = facts.st_size;
  return TRI_OK;
}
