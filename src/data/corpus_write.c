#define _GNU_SOURCE
#include "data/corpus_write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/file.h"
#include "trireme/base/memory.h"

enum {
  COPY_BYTES = 1 << 20,
  HEADER_ROOM_BYTES = 1 << 20 // more than all headers together
};

// The headers come from a nameless file in memory in which the datasets are holes; everything is
// copied from there and from the tokens to the real file.
typedef struct corpus_write {
  char partial[PATH_MAX];
  int fd;        // of the real file
  int header_fd; // in memory
  char *block;   // COPY_BYTES
} corpus_write;

tri_status tri_corpus_write_at(const char *path, int fd, const void *data, size_t n, int64_t at)
{
  const char *next = data;
  while (n > 0) {
    const ssize_t wrote = pwrite(fd, next, n, at);
    if (wrote < 0 && errno == EINTR) continue;
    TRI_CHECK(wrote > 0, TRI_ERR_IO, "%s: writing failed at byte %lld: %s", path, (long long)at,
              wrote < 0 ? strerror(errno) : "nothing was written");
    next += wrote;
    at += wrote;
    n -= (size_t)wrote;
  }
  return TRI_OK;
}

// n bytes at `from` of another file to `to` of the real one.
static tri_status copy(const corpus_write *out, int fd, int64_t from, int64_t to, int64_t n)
{
  while (n > 0) {
    const ssize_t got = pread(fd, out->block, n < COPY_BYTES ? (size_t)n : COPY_BYTES, from);
    if (got < 0 && errno == EINTR) continue;
    TRI_CHECK(got > 0, TRI_ERR_IO, "%s: reading back what it is made of failed: %s", out->partial,
              got < 0 ? strerror(errno) : "too short");
    TRI_CALL(tri_corpus_write_at(out->partial, out->fd, out->block, (size_t)got, to));
    from += got;
    to += got;
    n -= got;
  }
  return TRI_OK;
}

// Copies all but the holes.
static tri_status copy_headers(const corpus_write *out, int64_t size)
{
  for (int64_t at = 0; at < size;) {
    const off_t data = lseek(out->header_fd, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break; // the rest is a hole
    const off_t hole = data < 0 ? -1 : lseek(out->header_fd, data, SEEK_HOLE);
    TRI_CHECK(hole > data, TRI_ERR_IO, "%s: reading back its headers failed: %s", out->partial,
              strerror(errno));
    TRI_CALL(copy(out, out->header_fd, data, data, hole - data));
    at = hole;
  }
  return TRI_OK;
}

static tri_status copy_datasets(const corpus_write *out, const tri_corpus_shape *shape,
                                const char *json, int tokens_fd)
{
  int64_t from = 0;
  TRI_CALL(tri_corpus_write_at(out->partial, out->fd, json, (size_t)shape->tokenizer_bytes,
                               shape->tokenizer_at));
  for (int split = 0; split < 2; split++) {
    const int64_t n = shape->facts.n_tokens[split] * shape->token_bytes;
    TRI_CALL(copy(out, tokens_fd, from, shape->tokens_at[split], n));
    from += n;
  }
  return TRI_OK;
}

// A limit on file sizes holds for files in memory too: it must show here, not inside HDF5.
static tri_status try_size(const corpus_write *out, const tri_corpus_shape *shape)
{
  const int64_t n_tokens = shape->facts.n_tokens[0] + shape->facts.n_tokens[1];
  const int64_t size = n_tokens * shape->token_bytes + shape->tokenizer_bytes + HEADER_ROOM_BYTES;
  TRI_CHECK(ftruncate(out->fd, size) == 0, TRI_ERR_IO,
            "%s: a file of %lld bytes cannot be made: %s", out->partial, (long long)size,
            strerror(errno));
  return TRI_OK;
}

// What was written is opened as a reader would, before it gets its name.
static tri_status check_readable(const corpus_write *out, const tri_corpus_shape *shape)
{
  tri_corpus_shape got = {.token_bytes = 0};
  int fd = -1;
  TRI_CALL(tri_corpus_file_open(out->partial, &got, &fd));
  close(fd);
  TRI_CHECK(got.facts.vocab_size == shape->facts.vocab_size &&
                got.tokenizer_at == shape->tokenizer_at &&
                memcmp(got.tokens_at, shape->tokens_at, sizeof got.tokens_at) == 0 &&
                memcmp(got.facts.n_tokens, shape->facts.n_tokens, sizeof got.facts.n_tokens) == 0,
            TRI_ERR_INTERNAL, "%s: says something else than was written into it", out->partial);
  return TRI_OK;
}

static tri_status fill(corpus_write *out, tri_corpus_shape *shape, const char *json, int tokens_fd)
{
  struct stat headers;
  TRI_CALL(try_size(out, shape));
  TRI_CALL(tri_corpus_file_create(out->partial, shape, &out->header_fd));
  TRI_CHECK(fstat(out->header_fd, &headers) == 0, TRI_ERR_IO, "%s: %s", out->partial,
            strerror(errno));
  TRI_CALL(copy_headers(out, headers.st_size));
  TRI_CALL(copy_datasets(out, shape, json, tokens_fd));
  TRI_CHECK(ftruncate(out->fd, headers.st_size) == 0 && fsync(out->fd) == 0, TRI_ERR_IO,
            "%s: writing failed: %s", out->partial, strerror(errno));
  return check_readable(out, shape);
}

// The folder is synced too, so that the new name survives a crash.
static tri_status publish(const char *partial, const char *out_path)
{
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", out_path);
  char *slash = strrchr(folder, '/');
  if (slash == NULL) {
    snprintf(folder, sizeof folder, ".");
  } else {
    slash[slash == folder] = '\0';
  }
  TRI_CALL(tri_file_rename(partial, out_path));
  return tri_file_sync(folder);
}

static tri_status open_partial(corpus_write *out, const char *out_path)
{
  const int n =
      snprintf(out->partial, sizeof out->partial, "%s.partial-%ld", out_path, (long)getpid());
  TRI_CHECK(n > 0 && (size_t)n < sizeof out->partial, TRI_ERR_IO, "path %s is too long", out_path);
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, COPY_BYTES, &out->block));
  out->fd = open(out->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  TRI_CHECK(out->fd >= 0, TRI_ERR_IO, "%s: cannot be made: %s", out->partial, strerror(errno));
  return TRI_OK;
}

tri_status tri_corpus_write(const char *out_path, tri_corpus_shape *shape, const char *json,
                            int tokens_fd)
{
  tri_status status = TRI_OK;
  corpus_write out = {.fd = -1, .header_fd = -1};
  TRI_CALL_GOTO(done, open_partial(&out, out_path));
  TRI_CALL_GOTO(done, fill(&out, shape, json, tokens_fd));
done:
  if (out.header_fd >= 0) close(out.header_fd);
  if (out.fd >= 0 && close(out.fd) != 0 && status == TRI_OK)
    status = TRI_ERROR(TRI_ERR_IO, "%s: close failed: %s", out.partial, strerror(errno));
  if (status == TRI_OK) status = publish(out.partial, out_path);
  if (status != TRI_OK && out.fd >= 0) unlink(out.partial);
  tri_free(out.block);
  return status;
}
