#define _GNU_SOURCE
#include "trireme/data/corpus.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "data/corpus_file.h"
#include "trireme/base/memory.h"

enum { BUFFER_BYTES = 16384 };

// Tokens are turned into 32-bit numbers through this buffer on the stack.
typedef union stored_tokens {
  uint16_t narrow[BUFFER_BYTES / sizeof(uint16_t)];
  uint32_t wide[BUFFER_BYTES / sizeof(uint32_t)];
} stored_tokens;

struct tri_corpus {
  char *path;
  int fd;
  tri_corpus_shape shape;
};

// A missing or forbidden file is told apart from a damaged one before HDF5 sees it.
static tri_status check_readable(const char *path)
{
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  TRI_CHECK(fd >= 0, TRI_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  close(fd);
  return TRI_OK;
}

tri_status tri_corpus_open(const char *path, tri_corpus **out)
{
  tri_status status = TRI_OK;
  tri_corpus *corpus = NULL;
  TRI_CALL(check_readable(path));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 1, &corpus));
  corpus->fd = -1;
  corpus->path = tri_strdup(TRI_MODULE_DATA, path);
  TRI_CALL_GOTO(err_close, corpus->path == NULL ? TRI_ERR_MEMORY : TRI_OK);
  TRI_CALL_GOTO(err_close, tri_corpus_file_open(path, &corpus->shape, &corpus->fd));
  *out = corpus;
  return TRI_OK;

err_close:
  tri_corpus_close(&corpus);
  return status;
}

void tri_corpus_close(tri_corpus **corpus)
{
  if (*corpus == NULL) return;
  if ((*corpus)->fd >= 0) close((*corpus)->fd);
  tri_free((*corpus)->path);
  TRI_FREE(corpus);
}

void tri_corpus_get_facts(const tri_corpus *corpus, tri_corpus_facts *out)
{
  *out = corpus->shape.facts;
}

static tri_status read_at(const tri_corpus *corpus, int64_t at, size_t n, void *out)
{
  char *next = out;
  while (n > 0) {
    const ssize_t got = pread(corpus->fd, next, n, at);
    if (got < 0 && errno == EINTR) continue;
    TRI_CHECK(got >= 0, TRI_ERR_IO, "%s: reading failed: %s", corpus->path, strerror(errno));
    TRI_CHECK(got > 0, TRI_ERR_FORMAT,
              "%s: is truncated: it ends at byte %lld, it was longer when it was opened",
              corpus->path, (long long)at);
    at += got;
    next += got;
    n -= (size_t)got;
  }
  return TRI_OK;
}

tri_status tri_corpus_tokenizer(const tri_corpus *corpus, tri_tokenizer **out)
{
  tri_status status = TRI_OK;
  char *json = NULL;
  tri_tokenizer *tokenizer = NULL;
  tri_digest digest;
  const tri_corpus_shape *shape = &corpus->shape;
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, shape->tokenizer_bytes + 1, &json));
  TRI_CALL_GOTO(done, read_at(corpus, shape->tokenizer_at, (size_t)shape->tokenizer_bytes, json));
  status = tri_tokenizer_from_json(json, (size_t)shape->tokenizer_bytes,
                                   shape->facts.tokenizer_name, &tokenizer);
  TRI_CHECK_GOTO(done, status == TRI_OK, status, "%s: dataset tokenizer: %s", corpus->path,
                 tri_error_message());
  tri_tokenizer_digest(tokenizer, &digest);
  TRI_CHECK_GOTO(done,
                 memcmp(&digest, &shape->facts.tokenizer_digest, sizeof digest) == 0 &&
                     tri_tokenizer_vocab_size(tokenizer) == shape->facts.vocab_size,
                 TRI_ERR_FORMAT,
                 "%s: dataset tokenizer is not the tokenizer that attributes tokenizer_digest and "
                 "vocab_size name: the file is damaged",
                 corpus->path);
done:
  tri_free(json);
  if (status != TRI_OK) {
    tri_tokenizer_close(&tokenizer);
    return status;
  }
  *out = tokenizer;
  return TRI_OK;
}

// Widens n stored tokens and gives the largest.
static uint32_t widen(const stored_tokens *stored, int token_bytes, size_t n, int32_t *out)
{
  uint32_t largest = 0;
  for (size_t i = 0; i < n; i++) {
    const uint32_t token = token_bytes == 2 ? le16toh(stored->narrow[i]) : le32toh(stored->wide[i]);
    out[i] = (int32_t)token;
    if (token > largest) largest = token;
  }
  return largest;
}

tri_status tri_corpus_read(const tri_corpus *corpus, tri_split split, int64_t first, int64_t n,
                           int32_t *out)
{
  stored_tokens stored;
  const tri_corpus_shape *shape = &corpus->shape;
  const int64_t n_tokens = shape->facts.n_tokens[split];
  TRI_CHECK(first >= 0 && n >= 0 && first <= n_tokens && n <= n_tokens - first, TRI_ERR_ARGUMENT,
            "%s: tokens %lld to %lld are asked for, the split has %lld", corpus->path,
            (long long)first, (long long)(first + n), (long long)n_tokens);
  const int64_t most = BUFFER_BYTES / shape->token_bytes;
  while (n > 0) {
    const int64_t part = n < most ? n : most;
    TRI_CALL(read_at(corpus, shape->tokens_at[split] + first * shape->token_bytes,
                     (size_t)(part * shape->token_bytes), &stored));
    const uint32_t largest = widen(&stored, shape->token_bytes, (size_t)part, out);
    TRI_CHECK(largest < (uint32_t)shape->facts.vocab_size, TRI_ERR_FORMAT,
              "%s: token %u in %lld to %lld is not below vocab_size %d: the file is damaged",
              corpus->path, largest, (long long)first, (long long)(first + part),
              shape->facts.vocab_size);
    first += part;
    out += part;
    n -= part;
  }
  return TRI_OK;
}
