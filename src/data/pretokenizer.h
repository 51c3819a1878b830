// The GPT-2 rule that cuts a text into pieces before merging (Radford et al. 2019, encoder.py):
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// with \s the Unicode property White_Space. Every text is cut into pieces without a gap. A byte
// that is part of no valid UTF-8 character is a piece of its own, and the rule is applied to each
// stretch of valid UTF-8 between such bytes as if it were the whole text. Local.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/base/status.h"

// Where a piece ends depends on no byte that comes more than this behind its end: the rule looks at
// two characters at most, of four bytes each.
enum { TRI_PIECE_MARGIN_BYTES = 8 };

// *out owned: pcre2_code_free. May be shared between threads.
TRI_MUST_CHECK tri_status tri_pretokenizer_create(pcre2_code **out);

// Walks over the pieces of one text.
typedef struct tri_pieces {
  const pcre2_code *code;
  pcre2_match_data *match;
  const uint8_t *text;
  size_t size_bytes;
  size_t at;      // where the next piece begins
  size_t run_end; // the end of the valid stretch that holds `at`, at most `at` when not yet known
  size_t run_begin;
} tri_pieces;

// The end of the next piece, which begins at pieces->at < size_bytes; the walk moves behind it.
TRI_MUST_CHECK tri_status tri_pieces_next(tri_pieces *pieces, size_t *end);
