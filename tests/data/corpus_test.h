// Corpora made on the spot, shared by the tests of this folder.
#pragma once

#include <stdint.h>

#include "test.h"
#include "trireme/base/file.h"
#include "trireme/base/random.h"
#include "trireme/data/corpus.h"

__attribute__((unused)) static const char *in_scratch(const char *name)
{
  static char paths[16][512];
  static int next;
  char *path = paths[next++ % 16];
  snprintf(path, sizeof paths[0], "%s/%s", test_scratch(), name);
  return path;
}

__attribute__((unused)) static void write_bytes(const char *path, const void *data, size_t n)
{
  FILE *file = fopen(path, "wb");
  EXPECT(file != NULL && fwrite(data, 1, n, file) == n);
  if (file != NULL) EXPECT(fclose(file) == 0);
}

// Reproducible noise with a line end about every 40 bytes.
__attribute__((unused)) static void fill_noise(uint64_t key, size_t n, uint8_t *out)
{
  for (size_t i = 0; i < n; i++) {
    const uint64_t r = tri_random_u64(key, i);
    out[i] = r >> 8 & 0xff;
    if ((r >> 16) % 40 == 0) out[i] = '\n';
  }
}

// A corpus of bytes in the scratch folder.
__attribute__((unused)) static void build_bytes_corpus(const char *path, const void *data, size_t n,
                                                       double fraction)
{
  tri_tokenizer *bytes = NULL;
  const char *text = in_scratch("text");
  write_bytes(text, data, n);
  EXPECT_OK(tri_tokenizer_open("bytes", &bytes));
  EXPECT_OK(tri_corpus_build(&text, 1, bytes, fraction, path));
  tri_tokenizer_close(&bytes);
}
