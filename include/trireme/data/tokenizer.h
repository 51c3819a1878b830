// Tokenizers: bytes to token numbers and back. Local; a tokenizer is read-only after opening and
// may be shared.
//
// "bytes" is the embedded default: token = byte value, 256 of them. A file is a byte-pair encoding:
// a `tokenizer.json` (model.type BPE, byte-level), or a `vocab.json` (also encoder.json) with
// `merges.txt` (also vocab.bpe) beside it, split by the GPT-2 rule (PCRE2, Unicode classes) before
// merging. decode(encode(x)) == x for every string of bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trireme/base/digest.h"
#include "trireme/base/status.h"

typedef struct tri_tokenizer tri_tokenizer;

// TRI_ERR_IO / TRI_ERR_FORMAT name the file and what is wrong in it. *out owned.
TRI_MUST_CHECK tri_status tri_tokenizer_open(const char *bytes_or_path, tri_tokenizer **out);
void tri_tokenizer_close(tri_tokenizer **tokenizer);

const char *
tri_tokenizer_name(const tri_tokenizer *tokenizer); // "bytes", or the kind and file name
int tri_tokenizer_vocab_size(const tri_tokenizer *tokenizer);
// A digest of the vocabulary and merges themselves, not of the file they came from.
void tri_tokenizer_digest(const tri_tokenizer *tokenizer, tri_digest *out);

// Appends nothing of its own (no special tokens). *ids owned by the caller (tri_free).
TRI_MUST_CHECK tri_status tri_tokenizer_encode(const tri_tokenizer *tokenizer, const void *text,
                                               size_t size_bytes, int32_t **ids, int64_t *n_ids);

// TRI_ERR_ARGUMENT for a number that is no token. *text owned by the caller, zero-terminated beyond
// *size_bytes.
TRI_MUST_CHECK tri_status tri_tokenizer_decode(const tri_tokenizer *tokenizer, const int32_t *ids,
                                               int64_t n_ids, char **text, size_t *size_bytes);

// The tokenizer as one JSON text that tri_tokenizer_open reads back from a file ("bytes" included),
// so that corpora and run folders carry their own. *json owned by the caller.
TRI_MUST_CHECK tri_status tri_tokenizer_to_json(const tri_tokenizer *tokenizer, char **json);
// The same from memory.
TRI_MUST_CHECK tri_status tri_tokenizer_from_json(const char *json, size_t size_bytes,
                                                  const char *name, tri_tokenizer **out);
