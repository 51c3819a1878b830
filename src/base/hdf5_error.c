#include "trireme/base/hdf5_error.h"

#include <hdf5.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tri_hdf5_quiet(void)
{
  // Fails only when the library cannot start, and then the next call says so.
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

typedef struct reason_text {
  char *buffer;
  size_t size;
} reason_text;

// A failed system call is described as "what failed: time = …, error message = 'why', …", over two
// lines: only what failed and why is kept.
static void write_reason(const reason_text *text, const char *description)
{
  static const char mark[] = "error message = '";
  const char *why = strstr(description, mark);
  const int what_bytes = (int)strcspn(description, why == NULL ? "\n" : ":\n");
  if (why == NULL) {
    snprintf(text->buffer, text->size, "%.*s", what_bytes, description);
    return;
  }
  why += strlen(mark);
  snprintf(text->buffer, text->size, "%.*s: %.*s", what_bytes, description, (int)strcspn(why, "'"),
           why);
}

// The innermost entry is the first of an upward walk.
static herr_t keep_first(unsigned place, const H5E_error2_t *entry, void *data)
{
  if (place == 0 && entry->desc != NULL) write_reason(data, entry->desc);
  return 0;
}

tri_status tri_hdf5_error_set(tri_status code, const char *function, const char *file, int line,
                              const char *format, ...)
{
  char reason[256] = "unknown reason", message[PATH_MAX + 256];
  reason_text text = {reason, sizeof reason};
  va_list arguments;
  (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  (void)H5Eclear2(H5E_DEFAULT);
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return tri_error_set(code, function, file, line, "%s: %s", message, reason);
}
