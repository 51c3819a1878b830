#define _GNU_SOURCE
#include "trireme/base/words.h"

#include <stdbool.h>
#include <string.h>

int tri_word_distance(const char *a, const char *b)
{
  const int n = (int)strnlen(a, TRI_WORD_BYTES), m = (int)strnlen(b, TRI_WORD_BYTES);
  if (n == TRI_WORD_BYTES || m == TRI_WORD_BYTES) return TRI_WORD_BYTES;
  // d[i][j]: of the first i letters of a and the first j of b (Damerau, optimal string alignment).
  int d[TRI_WORD_BYTES][TRI_WORD_BYTES];
  for (int i = 0; i <= n; i++) {
    for (int j = 0; j <= m; j++) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
      if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
      d[i][j] = best;
    }
  }
  return d[n][m];
}

int tri_word_nearest(const char *word, const char *const *words, int n_words)
{
  int nearest = -1;
  int best = 3 + (int)strnlen(word, TRI_WORD_BYTES) / 3;
  for (int w = 0; w < n_words; w++) {
    const int distance = tri_word_distance(word, words[w]);
    if (distance >= best) continue;
    best = distance;
    nearest = w;
  }
  return nearest;
}
