// How near two words are, for "did you mean …?". Local.
#pragma once

// Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`; a word of
// TRI_WORD_BYTES or more is TRI_WORD_BYTES away from everything.
enum { TRI_WORD_BYTES = 64 };
int tri_word_distance(const char *a, const char *b);

// The number of the word nearest to `word`, the first on ties, -1 when none is near (a third of its
// letters and two more).
int tri_word_nearest(const char *word, const char *const *words, int n_words);
