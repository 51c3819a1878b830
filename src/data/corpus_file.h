// The HDF5 side of a corpus: everything but the content of its datasets, which is read and written
// by place. Local; calls HDF5, so one thread at a time.
#pragma once

#include "trireme/data/corpus.h"

enum { TRI_CORPUS_VERSION = 1 };

// What a corpus file says about itself, and where its datasets lie.
typedef struct tri_corpus_shape {
  tri_corpus_facts facts;
  int token_bytes;         // 2 or 4
  int64_t tokenizer_bytes; // of the tokenizer's JSON text
  int64_t tokenizer_at;    // place in the file
  int64_t tokens_at[2];    // by tri_split; 0 when the split is empty
} tri_corpus_shape;

// 2 where 16 bits hold every token, else 4.
int tri_corpus_token_bytes(int vocab_size);

// Makes the bytes of a corpus file, in a nameless file in memory: all headers, and holes where the
// datasets go.
//   path   where the corpus will be: named in errors, and made as an empty file
//   shape  facts, token_bytes and tokenizer_bytes are read; the places are written
//   *fd    the file in memory, owned by the caller (close)
TRI_MUST_CHECK tri_status tri_corpus_file_create(const char *path, tri_corpus_shape *shape,
                                                 int *fd);

// Reads the headers, and nothing else, and checks that the datasets lie inside the file. *fd is the
// file open for reading, owned by the caller (close).
TRI_MUST_CHECK tri_status tri_corpus_file_open(const char *path, tri_corpus_shape *shape, int *fd);
