#include "data/hdf5_error.h"

#include <stdio.h>

void tri_hdf5_quiet(void)
{
  // Fails only when the library cannot start, and then the next call says so.
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

typedef struct reason_text {
  char *buffer;
  size_t size;
} reason_text;

static herr_t keep_first(unsigned place, const H5E_error2_t *entry, void *data)
{
  const reason_text *text = data;
  if (place == 0 && entry->desc != NULL) snprintf(text->buffer, text->size, "%s", entry->desc);
  return 0;
}

void tri_hdf5_reason(char *buffer, size_t size)
{
  reason_text text = {buffer, size};
  snprintf(buffer, size, "unknown reason");
  (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
}
