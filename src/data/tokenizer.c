#include "trireme/data/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "data/encoder.h"
#include "data/tokenizer_parts.h"
#include "trireme/base/memory.h"

enum { BYTE_TOKENS = 256 };

// Takes the encoding over, also on error. bpe NULL: bytes.
static tri_status create(const char *name, tri_bpe *bpe, tri_tokenizer **out)
{
  tri_status status = TRI_OK;
  tri_tokenizer *tokenizer = NULL;
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_DATA, 1, &tokenizer));
  snprintf(tokenizer->name, sizeof tokenizer->name, "%s", bpe == NULL ? "bytes" : name);
  if (bpe == NULL) {
    tokenizer->vocab_size = BYTE_TOKENS;
    tri_digest_of("bytes", strlen("bytes"), &tokenizer->digest);
  } else {
    tokenizer->vocab_size = bpe->n_tokens;
    tri_bpe_digest(bpe, &tokenizer->digest);
    TRI_CALL_GOTO(err_destroy, tri_pretokenizer_create(&tokenizer->code));
  }
  tokenizer->bpe = bpe;
  *out = tokenizer;
  return TRI_OK;

err_destroy:
  tri_bpe_destroy(&bpe);
  tri_free(tokenizer);
  return status;
}

tri_status tri_tokenizer_open(const char *bytes_or_path, tri_tokenizer **out)
{
  tri_bpe *bpe = NULL;
  char name[TRI_TOKENIZER_NAME_BYTES] = "bytes";
  if (strcmp(bytes_or_path, "bytes") != 0) TRI_CALL(tri_bpe_from_path(bytes_or_path, name, &bpe));
  TRI_CALL(create(name, bpe, out));
  return TRI_OK;
}

tri_status tri_tokenizer_from_json(const char *json, size_t size_bytes, const char *name,
                                   tri_tokenizer **out)
{
  tri_bpe *bpe = NULL;
  TRI_CALL(tri_bpe_from_json(name, json, size_bytes, &bpe));
  TRI_CALL(create(name, bpe, out));
  return TRI_OK;
}

tri_status tri_tokenizer_to_json(const tri_tokenizer *tokenizer, char **json)
{
  TRI_CALL(tri_bpe_to_json(tokenizer->bpe, json));
  return TRI_OK;
}

void tri_tokenizer_close(tri_tokenizer **tokenizer)
{
  if (*tokenizer == NULL) return;
  tri_bpe_destroy(&(*tokenizer)->bpe);
  pcre2_code_free((*tokenizer)->code);
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

// The bytes of a token; `byte` gives room for that of a byte token.
static const char *token_bytes(const tri_tokenizer *tokenizer, int32_t id, char *byte,
                               size_t *size_bytes)
{
  if (tokenizer->bpe == NULL) {
    *byte = (char)id;
    *size_bytes = 1;
    return byte;
  }
  const tri_bpe_token *token = &tokenizer->bpe->tokens[id];
  *size_bytes = (size_t)token->size_bytes;
  return tokenizer->bpe->text + token->at;
}

tri_status tri_tokenizer_decode(const tri_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                                char **text, size_t *size_bytes)
{
  char byte, *bytes = NULL;
  size_t n = 0, n_token;
  TRI_CALL(check_ids(tokenizer, ids, n_ids));
  for (int64_t i = 0; i < n_ids; i++) {
    (void)token_bytes(tokenizer, ids[i], &byte, &n_token);
    TRI_CHECK(n_token < SIZE_MAX / 2 - n, TRI_ERR_MEMORY, "the text of %lld tokens is too long",
              (long long)n_ids);
    n += n_token;
  }
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, n + 1, &bytes));
  n = 0;
  for (int64_t i = 0; i < n_ids; i++) {
    const char *token = token_bytes(tokenizer, ids[i], &byte, &n_token);
    memcpy(bytes + n, token, n_token);
    n += n_token;
  }
  *text = bytes;
  *size_bytes = n;
  return TRI_OK;
}
