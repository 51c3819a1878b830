#define _GNU_SOURCE // renameat2
#include "ckpt/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/file.h"
#include "trireme/base/memory.h"

// --- names

// The step of "step-%08d", -1 for any other name.
static int64_t step_of(const char *name)
{
  char again[TRI_CKPT_NAME_BYTES];
  if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
  errno = 0;
  const long long step = strtoll(name + 5, NULL, 10);
  if (errno != 0) return -1;
  snprintf(again, sizeof again, "step-%08lld", step);
  return strcmp(again, name) == 0 ? step : -1;
}

static bool is_partial(const char *name)
{
  const char *middle = strstr(name, ".partial-");
  if (strncmp(name, ".step-", 6) != 0 || middle == NULL) return false;
  if (strlen(name) >= TRI_CKPT_NAME_BYTES) return false;
  return strspn(name + 6, "0123456789") == (size_t)(middle - (name + 6)) &&
         strspn(middle + 9, "0123456789abcdef") == 16 && middle[25] == '\0';
}

static tri_status partial_path(const char *folder, int64_t step, char *out, size_t size)
{
  char name[TRI_CKPT_NAME_BYTES];
  unsigned long long random;
  TRI_CHECK(getrandom(&random, sizeof random, 0) == sizeof random, TRI_ERR_IO,
            "no random number from the system: %s", strerror(errno));
  snprintf(name, sizeof name, ".step-%08lld.partial-%016llx", (long long)step, random);
  return tri_path_join(out, size, folder, name);
}

tri_status tri_ckpt_step_path(const char *folder, int64_t step, char *out, size_t size)
{
  char name[TRI_CKPT_NAME_BYTES];
  snprintf(name, sizeof name, "step-%08lld", (long long)step);
  return tri_path_join(out, size, folder, name);
}

// --- scan

static int newest_first(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

void tri_ckpt_folder_clear(tri_ckpt_folder *folder)
{
  tri_free(folder->steps);
  tri_free(folder->partial);
  *folder = (tri_ckpt_folder){0};
}

// Room for one more of what doubles in size.
static tri_status make_room(int n, size_t size, void **list)
{
  void *more;
  if (n > 0 && (n & (n - 1)) != 0) return TRI_OK;
  more = tri_calloc(TRI_MODULE_CKPT, n == 0 ? 1 : 2 * (size_t)n, size);
  if (more == NULL) return TRI_ERR_MEMORY;
  if (n > 0) memcpy(more, *list, (size_t)n * size);
  tri_free(*list);
  *list = more;
  return TRI_OK;
}

static tri_status take_name(const char *name, tri_ckpt_folder *folder)
{
  const int64_t step = step_of(name);
  if (step >= 0) {
    TRI_CALL(make_room(folder->n_steps, sizeof folder->steps[0], (void **)&folder->steps));
    folder->steps[folder->n_steps++] = step;
  } else if (is_partial(name)) {
    TRI_CALL(make_room(folder->n_partial, sizeof folder->partial[0], (void **)&folder->partial));
    memcpy(folder->partial[folder->n_partial++], name, strlen(name) + 1);
  }
  return TRI_OK;
}

tri_status tri_ckpt_folder_scan(const char *path, tri_ckpt_folder *out)
{
  tri_ckpt_folder folder = {0};
  tri_status status = TRI_OK;
  DIR *stream = opendir(path);
  if (stream == NULL && errno == ENOENT) {
    *out = folder;
    return TRI_OK;
  }
  TRI_CHECK(stream != NULL, TRI_ERR_IO, "%s: folder cannot be read: %s", path, strerror(errno));
  errno = 0;
  for (struct dirent *entry; status == TRI_OK && (entry = readdir(stream)) != NULL; errno = 0)
    status = take_name(entry->d_name, &folder);
  if (status == TRI_OK && errno != 0)
    status = TRI_ERROR(TRI_ERR_IO, "%s: folder cannot be read: %s", path, strerror(errno));
  closedir(stream);
  if (status != TRI_OK) {
    tri_ckpt_folder_clear(&folder);
    return status;
  }
  if (folder.n_steps > 0)
    qsort(folder.steps, (size_t)folder.n_steps, sizeof folder.steps[0], newest_first);
  *out = folder;
  return TRI_OK;
}

// --- commit

tri_status tri_ckpt_folder_begin(const char *folder, int64_t step, char *out, size_t size,
                                 int *lock)
{
  TRI_CALL(tri_file_make_folder(folder));
  TRI_CALL(partial_path(folder, step, out, size));
  TRI_CHECK(mkdir(out, 0755) == 0, TRI_ERR_IO, "%s: folder cannot be made: %s", out,
            strerror(errno));
  // File systems without locks on folders: sweeping takes every temporary folder for dead there.
  *lock = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*lock >= 0) (void)flock(*lock, LOCK_EX | LOCK_NB);
  return TRI_OK;
}

// Makes `final` free by moving what has the name to `old`; puts it back when the new one cannot
// have the name.
static tri_status replace_in_two_steps(const char *temporary, const char *final, const char *old)
{
  TRI_CALL(tri_file_rename(final, old));
  const tri_status status = tri_file_rename(temporary, final);
  if (status != TRI_OK && rename(old, final) != 0)
    return TRI_ERROR(TRI_ERR_IO, "%s: could not be put back to %s: %s", old, final,
                     strerror(errno));
  return status;
}

tri_status tri_ckpt_folder_commit(const char *folder, const char *temporary, int64_t step)
{
  char final[PATH_MAX], old[PATH_MAX] = "";
  TRI_CALL(tri_ckpt_step_path(folder, step, final, sizeof final));
  TRI_CALL(tri_file_sync(temporary));
  if (!tri_file_exists(final)) {
    TRI_CALL(tri_file_rename(temporary, final));
  } else if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
    snprintf(old, sizeof old, "%s", temporary);
  } else {
    TRI_CALL(partial_path(folder, step, old, sizeof old));
    TRI_CALL(replace_in_two_steps(temporary, final, old));
  }
  TRI_CALL(tri_file_sync(folder));
  if (old[0] != '\0') TRI_CALL(tri_file_remove(old));
  return TRI_OK;
}

tri_status tri_ckpt_folder_remove(const char *folder, int64_t step)
{
  char path[PATH_MAX], old[PATH_MAX];
  TRI_CALL(tri_ckpt_step_path(folder, step, path, sizeof path));
  TRI_CALL(partial_path(folder, step, old, sizeof old));
  TRI_CALL(tri_file_rename(path, old));
  return tri_file_remove(old);
}

tri_status tri_ckpt_folder_set_aside(const char *folder, int64_t step, char *out, size_t size)
{
  char path[PATH_MAX], name[TRI_CKPT_NAME_BYTES];
  TRI_CALL(tri_ckpt_step_path(folder, step, path, sizeof path));
  snprintf(name, sizeof name, "damaged-step-%08lld", (long long)step);
  TRI_CALL(tri_path_join(out, size, folder, name));
  if (tri_file_exists(out)) TRI_CALL(tri_file_remove(out));
  TRI_CALL(tri_file_rename(path, out));
  return tri_file_sync(folder);
}

static bool is_alive(const char *path)
{
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return held;
}

tri_status tri_ckpt_folder_sweep(const char *path, const tri_ckpt_folder *folder)
{
  char partial[PATH_MAX];
  for (int i = 0; i < folder->n_partial; i++) {
    TRI_CALL(tri_path_join(partial, sizeof partial, path, folder->partial[i]));
    if (!is_alive(partial)) TRI_CALL(tri_file_remove(partial));
  }
  return TRI_OK;
}
