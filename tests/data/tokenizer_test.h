// Tokenizers and their reference files, shared by the tests of this folder.
#pragma once

#include "corpus_test.h"
#include "trireme/base/memory.h"
#include "trireme/data/tokenizer.h"

__attribute__((unused)) static const char *reference(const char *name)
{
  static char paths[4][1024];
  static int next;
  char *path = paths[next++ % 4];
  const char *source = getenv("TRI_SRCDIR");
  snprintf(path, sizeof paths[0], "%s/tests/data/reference/%s", source == NULL ? "." : source,
           name);
  return path;
}

__attribute__((unused)) static tri_tokenizer *open_tokenizer(const char *path)
{
  tri_tokenizer *tokenizer = NULL;
  EXPECT_OK(tri_tokenizer_open(path, &tokenizer));
  return tokenizer;
}

__attribute__((unused)) static void expect_round_trip(const tri_tokenizer *tokenizer,
                                                      const void *text, size_t n)
{
  int32_t *ids = NULL;
  int64_t n_ids = -1;
  char *back = NULL;
  size_t n_back = 0;
  EXPECT_OK(tri_tokenizer_encode(tokenizer, text, n, &ids, &n_ids));
  EXPECT(n_ids >= 0 && n_ids <= (int64_t)n);
  EXPECT_OK(tri_tokenizer_decode(tokenizer, ids, n_ids, &back, &n_back));
  EXPECT(n_back == n && back[n] == '\0' && memcmp(back, text, n) == 0);
  tri_free(ids);
  tri_free(back);
}

__attribute__((unused)) static void read_reference(const char *name, char **text, size_t *n)
{
  EXPECT_OK(tri_file_read(reference(name), 1 << 24, text, n));
}
