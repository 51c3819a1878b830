// What a tokenizer is made of; shared by the files of this module. Local.
#pragma once

#include "data/bpe.h"
#include "data/pretokenizer.h"
#include "trireme/data/tokenizer.h"

enum { TRI_TOKENIZER_NAME_BYTES = 128, TRI_TOKENIZER_FILE_BYTES = 1 << 28 };

struct tri_tokenizer {
  char name[TRI_TOKENIZER_NAME_BYTES];
  int vocab_size;
  tri_digest digest;
  tri_bpe *bpe; // NULL: bytes
  pcre2_code *code;
};

// The encoding in the text of a `tokenizer.json`; NULL for {"model": {"type": "bytes"}}. `file`
// names it in messages. *out owned.
TRI_MUST_CHECK tri_status tri_bpe_from_json(const char *file, const char *json, size_t size_bytes,
                                            tri_bpe **out);

// The encoding in the texts of a `vocab.json` and a `merges.txt`. *out owned.
TRI_MUST_CHECK tri_status tri_bpe_from_lists(const char *vocab_file, const char *vocab,
                                             size_t vocab_bytes, const char *merges_file,
                                             const char *merges, size_t merges_bytes,
                                             tri_bpe **out);

// The text of a `tokenizer.json` that other programs read too; of bytes when bpe is NULL. *json
// owned by the caller (tri_free).
TRI_MUST_CHECK tri_status tri_bpe_to_json(const tri_bpe *bpe, char **json);

// Reads the files behind the path that a user gives: a `tokenizer.json`, a vocabulary with its
// merges beside it, or a folder that holds them.
//   name  the kind and the file that was named or found, cut to fit
//   *out  NULL: bytes
TRI_MUST_CHECK tri_status tri_bpe_from_path(const char *path, char name[TRI_TOKENIZER_NAME_BYTES],
                                            tri_bpe **out);
