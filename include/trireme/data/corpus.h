// A corpus: one HDF5 file of tokens, with its splits and the tokenizer that made it.
//
// Layout (docs/corpus-format.md): attributes format ("trireme-corpus"), version, tokenizer_name,
// tokenizer_digest, vocab_size; dataset /tokenizer (JSON text); groups /train and /validation, each
// with attribute n_bytes (of text) and a contiguous dataset `tokens` (uint16 up to 65,536 entries
// in the vocabulary, else uint32). Local.
#pragma once

#include <stdint.h>

#include "trireme/base/digest.h"
#include "trireme/base/status.h"
#include "trireme/data/tokenizer.h"

typedef struct tri_corpus tri_corpus;

typedef enum tri_split { TRI_SPLIT_TRAIN, TRI_SPLIT_VALIDATION } tri_split;

typedef struct tri_corpus_facts {
  char tokenizer_name[128];
  tri_digest tokenizer_digest;
  int vocab_size;
  int64_t n_tokens[2]; // by tri_split
  int64_t n_bytes[2];  // of the text they came from
} tri_corpus_facts;

// Tokenizes the files `paths` (concatenated in order) into `out_path`, whole or not at all
// (temporary name, fsync, rename). The last `validation_fraction` of the bytes, cut at a line end,
// is the validation split. Progress goes to the log. TRI_ERR_IO names the file that cannot be read
// or written, TRI_ERR_FORMAT an empty text.
TRI_MUST_CHECK tri_status tri_corpus_build(const char *const *paths, int n_paths,
                                           const tri_tokenizer *tokenizer,
                                           double validation_fraction, const char *out_path);

// Opens in milliseconds whatever the size: nothing but headers is read. TRI_ERR_FORMAT when the
// file is truncated or not a corpus, naming what is missing. *out owned.
TRI_MUST_CHECK tri_status tri_corpus_open(const char *path, tri_corpus **out);
void tri_corpus_close(tri_corpus **corpus);

void tri_corpus_get_facts(const tri_corpus *corpus, tri_corpus_facts *out);

// The corpus's own tokenizer; *out owned.
TRI_MUST_CHECK tri_status tri_corpus_tokenizer(const tri_corpus *corpus, tri_tokenizer **out);

// tokens [first, first + n) of a split as 32-bit numbers. Thread-safe, calls no HDF5 (pread on the
// dataset's place in the file). TRI_ERR_FORMAT when the file has shrunk or a token is not below
// vocab_size.
TRI_MUST_CHECK tri_status tri_corpus_read(const tri_corpus *corpus, tri_split split, int64_t first,
                                          int64_t n, int32_t *out);
