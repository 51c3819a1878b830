#include "data/encoder.h"

#include "data/tokenizer_parts.h"
#include "trireme/base/memory.h"

struct tri_encoder {
  const tri_tokenizer *tokenizer;
};

tri_status tri_encoder_create(const tri_tokenizer *tokenizer, tri_encoder **out)
{
  tri_encoder *encoder = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 1, &encoder));
  encoder->tokenizer = tokenizer;
  *out = encoder;
  return TRI_OK;
}

void tri_encoder_destroy(tri_encoder **encoder)
{
  TRI_FREE(encoder);
}

tri_status tri_encoder_encode(tri_encoder *encoder, const void *text, size_t size_bytes, bool last,
                              int32_t *ids, int64_t *n_ids, size_t *consumed)
{
  const uint8_t *bytes = text;
  (void)encoder;
  (void)last;
  for (size_t i = 0; i < size_bytes; i++)
    ids[i] = bytes[i];
  *n_ids = (int64_t)size_bytes;
  *consumed = size_bytes;
  return TRI_OK;
}
