#include "data/pretokenizer.h"

#include "data/utf8.h"

// White_Space is the separators (Z) and these controls. PCRE2's own \s adds U+180E.
#define SPACE "\\p{Z}\\x{09}-\\x{0d}\\x{85}"

static const char PATTERN[] = "'s|'t|'re|'ve|'m|'ll|'d"
                              "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+"
                              "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";

tri_status tri_pretokenizer_create(pcre2_code **out)
{
  int error = 0;
  size_t place = 0;
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_ANCHORED, &error, &place, NULL);
  if (code == NULL) {
    char reason[256] = "";
    (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
    return TRI_ERROR(TRI_ERR_UNSUPPORTED, "PCRE2 refuses the pre-tokenization rule: %s", reason);
  }
  // Where the machine forbids code made at run time, PCRE2 interprets: the same pieces, slower.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  *out = code;
  return TRI_OK;
}

tri_status tri_pieces_next(tri_pieces *pieces, size_t *end)
{
  const size_t at = pieces->at;
  TRI_ASSERT(at < pieces->size_bytes);
  if (at >= pieces->run_end) {
    pieces->run_begin = at;
    pieces->run_end = at + tri_utf8_valid_bytes(pieces->text + at, pieces->size_bytes - at);
  }
  if (pieces->run_end == at) {
    pieces->at = *end = at + 1;
    return TRI_OK;
  }
  const uint8_t *run = pieces->text + pieces->run_begin;
  const int found = pcre2_match(pieces->code, run, pieces->run_end - pieces->run_begin,
                                at - pieces->run_begin, PCRE2_NO_UTF_CHECK, pieces->match, NULL);
  TRI_CHECK(found > 0, TRI_ERR_INTERNAL, "PCRE2 finds no piece at byte %zu: error %d", at, found);
  pieces->at = *end = pieces->run_begin + pcre2_get_ovector_pointer(pieces->match)[1];
  TRI_ASSERT(*end > at);
  return TRI_OK;
}
