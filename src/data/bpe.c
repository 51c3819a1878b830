#include "data/bpe.h"

#include <limits.h>
#include <string.h>

#include "data/byte_alphabet.h"
#include "trireme/base/memory.h"

// More than any published vocabulary, and ids, ranks and table sizes stay far inside 32 bits.
enum { MOST_ENTRIES = 1 << 24 };

// A power of two, at least twice n.
static uint32_t table_slots(int64_t n)
{
  uint32_t slots = 16;
  while (slots < 2 * n)
    slots *= 2;
  return slots;
}

static tri_status create_tables(tri_bpe *bpe)
{
  const uint32_t n_pairs = table_slots(bpe->merge_room), n_texts = table_slots(bpe->token_room);
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, bpe->token_room, &bpe->tokens));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, bpe->text_bytes, &bpe->text));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, bpe->merge_room, &bpe->merges));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, n_texts, &bpe->by_text));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, n_pairs, &bpe->pairs));
  bpe->text_mask = n_texts - 1;
  bpe->pair_mask = n_pairs - 1;
  for (uint32_t i = 0; i < n_pairs; i++)
    bpe->pairs[i].rank = -1;
  for (int32_t i = 0; i < bpe->token_room; i++)
    bpe->tokens[i].size_bytes = -1; // no such token yet
  return TRI_OK;
}

tri_status tri_bpe_create(const char *file, int64_t n_tokens, int64_t text_bytes, int64_t n_merges,
                          tri_bpe **out)
{
  tri_bpe *bpe = NULL;
  TRI_CHECK(n_tokens <= MOST_ENTRIES && n_merges <= MOST_ENTRIES, TRI_ERR_FORMAT,
            "%s: %lld tokens and %lld merges are more than the %d that are read", file,
            (long long)n_tokens, (long long)n_merges, MOST_ENTRIES);
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 1, &bpe));
  bpe->token_room = (int32_t)n_tokens;
  bpe->merge_room = (int32_t)n_merges;
  bpe->text_bytes = text_bytes;
  const tri_status status = create_tables(bpe);
  if (status != TRI_OK) tri_bpe_destroy(&bpe);
  TRI_CALL(status);
  *out = bpe;
  return TRI_OK;
}

void tri_bpe_destroy(tri_bpe **bpe)
{
  if (*bpe == NULL) return;
  tri_free((*bpe)->tokens);
  tri_free((*bpe)->text);
  tri_free((*bpe)->merges);
  tri_free((*bpe)->by_text);
  tri_free((*bpe)->pairs);
  TRI_FREE(bpe);
}

// FNV-1a.
static uint32_t text_hash(const char *text, size_t n)
{
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < n; i++)
    hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3ull;
  return (uint32_t)(hash ^ hash >> 32);
}

static bool is_text_of(const tri_bpe *bpe, const tri_bpe_token *token, const char *text, size_t n)
{
  return (size_t)token->size_bytes == n && memcmp(bpe->text + token->at, text, n) == 0;
}

// The slot that holds the id of a text, or the empty one where it belongs.
static int32_t *find_text(const tri_bpe *bpe, const char *text, size_t n)
{
  for (uint32_t slot = text_hash(text, n);; slot++) {
    int32_t *entry = &bpe->by_text[slot & bpe->text_mask];
    if (*entry == 0) return entry;
    if (is_text_of(bpe, &bpe->tokens[*entry - 1], text, n)) return entry;
  }
}

static tri_status check_id(const tri_bpe *bpe, const char *file, const char *written, int64_t id)
{
  TRI_CHECK(id >= 0 && id < bpe->token_room, TRI_ERR_FORMAT,
            "%s: token '%.64s' has id %lld, with %d entries it must be 0 to %d", file, written,
            (long long)id, bpe->token_room, bpe->token_room - 1);
  return TRI_OK;
}

tri_status tri_bpe_add_added_token(tri_bpe *bpe, const char *file, const char *content, int64_t id)
{
  const size_t n = strlen(content);
  TRI_CALL(check_id(bpe, file, content, id));
  tri_bpe_token *token = &bpe->tokens[id];
  TRI_CHECK(token->size_bytes < 0, TRI_ERR_FORMAT, "%s: two added tokens have id %lld", file,
            (long long)id);
  TRI_ASSERT(bpe->text_used + (int64_t)n <= bpe->text_bytes);
  *token = (tri_bpe_token){.at = bpe->text_used, .size_bytes = (int32_t)n, .added = true};
  memcpy(bpe->text + bpe->text_used, content, n);
  bpe->text_used += (int64_t)n;
  return TRI_OK;
}

tri_status tri_bpe_add_token(tri_bpe *bpe, const char *file, const char *written, int64_t id)
{
  const size_t room = strlen(written);
  char *bytes = bpe->text + bpe->text_used;
  size_t n = 0;
  TRI_CALL(check_id(bpe, file, written, id));
  tri_bpe_token *token = &bpe->tokens[id];
  TRI_CHECK(token->size_bytes < 0 || (token->added && !token->in_vocab), TRI_ERR_FORMAT,
            "%s: token '%.64s' has id %lld, which another token has too", file, written,
            (long long)id);
  TRI_ASSERT(bpe->text_used + (int64_t)room <= bpe->text_bytes);
  token->in_vocab = true;
  const bool written_in_alphabet = tri_byte_alphabet_bytes(written, room, (uint8_t *)bytes, &n);
  // An added token keeps its own text; merges can make it only when that is the same.
  if (token->added && (!written_in_alphabet || !is_text_of(bpe, token, bytes, n))) return TRI_OK;
  TRI_CHECK(
      written_in_alphabet, TRI_ERR_FORMAT,
      "%s: token '%.64s' (id %lld) is not written in the byte-level alphabet: only byte-level "
      "encodings are read",
      file, written, (long long)id);
  int32_t *entry = find_text(bpe, bytes, n);
  TRI_CHECK(*entry == 0, TRI_ERR_FORMAT, "%s: token '%.64s' has two ids, %d and %lld", file,
            written, *entry - 1, (long long)id);
  *entry = (int32_t)id + 1;
  if (token->added) return TRI_OK;
  token->at = bpe->text_used;
  token->size_bytes = (int32_t)n;
  bpe->text_used += (int64_t)n;
  return TRI_OK;
}

tri_status tri_bpe_end_tokens(tri_bpe *bpe, const char *file)
{
  while (bpe->n_tokens < bpe->token_room && bpe->tokens[bpe->n_tokens].size_bytes >= 0)
    bpe->n_tokens++;
  for (int32_t id = bpe->n_tokens; id < bpe->token_room; id++) {
    TRI_CHECK(bpe->tokens[id].size_bytes < 0, TRI_ERR_FORMAT,
              "%s: no token has id %d, but one has id %d: ids must be without gaps", file,
              bpe->n_tokens, id);
  }
  for (int byte = 0; byte < 256; byte++) {
    const char text = (char)byte;
    const int32_t entry = *find_text(bpe, &text, 1);
    TRI_CHECK(entry != 0, TRI_ERR_FORMAT,
              "%s: no token stands for byte 0x%02x alone: not every text could be encoded", file,
              (unsigned)byte);
    bpe->byte_tokens[byte] = entry - 1;
  }
  return TRI_OK;
}

// The id of a token as it is written in a merge; its bytes go to `bytes`.
static tri_status find_part(const tri_bpe *bpe, const char *file, const char *place,
                            const char *written, size_t written_bytes, char *bytes, size_t *n,
                            int32_t *id)
{
  const int32_t entry = tri_byte_alphabet_bytes(written, written_bytes, (uint8_t *)bytes, n)
                            ? *find_text(bpe, bytes, *n)
                            : 0;
  TRI_CHECK(entry != 0, TRI_ERR_FORMAT, "%s: merge %s: '%.*s' is no token of the vocabulary", file,
            place, (int)(written_bytes < 64 ? written_bytes : 64), written);
  *id = entry - 1;
  return TRI_OK;
}

static tri_status insert_pair(tri_bpe *bpe, const char *file, const char *place,
                              const tri_bpe_merge *merge)
{
  const int32_t rank = tri_bpe_rank(bpe, merge->left, merge->right);
  TRI_CHECK(rank < 0, TRI_ERR_FORMAT, "%s: merge %s is there already, as number %d", file, place,
            rank);
  const uint64_t key = (uint64_t)(uint32_t)merge->left << 32 | (uint32_t)merge->right;
  uint32_t slot = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32);
  while (bpe->pairs[slot & bpe->pair_mask].rank >= 0)
    slot++;
  bpe->pairs[slot & bpe->pair_mask] = (tri_bpe_pair){merge->left, merge->right, bpe->n_merges};
  bpe->merges[bpe->n_merges++] = *merge;
  return TRI_OK;
}

tri_status tri_bpe_add_merge(tri_bpe *bpe, const char *file, const char *place, const char *left,
                             size_t left_bytes, const char *right, size_t right_bytes)
{
  tri_status status = TRI_OK;
  char *bytes = NULL;
  tri_bpe_merge merge = {0};
  size_t n_left = 0, n_right = 0;
  TRI_ASSERT(bpe->n_merges < bpe->merge_room);
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, left_bytes + right_bytes, &bytes));
  TRI_CALL_GOTO(done, find_part(bpe, file, place, left, left_bytes, bytes, &n_left, &merge.left));
  TRI_CALL_GOTO(done, find_part(bpe, file, place, right, right_bytes, bytes + n_left, &n_right,
                                &merge.right));
  merge.result = *find_text(bpe, bytes, n_left + n_right) - 1;
  TRI_CHECK_GOTO(done, merge.result >= 0, TRI_ERR_FORMAT,
                 "%s: merge %s: '%.*s%.*s', which it makes, is no token of the vocabulary", file,
                 place, (int)(left_bytes < 64 ? left_bytes : 64), left,
                 (int)(right_bytes < 64 ? right_bytes : 64), right);
  TRI_CALL_GOTO(done, insert_pair(bpe, file, place, &merge));
done:
  tri_free(bytes);
  return status;
}

void tri_bpe_end_merges(tri_bpe *bpe)
{
  TRI_FREE(&bpe->by_text);
}

static void add_number(tri_digest_state *state, int32_t number)
{
  const uint32_t n = (uint32_t)number;
  const uint8_t bytes[4] = {n & 0xff, n >> 8 & 0xff, n >> 16 & 0xff, n >> 24};
  tri_digest_add(state, bytes, sizeof bytes);
}

void tri_bpe_digest(const tri_bpe *bpe, tri_digest *out)
{
  tri_digest_state state;
  tri_digest_begin(&state);
  tri_digest_add(&state, "bpe", strlen("bpe"));
  add_number(&state, bpe->n_tokens);
  for (int32_t id = 0; id < bpe->n_tokens; id++) {
    add_number(&state, bpe->tokens[id].size_bytes);
    tri_digest_add(&state, bpe->text + bpe->tokens[id].at, (size_t)bpe->tokens[id].size_bytes);
  }
  add_number(&state, bpe->n_merges);
  for (int32_t rank = 0; rank < bpe->n_merges; rank++) {
    add_number(&state, bpe->merges[rank].left);
    add_number(&state, bpe->merges[rank].right);
  }
  tri_digest_end(&state, out);
}
