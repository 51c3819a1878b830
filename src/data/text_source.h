// Several files read as one text. Local.
#pragma once

#include <stdint.h>

#include "trireme/base/status.h"

typedef struct tri_text_source tri_text_source;

// Opens the files once each, so that a missing one is told before any work. TRI_ERR_IO names the
// file that cannot be read or is not a regular file. paths borrowed: must outlive the source. *out
// owned.
TRI_MUST_CHECK tri_status tri_text_source_open(const char *const *paths, int n_paths,
                                               tri_text_source **out);
void tri_text_source_close(tri_text_source **source);

int64_t tri_text_source_size(const tri_text_source *source);

// bytes [first, first + n) of the text. TRI_ERR_IO when a file has shrunk since it was opened.
TRI_MUST_CHECK tri_status tri_text_source_read(tri_text_source *source, int64_t first, size_t n,
                                               void *out);

// Where the last `fraction` of the bytes begins: behind the first line end at or after the exact
// place; behind the last one before it when that leaves nothing; in a text of one line, at the
// first character (UTF-8) at or after the exact place. fraction 0 gives the size of the text.
TRI_MUST_CHECK tri_status tri_text_source_cut(tri_text_source *source, double fraction,
                                              int64_t *cut);
