#define _GNU_SOURCE
#include "data/corpus_build.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/corpus_write.h"
#include "data/encoder.h"
#include "data/text_source.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include "trireme/telemetry/clock.h"
#include "trireme/telemetry/progress.h"

enum { BLOCK_BYTES = 1 << 20 };
static const double SECONDS_BETWEEN_LINES = 2.0;

// A corpus being made. The number of tokens is known only at the end, and a contiguous dataset
// cannot grow: tokens go to a nameless file first and are copied behind the headers then.
typedef struct corpus_build {
  const char *out_path;
  tri_text_source *source;
  tri_encoder *encoder;
  int tokens_fd; // nameless, both splits one after the other
  int token_bytes;
  size_t block_bytes;
  char *text;            // block_bytes
  int32_t *ids;          // block_bytes
  tri_progress progress; // in bytes of the text
  double shown_seconds;
} corpus_build;

static void show_progress(corpus_build *build, int64_t done)
{
  const double now = tri_clock_seconds();
  if (now - build->shown_seconds < SECONDS_BETWEEN_LINES) return;
  build->shown_seconds = now;
  char left[32];
  tri_progress_remaining(&build->progress, done, left, sizeof left);
  tri_log(TRI_LOG_INFO, "tokenize: %.1f of %.1f MB, %.1f MB/s, %s to go", (double)done * 1e-6,
          (double)build->progress.total * 1e-6,
          (double)done * 1e-6 / (now - build->progress.began_seconds), left);
}

// The content lives under this name for a moment only: a build that is killed leaves nothing.
static tri_status open_nameless(corpus_build *build)
{
  char path[PATH_MAX];
  const int n = snprintf(path, sizeof path, "%s.tokens-XXXXXX", build->out_path);
  TRI_CHECK(n > 0 && (size_t)n < sizeof path, TRI_ERR_IO, "path %s is too long", build->out_path);
  build->tokens_fd = mkostemp(path, O_CLOEXEC);
  TRI_CHECK(build->tokens_fd >= 0, TRI_ERR_IO, "%s: a file cannot be made beside it: %s",
            build->out_path, strerror(errno));
  unlink(path);
  return TRI_OK;
}

// Narrows in place: a stored token is never wider than its number.
static void pack(int32_t *ids, int64_t n, int token_bytes)
{
  uint16_t *narrow = (uint16_t *)ids;
  for (int64_t i = 0; i < n; i++) {
    const uint32_t token = (uint32_t)ids[i];
    if (token_bytes == 2) {
      const uint16_t half = htole16((uint16_t)token);
      memcpy(&narrow[i], &half, sizeof half);
    } else {
      ids[i] = (int32_t)htole32(token);
    }
  }
}

static tri_status make_blocks(corpus_build *build, size_t block_bytes, size_t held_bytes)
{
  char *text = NULL;
  int32_t *ids = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, block_bytes, &text));
  if (held_bytes > 0) memcpy(text, build->text, held_bytes);
  tri_free(build->text);
  build->text = text;
  TRI_FREE(&build->ids);
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, block_bytes, &ids));
  build->ids = ids;
  build->block_bytes = block_bytes;
  return TRI_OK;
}

// Appends the tokens of the text [first, end) to the nameless file, from token number `at` on.
static tri_status encode_range(corpus_build *build, int64_t first, int64_t end, int64_t at,
                               int64_t *n_tokens)
{
  const int64_t from = at;
  size_t held = 0; // bytes of the block that wait for what follows
  while (first < end || held > 0) {
    const int64_t room = (int64_t)(build->block_bytes - held);
    const size_t part = (size_t)(end - first < room ? end - first : room);
    TRI_CALL(tri_text_source_read(build->source, first, part, build->text + held));
    first += (int64_t)part;
    held += part;
    int64_t n = 0;
    size_t consumed = 0;
    TRI_CALL(tri_encoder_encode(build->encoder, build->text, held, first == end, build->ids, &n,
                                &consumed));
    pack(build->ids, n, build->token_bytes);
    TRI_CALL(tri_corpus_write_at(build->out_path, build->tokens_fd, build->ids,
                                 (size_t)n * (size_t)build->token_bytes, at * build->token_bytes));
    at += n;
    held -= consumed;
    memmove(build->text, build->text + consumed, held);
    if (consumed == 0) TRI_CALL(make_blocks(build, 2 * build->block_bytes, held));
    show_progress(build, first);
  }
  *n_tokens = at - from;
  return TRI_OK;
}

static tri_status write_corpus(const corpus_build *build, const tri_tokenizer *tokenizer,
                               tri_corpus_shape *shape)
{
  char *json = NULL;
  TRI_CALL(tri_tokenizer_to_json(tokenizer, &json));
  shape->tokenizer_bytes = (int64_t)strlen(json);
  const tri_status status = tri_corpus_write(build->out_path, shape, json, build->tokens_fd);
  tri_free(json);
  TRI_CALL(status);
  return TRI_OK;
}

static tri_status build_splits(corpus_build *build, const tri_tokenizer *tokenizer, double fraction)
{
  tri_corpus_shape shape = {.token_bytes = build->token_bytes};
  tri_corpus_facts *facts = &shape.facts;
  const int64_t size = tri_text_source_size(build->source);
  int64_t cut;
  snprintf(facts->tokenizer_name, sizeof facts->tokenizer_name, "%s",
           tri_tokenizer_name(tokenizer));
  tri_tokenizer_digest(tokenizer, &facts->tokenizer_digest);
  facts->vocab_size = tri_tokenizer_vocab_size(tokenizer);
  TRI_CALL(tri_text_source_cut(build->source, fraction, &cut));
  facts->n_bytes[TRI_SPLIT_TRAIN] = cut;
  facts->n_bytes[TRI_SPLIT_VALIDATION] = size - cut;
  TRI_CALL(encode_range(build, 0, cut, 0, &facts->n_tokens[TRI_SPLIT_TRAIN]));
  TRI_CALL(encode_range(build, cut, size, facts->n_tokens[TRI_SPLIT_TRAIN],
                        &facts->n_tokens[TRI_SPLIT_VALIDATION]));
  TRI_CALL(write_corpus(build, tokenizer, &shape));
  const double seconds = tri_clock_seconds() - build->progress.began_seconds;
  tri_log(TRI_LOG_INFO, "tokenize: %.1f MB of text, %lld + %lld tokens, %.1f s, %.1f MB/s: %s",
          (double)size * 1e-6, (long long)facts->n_tokens[TRI_SPLIT_TRAIN],
          (long long)facts->n_tokens[TRI_SPLIT_VALIDATION], seconds,
          (double)size * 1e-6 / (seconds > 1e-9 ? seconds : 1e-9), build->out_path);
  return TRI_OK;
}

static tri_status check_output(const char *const *paths, int n_paths, const char *out_path)
{
  struct stat out, in;
  if (stat(out_path, &out) != 0) return TRI_OK;
  TRI_CHECK(S_ISREG(out.st_mode), TRI_ERR_IO, "%s: is not a regular file: name another output",
            out_path);
  for (int i = 0; i < n_paths; i++) {
    TRI_CHECK(stat(paths[i], &in) != 0 || in.st_dev != out.st_dev || in.st_ino != out.st_ino,
              TRI_ERR_IO, "%s: is both a text and the corpus to write: name another output",
              out_path);
  }
  return TRI_OK;
}

tri_status tri_corpus_build_in_blocks(const char *const *paths, int n_paths,
                                      const tri_tokenizer *tokenizer, double validation_fraction,
                                      const char *out_path, size_t block_bytes)
{
  tri_status status = TRI_OK;
  corpus_build build = {.out_path = out_path, .tokens_fd = -1};
  build.token_bytes = tri_corpus_token_bytes(tri_tokenizer_vocab_size(tokenizer));
  TRI_CHECK(validation_fraction >= 0 && validation_fraction < 1, TRI_ERR_ARGUMENT,
            "validation fraction %g is not in [0, 1)", validation_fraction);
  TRI_CALL(check_output(paths, n_paths, out_path));
  TRI_CALL(tri_text_source_open(paths, n_paths, &build.source));
  TRI_CHECK_GOTO(done, tri_text_source_size(build.source) > 0, TRI_ERR_FORMAT,
                 "%s: the text is empty%s", paths[0], n_paths > 1 ? ", like all others" : "");
  tri_progress_begin(&build.progress, "tokenize", 0, tri_text_source_size(build.source));
  build.shown_seconds = build.progress.began_seconds;
  TRI_CALL_GOTO(done, tri_encoder_create(tokenizer, &build.encoder));
  TRI_CALL_GOTO(done, make_blocks(&build, block_bytes, 0));
  TRI_CALL_GOTO(done, open_nameless(&build));
  TRI_CALL_GOTO(done, build_splits(&build, tokenizer, validation_fraction));
done:
  if (build.tokens_fd >= 0) close(build.tokens_fd);
  tri_free(build.text);
  tri_free(build.ids);
  tri_encoder_destroy(&build.encoder);
  tri_text_source_close(&build.source);
  return status;
}

tri_status tri_corpus_build(const char *const *paths, int n_paths, const tri_tokenizer *tokenizer,
                            double validation_fraction, const char *out_path)
{
  return tri_corpus_build_in_blocks(paths, n_paths, tokenizer, validation_fraction, out_path,
                                    BLOCK_BYTES);
}
