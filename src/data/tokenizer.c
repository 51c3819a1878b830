#include "trireme/data/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "data/encoder.h"
#include "data/tokenizer_parts.h"
#include "trireme/base/memory.h"

enum { BYTE_TOKENS = 256 };

static tri_status create_bytes(tri_tokenizer **out)
{
  tri_tokenizer *tokenizer = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 1, &tokenizer));
  snprintf(tokenizer->name, sizeof tokenizer->name, "bytes");
  tokenizer->vocab_size = BYTE_TOKENS;
  tri_digest_of("bytes", strlen("bytes"), &tokenizer->digest);
  *out = tokenizer;
  return TRI_OK;
}

tri_status tri_tokenizer_open(const char *bytes_or_path, tri_tokenizer **out)
{
  if (strcmp(bytes_or_path, "bytes") == 0) return create_bytes(out);
  return TRI_ERROR(TRI_ERR_UNSUPPORTED, "%s: only the tokenizer 'bytes' is there", bytes_or_path);
}

void tri_tokenizer_close(tri_tokenizer **tokenizer)
{
  TRI_FREE(tokenizer);
}

const char *tri_tokenizer_name(const tri_tokenizer *tokenizer)
{
  return tokenizer->name;
}

int tri_tokenizer_vocab_size(const tri_tokenizer *tokenizer)
{
  return tokenizer->vocab_size;
}

void tri_tokenizer_digest(const tri_tokenizer *tokenizer, tri_digest *out)
{
  *out = tokenizer->digest;
}

tri_status tri_tokenizer_encode(const tri_tokenizer *tokenizer, const void *text, size_t size_bytes,
                                int32_t **ids, int64_t *n_ids)
{
  tri_status status = TRI_OK;
  tri_encoder *encoder = NULL;
  int32_t *numbers = NULL;
  int64_t n = 0;
  size_t consumed = 0;
  TRI_CALL(tri_encoder_create(tokenizer, &encoder));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_DATA, size_bytes, &numbers));
  TRI_CALL_GOTO(done, tri_encoder_encode(encoder, text, size_bytes, true, numbers, &n, &consumed));
  TRI_ASSERT(consumed == size_bytes);

done:
  tri_encoder_destroy(&encoder);
  if (status != TRI_OK) {
    tri_free(numbers);
    return status;
  }
  *ids = numbers;
  *n_ids = n;
  return TRI_OK;
}

static tri_status check_ids(const tri_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids)
{
  for (int64_t i = 0; i < n_ids; i++) {
    TRI_CHECK(ids[i] >= 0 && ids[i] < tokenizer->vocab_size, TRI_ERR_ARGUMENT,
              "number %d at place %lld is no token: tokenizer '%s' has 0 to %d", ids[i],
              (long long)i, tokenizer->name, tokenizer->vocab_size - 1);
  }
  return TRI_OK;
}

tri_status tri_tokenizer_decode(const tri_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                                char **text, size_t *size_bytes)
{
  char *bytes = NULL;
  TRI_CALL(check_ids(tokenizer, ids, n_ids));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, n_ids + 1, &bytes));
  for (int64_t i = 0; i < n_ids; i++)
    bytes[i] = (char)ids[i];
  *text = bytes;
  *size_bytes = (size_t)n_ids;
  return TRI_OK;
}
