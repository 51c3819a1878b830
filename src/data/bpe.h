// A byte-pair encoding: tokens, which are strings of bytes, and merges of two tokens into one, the
// first merge being the strongest. Local; read-only once it is filled.
#pragma once

#include <stdbool.h>

#include "trireme/base/digest.h"
#include "trireme/base/status.h"

typedef struct tri_bpe_token {
  int64_t at; // in tri_bpe.text
  int32_t size_bytes;
  bool in_vocab; // an entry of the vocabulary: merges may name it
  bool added;    // an added token, known by its own text, not by the byte alphabet
} tri_bpe_token;

typedef struct tri_bpe_merge {
  int32_t left, right, result;
} tri_bpe_merge;

// One slot of the table of merges; rank < 0: empty.
typedef struct tri_bpe_pair {
  int32_t left, right, rank;
} tri_bpe_pair;

typedef struct tri_bpe {
  int32_t n_tokens;
  tri_bpe_token *tokens; // by id
  char *text;
  int32_t byte_tokens[256];
  int32_t n_merges;
  tri_bpe_merge *merges; // by rank
  tri_bpe_pair *pairs;   // open addressing, (pair_mask + 1) slots, at most half of them used
  uint32_t pair_mask;
  int64_t text_used, text_bytes;
  int32_t token_room, merge_room;
  int32_t *by_text; // ids + 1 of vocabulary entries by their bytes, 0: empty; while it is filled
  uint32_t text_mask;
} tri_bpe;

// Room for an encoding of at most so many tokens (of so many bytes together, as they are written in
// their file) and merges. `file` names the origin in all messages below. *out owned.
TRI_MUST_CHECK tri_status tri_bpe_create(const char *file, int64_t n_tokens, int64_t text_bytes,
                                         int64_t n_merges, tri_bpe **out);
void tri_bpe_destroy(tri_bpe **bpe);

// Added tokens come first, then the vocabulary (written in the byte alphabet), then
// tri_bpe_end_tokens, then the merges in their order, then tri_bpe_end_merges. All errors are
// TRI_ERR_FORMAT and name the entry.
TRI_MUST_CHECK tri_status tri_bpe_add_added_token(tri_bpe *bpe, const char *file,
                                                  const char *content, int64_t id);
TRI_MUST_CHECK tri_status tri_bpe_add_token(tri_bpe *bpe, const char *file, const char *written,
                                            int64_t id);

// Checks that the ids are 0 to n - 1 and that every byte has a token.
TRI_MUST_CHECK tri_status tri_bpe_end_tokens(tri_bpe *bpe, const char *file);

// The two parts are written in the byte alphabet and need no end; `place` says where the merge
// stands ("line 7").
TRI_MUST_CHECK tri_status tri_bpe_add_merge(tri_bpe *bpe, const char *file, const char *place,
                                            const char *left, size_t left_bytes, const char *right,
                                            size_t right_bytes);
void tri_bpe_end_merges(tri_bpe *bpe);

// The digest of tokens and merges: the same whatever file they came from.
void tri_bpe_digest(const tri_bpe *bpe, tri_digest *out);

// The rank of the merge of two tokens, -1 when there is none.
static inline int32_t tri_bpe_rank(const tri_bpe *bpe, int32_t left, int32_t right)
{
  const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  // Fibonacci hashing: the high half of the product depends on all bits.
  uint32_t slot = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32);
  for (;; slot++) {
    const tri_bpe_pair *pair = &bpe->pairs[slot & bpe->pair_mask];
    if (pair->rank < 0 || (pair->left == left && pair->right == right)) return pair->rank;
  }
}
