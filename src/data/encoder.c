#include "data/encoder.h"

#include <string.h>

#include "data/bpe_merge.h"
#include "data/tokenizer_parts.h"
#include "trireme/base/memory.h"

enum { CACHE_SLOTS = 1 << 14, CACHE_PIECE_BYTES = 22, CACHE_IDS = 10 };

// The tokens of a piece met before; one cache line. n_ids == 0: empty.
typedef struct cached_piece {
  uint8_t n_bytes, n_ids;
  uint8_t bytes[CACHE_PIECE_BYTES];
  int32_t ids[CACHE_IDS];
} cached_piece;

struct tri_encoder {
  const tri_tokenizer *tokenizer;
  pcre2_match_data *match;
  tri_merge_work *work;
  cached_piece *cache; // a piece has one slot; the last one wins it
};

static tri_status create_parts(tri_encoder *encoder)
{
  encoder->match = pcre2_match_data_create(1, NULL);
  TRI_CHECK(encoder->match != NULL, TRI_ERR_MEMORY, "PCRE2 gets no memory for its matches");
  TRI_CALL(tri_merge_work_create(&encoder->work));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, CACHE_SLOTS, &encoder->cache));
  return TRI_OK;
}

tri_status tri_encoder_create(const tri_tokenizer *tokenizer, tri_encoder **out)
{
  tri_encoder *encoder = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 1, &encoder));
  encoder->tokenizer = tokenizer;
  const tri_status status = tokenizer->bpe == NULL ? TRI_OK : create_parts(encoder);
  if (status != TRI_OK) tri_encoder_destroy(&encoder);
  TRI_CALL(status);
  *out = encoder;
  return TRI_OK;
}

void tri_encoder_destroy(tri_encoder **encoder)
{
  if (*encoder == NULL) return;
  pcre2_match_data_free((*encoder)->match);
  tri_merge_work_destroy(&(*encoder)->work);
  tri_free((*encoder)->cache);
  TRI_FREE(encoder);
}

static cached_piece *cache_slot(const tri_encoder *encoder, const uint8_t *piece, size_t n)
{
  uint64_t hash = n;
  for (size_t i = 0; i < n; i++)
    hash = (hash ^ piece[i]) * 0x100000001b3ull;
  return &encoder->cache[(hash ^ hash >> 32) % CACHE_SLOTS];
}

static tri_status encode_piece(tri_encoder *encoder, const uint8_t *piece, size_t n, int32_t *ids,
                               int64_t *n_ids)
{
  const tri_bpe *bpe = encoder->tokenizer->bpe;
  if (n > CACHE_PIECE_BYTES) return tri_bpe_merge_piece(bpe, encoder->work, piece, n, ids, n_ids);
  cached_piece *slot = cache_slot(encoder, piece, n);
  if (slot->n_ids > 0 && slot->n_bytes == n && memcmp(slot->bytes, piece, n) == 0) {
    memcpy(ids, slot->ids, slot->n_ids * sizeof *ids);
    *n_ids = slot->n_ids;
    return TRI_OK;
  }
  TRI_CALL(tri_bpe_merge_piece(bpe, encoder->work, piece, n, ids, n_ids));
  if (*n_ids > CACHE_IDS) return TRI_OK;
  slot->n_bytes = (uint8_t)n;
  slot->n_ids = (uint8_t)*n_ids;
  memcpy(slot->bytes, piece, n);
  memcpy(slot->ids, ids, (size_t)*n_ids * sizeof *ids);
  return TRI_OK;
}

static void encode_bytes(const uint8_t *text, size_t size_bytes, int32_t *ids)
{
  for (size_t i = 0; i < size_bytes; i++)
    ids[i] = text[i];
}

tri_status tri_encoder_encode(tri_encoder *encoder, const void *text, size_t size_bytes, bool last,
                              int32_t *ids, int64_t *n_ids, size_t *consumed)
{
  tri_pieces pieces = {.code = encoder->tokenizer->code,
                       .match = encoder->match,
                       .text = text,
                       .size_bytes = size_bytes};
  int64_t n = 0;
  size_t done = 0;
  if (encoder->tokenizer->bpe == NULL) {
    encode_bytes(text, size_bytes, ids);
    n = (int64_t)size_bytes;
    done = size_bytes;
  }
  while (done < size_bytes) {
    size_t end;
    int64_t n_piece;
    TRI_CALL(tri_pieces_next(&pieces, &end));
    // This end could still move when the text goes on.
    if (!last && end + TRI_PIECE_MARGIN_BYTES > size_bytes) break;
    TRI_CALL(encode_piece(encoder, pieces.text + done, end - done, ids + n, &n_piece));
    n += n_piece;
    done = end;
  }
  *n_ids = n;
  *consumed = done;
  return TRI_OK;
}
