#define _GNU_SOURCE
#include "data/text_source.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/memory.h"

enum { SEARCH_BYTES = 65536 };

struct tri_text_source {
  const char *const *paths;
  int n_paths;
  int64_t *first; // n_paths + 1: where each file begins in the text
  int open_file;  // the file behind fd, -1: none
  int fd;
};

static tri_status open_file(const char *path, int *fd, int64_t *size_bytes)
{
  const int opened = open(path, O_RDONLY | O_CLOEXEC);
  TRI_CHECK(opened >= 0, TRI_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  struct stat facts;
  if (fstat(opened, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(opened);
    return TRI_ERROR(TRI_ERR_IO, "%s: is not a regular file: its size must be known beforehand",
                     path);
  }
  *fd = opened;
  *size_bytes = facts.st_size;
  return TRI_OK;
}

tri_status tri_text_source_open(const char *const *paths, int n_paths, tri_text_source **out)
{
  tri_status status = TRI_OK;
  tri_text_source *source = NULL;
  TRI_CHECK(n_paths >= 1, TRI_ERR_ARGUMENT, "a text needs at least one file");
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 1, &source));
  source->paths = paths;
  source->n_paths = n_paths;
  source->open_file = -1;
  TRI_CALL_GOTO(err_close, TRI_NEW(TRI_MODULE_DATA, n_paths + 1, &source->first));
  for (int i = 0; i < n_paths; i++) {
    int fd;
    int64_t size_bytes;
    TRI_CALL_GOTO(err_close, open_file(paths[i], &fd, &size_bytes));
    close(fd);
    source->first[i + 1] = source->first[i] + size_bytes;
  }
  *out = source;
  return TRI_OK;

err_close:
  tri_text_source_close(&source);
  return status;
}

void tri_text_source_close(tri_text_source **source)
{
  if (*source == NULL) return;
  if ((*source)->open_file >= 0) close((*source)->fd);
  tri_free((*source)->first);
  TRI_FREE(source);
}

int64_t tri_text_source_size(const tri_text_source *source)
{
  return source->first[source->n_paths];
}

static tri_status select_file(tri_text_source *source, int file)
{
  if (source->open_file == file) return TRI_OK;
  if (source->open_file >= 0) close(source->fd);
  source->open_file = -1;
  int64_t size_bytes;
  TRI_CALL(open_file(source->paths[file], &source->fd, &size_bytes));
  source->open_file = file;
  return TRI_OK;
}

static tri_status read_all(const char *path, int fd, int64_t first, size_t n, char *out)
{
  while (n > 0) {
    const ssize_t got = pread(fd, out, n, first);
    if (got < 0 && errno == EINTR) continue;
    TRI_CHECK(got >= 0, TRI_ERR_IO, "%s: reading failed: %s", path, strerror(errno));
    TRI_CHECK(got > 0, TRI_ERR_IO, "%s: ends at byte %lld: it was cut while it was being read",
              path, (long long)first);
    first += got;
    out += got;
    n -= (size_t)got;
  }
  return TRI_OK;
}

tri_status tri_text_source_read(tri_text_source *source, int64_t first, size_t n, void *out)
{
  char *next = out;
  TRI_ASSERT(first >= 0 && first + (int64_t)n <= tri_text_source_size(source));
  for (int file = 0; n > 0; file++) {
    if (source->first[file + 1] <= first) continue;
    const int64_t left = source->first[file + 1] - first;
    const size_t part = (int64_t)n < left ? n : (size_t)left;
    TRI_CALL(select_file(source, file));
    TRI_CALL(read_all(source->paths[file], source->fd, first - source->first[file], part, next));
    first += (int64_t)part;
    next += part;
    n -= part;
  }
  return TRI_OK;
}

// The place behind the first line end at or after `from`; the size of the text when there is none.
static tri_status line_end_after(tri_text_source *source, int64_t from, int64_t *out)
{
  char block[SEARCH_BYTES];
  const int64_t size = tri_text_source_size(source);
  while (from < size) {
    const size_t n = size - from < SEARCH_BYTES ? (size_t)(size - from) : SEARCH_BYTES;
    TRI_CALL(tri_text_source_read(source, from, n, block));
    const char *end = memchr(block, '\n', n);
    if (end != NULL) {
      *out = from + (end - block) + 1;
      return TRI_OK;
    }
    from += (int64_t)n;
  }
  *out = size;
  return TRI_OK;
}

// The place behind the last line end before `to`; 0 when there is none.
static tri_status line_end_before(tri_text_source *source, int64_t to, int64_t *out)
{
  char block[SEARCH_BYTES];
  while (to > 0) {
    const size_t n = to < SEARCH_BYTES ? (size_t)to : SEARCH_BYTES;
    TRI_CALL(tri_text_source_read(source, to - (int64_t)n, n, block));
    const char *end = memrchr(block, '\n', n);
    if (end != NULL) {
      *out = to - (int64_t)n + (end - block) + 1;
      return TRI_OK;
    }
    to -= (int64_t)n;
  }
  *out = 0;
  return TRI_OK;
}

static tri_status character_after(tri_text_source *source, int64_t from, int64_t *out)
{
  char byte;
  for (int step = 0; step < 3 && from < tri_text_source_size(source); step++, from++) {
    TRI_CALL(tri_text_source_read(source, from, 1, &byte));
    if ((byte & 0xc0) != 0x80) break;
  }
  *out = from;
  return TRI_OK;
}

tri_status tri_text_source_cut(tri_text_source *source, double fraction, int64_t *cut)
{
  const int64_t size = tri_text_source_size(source);
  const int64_t exact = size - (int64_t)llround(fraction * (double)size);
  int64_t place = size;
  if (exact < size) TRI_CALL(line_end_after(source, exact, &place));
  if (exact < size && place == size) {
    TRI_CALL(line_end_before(source, exact, &place));
    if (place == 0) TRI_CALL(character_after(source, exact, &place));
  }
  *cut = place;
  return TRI_OK;
}
