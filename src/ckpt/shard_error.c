#include "ckpt/shard_error.h"

#include <stdio.h>

void tri_shard_quiet(void)
{
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

// The innermost entry is the first of an upward walk.
static herr_t take_first(unsigned n, const H5E_error2_t *entry, void *user)
{
  char *text = user;
  if (n == 0 && entry->desc != NULL) snprintf(text, 400, "%s", entry->desc);
  return n == 0 ? 0 : 1;
}

tri_status tri_shard_error_set(tri_status code, const char *function, const char *file, int line,
                               const char *path, const char *what)
{
  char reason[400] = "no reason given";
  (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, reason);
  (void)H5Eclear2(H5E_DEFAULT);
  return tri_error_set(code, function, file, line, "%s: %s: %s", path, what, reason);
}
