#include "device/cpu/memory_limits.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = PATH_MAX + 256 };

// The names of one version of control groups.
typedef struct group_files {
  const char *mount, *limit, *usage;
  const char *inactive,
      *active; // lines of memory.stat: the file cache of the group and those below
} group_files;

static const group_files version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_inactive_file",
                                      "total_active_file"};
static const group_files version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                      "inactive_file", "active_file"};

static tri_status read_machine(const char *root, tri_memory_limits *out)
{
  char path[PATH_MAX], line[256];
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  FILE *file = fopen(path, "re");
  TRI_CHECK(file != NULL, TRI_ERR_IO,
            "%s cannot be read: the free memory is not known, mount /proc", path);
  size_t total_kib = 0, free_kib = 0;
  bool has_total = false, has_free = false;
  while (fgets(line, sizeof line, file) != NULL) {
    has_total = sscanf(line, "MemTotal: %zu kB", &total_kib) == 1 || has_total;
    has_free = sscanf(line, "MemAvailable: %zu kB", &free_kib) == 1 || has_free;
  }
  fclose(file);
  TRI_CHECK(has_total && has_free, TRI_ERR_IO,
            "%s has no MemTotal or no MemAvailable: Linux 3.14 or later is needed", path);
  *out = (tri_memory_limits){.total_bytes = total_kib * 1024,
                             .free_bytes = free_kib * 1024,
                             .least = "MemAvailable in /proc/meminfo"};
  return TRI_OK;
}

// The number in FOLDER/NAME, or behind the word `key` of one of its lines; false when there is none
// ("max" is no number).
static bool read_number(const char *folder, const char *name, const char *key, size_t *out)
{
  char path[LINE_BYTES], line[256];
  const size_t key_bytes = key == NULL ? 0 : strlen(key);
  bool found = false;
  const int size = snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = size < 0 || (size_t)size >= sizeof path ? NULL : fopen(path, "re");
  if (file == NULL) return false;
  while (!found && fgets(line, sizeof line, file) != NULL) {
    if (key != NULL && (strncmp(line, key, key_bytes) != 0 || line[key_bytes] != ' ')) continue;
    found = sscanf(line + key_bytes, "%zu", out) == 1;
  }
  fclose(file);
  return found;
}

// Pages of the file cache count as used, but the kernel drops them when memory is asked for.
static void apply_group(const char *root, const char *folder, const group_files *files,
                        tri_memory_limits *out)
{
  size_t limit = 0, usage = 0, inactive = 0, active = 0;
  if (!read_number(folder, files->limit, NULL, &limit)) return;
  if (!read_number(folder, files->usage, NULL, &usage)) return;
  (void)read_number(folder, "memory.stat", files->inactive, &inactive);
  (void)read_number(folder, "memory.stat", files->active, &active);
  const size_t cache = inactive + active;
  const size_t used = cache < usage ? usage - cache : 0;
  const size_t left = used < limit ? limit - used : 0;
  if (limit < out->total_bytes) out->total_bytes = limit;
  if (left >= out->free_bytes) return;
  out->free_bytes = left;
  snprintf(out->least, sizeof out->least, "the limit of %zu bytes in %.400s/%s", limit,
           folder + strlen(root), files->limit);
}

// The group and all above it. In a container the file system may begin at the container's own group
// while /proc names it as the host does: a folder that is missing is passed over.
static void apply_tree(const char *root, const char *group, const group_files *files,
                       tri_memory_limits *out)
{
  char folder[LINE_BYTES];
  const size_t mount_bytes = strlen(root) + strlen(files->mount);
  // A group outside of the part that is mounted is named with "..": nothing to see but the part.
  const bool whole = strcmp(group, "/") == 0 || strstr(group, "/..") != NULL;
  const int size =
      snprintf(folder, sizeof folder, "%s%s%s", root, files->mount, whole ? "" : group);
  if (size < 0 || (size_t)size >= sizeof folder) return;
  for (;;) {
    apply_group(root, folder, files, out);
    char *last = strrchr(folder + mount_bytes, '/');
    if (last == NULL) return;
    *last = '\0';
  }
}

// Is `memory` one of the controllers between commas?
static bool has_memory(const char *controllers, size_t size)
{
  for (size_t at = 0; at < size; at += strcspn(controllers + at, ",:") + 1) {
    if (strcspn(controllers + at, ",:") == 6 && strncmp(controllers + at, "memory", 6) == 0)
      return true;
  }
  return false;
}

// Lines "NUMBER:CONTROLLERS:GROUP"; version 2 has no controllers there.
static void apply_groups(const char *root, tri_memory_limits *out)
{
  char path[PATH_MAX], line[LINE_BYTES];
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *file = fopen(path, "re");
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    const char *controllers = strchr(line, ':');
    const char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL) continue;
    controllers++;
    if (controllers == group)
      apply_tree(root, group + 1, &version_2, out);
    else if (has_memory(controllers, (size_t)(group - controllers)))
      apply_tree(root, group + 1, &version_1, out);
  }
  fclose(file);
}

tri_status tri_memory_limits_read(const char *root, tri_memory_limits *out)
{
  TRI_CALL(read_machine(root, out));
  apply_groups(root, out);
  return TRI_OK;
}
