// Putting a corpus file together, whole or not at all. Local; calls HDF5, so one thread at a time.
#pragma once

#include "data/corpus_file.h"

// Writes n bytes at a place of an open file; TRI_ERR_IO names `path`.
TRI_MUST_CHECK tri_status tri_corpus_write_at(const char *path, int fd, const void *data, size_t n,
                                              int64_t at);

// Writes `out_path` by temporary name, fsync and rename.
//   shape      facts, token_bytes and tokenizer_bytes are read; the places are written
//   json       tokenizer_bytes of text
//   tokens_fd  both splits one after the other, as they are stored, from byte 0 on; borrowed
TRI_MUST_CHECK tri_status tri_corpus_write(const char *out_path, tri_corpus_shape *shape,
                                           const char *json, int tokens_fd);
