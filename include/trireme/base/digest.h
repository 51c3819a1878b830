// BLAKE2b-256 digests (RFC 7693) by libsodium. Local.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trireme/base/status.h"

enum { TRI_DIGEST_BYTES = 32, TRI_DIGEST_HEX_BYTES = 65 };

typedef struct tri_digest {
  uint8_t bytes[TRI_DIGEST_BYTES];
} tri_digest;

// A digest being taken; a plain value, needs no release.
typedef struct tri_digest_state {
  _Alignas(64) uint8_t opaque[384];
} tri_digest_state;

void tri_digest_begin(tri_digest_state *state);
void tri_digest_add(tri_digest_state *state, const void *data, size_t size_bytes);
void tri_digest_end(tri_digest_state *state, tri_digest *out);

// The digest of one buffer.
void tri_digest_of(const void *data, size_t size_bytes, tri_digest *out);

// The digest of a file's content, and its size (NULL: not wanted).
TRI_MUST_CHECK tri_status tri_digest_of_file(const char *path, tri_digest *out,
                                             int64_t *size_bytes);

// 64 lower-case hex digits and a zero.
void tri_digest_hex(const tri_digest *digest, char text[TRI_DIGEST_HEX_BYTES]);

// Parses 64 hex digits; TRI_ERR_FORMAT otherwise.
TRI_MUST_CHECK tri_status tri_digest_parse(const char *text, tri_digest *out);
