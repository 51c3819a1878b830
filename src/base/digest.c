#include "trireme/base/digest.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(tri_digest_state) >= sizeof(crypto_generichash_state),
               "digest state too small");

void tri_digest_begin(tri_digest_state *state)
{
  (void)crypto_generichash_init((crypto_generichash_state *)state, NULL, 0, TRI_DIGEST_BYTES);
}

void tri_digest_add(tri_digest_state *state, const void *data, size_t size_bytes)
{
  (void)crypto_generichash_update((crypto_generichash_state *)state, data, size_bytes);
}

void tri_digest_end(tri_digest_state *state, tri_digest *out)
{
  (void)crypto_generichash_final((crypto_generichash_state *)state, out->bytes, TRI_DIGEST_BYTES);
}

void tri_digest_of(const void *data, size_t size_bytes, tri_digest *out)
{
  tri_digest_state state;
  tri_digest_begin(&state);
  tri_digest_add(&state, data, size_bytes);
  tri_digest_end(&state, out);
}

tri_status tri_digest_of_file(const char *path, tri_digest *out, int64_t *size_bytes)
{
  static _Thread_local uint8_t buffer[1 << 16];
  FILE *file = fopen(path, "rb");
  TRI_CHECK(file != NULL, TRI_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  tri_digest_state state;
  tri_digest_begin(&state);
  int64_t total = 0;
  size_t n;
  while ((n = fread(buffer, 1, sizeof buffer, file)) > 0) {
    tri_digest_add(&state, buffer, n);
    total += (int64_t)n;
  }
  const int failed = ferror(file);
  fclose(file);
  TRI_CHECK(!failed, TRI_ERR_IO, "%s: reading stopped after %lld bytes: %s", path, (long long)total,
            strerror(errno));
  tri_digest_end(&state, out);
  if (size_bytes != NULL) *size_bytes = total;
  return TRI_OK;
}

void tri_digest_hex(const tri_digest *digest, char text[TRI_DIGEST_HEX_BYTES])
{
  (void)sodium_bin2hex(text, TRI_DIGEST_HEX_BYTES, digest->bytes, TRI_DIGEST_BYTES);
}

tri_status tri_digest_parse(const char *text, tri_digest *out)
{
  tri_digest parsed;
  size_t n = 0;
  const char *end = NULL;
  const int bad =
      sodium_hex2bin(parsed.bytes, sizeof parsed.bytes, text, strlen(text), NULL, &n, &end);
  TRI_CHECK(bad == 0 && n == TRI_DIGEST_BYTES && *end == '\0', TRI_ERR_FORMAT,
            "'%.80s' is not a digest of 64 hex digits", text);
  *out = parsed;
  return TRI_OK;
}
