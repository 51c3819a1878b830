// Distances between words and the nearest of several.
#include "trireme/base/words.h"

#include "test.h"

TEST(distances)
{
  static const struct {
    const char *a, *b;
    int distance;
  } cases[] = {
      {"", "", 0},          {"a", "", 1},          {"steps", "steps", 0},    {"steps", "stepz", 1},
      {"step", "steps", 1}, {"setps", "steps", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1},
      {"abc", "xyz", 3}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    EXPECT(tri_word_distance(cases[i].a, cases[i].b) == cases[i].distance);
    EXPECT(tri_word_distance(cases[i].b, cases[i].a) == cases[i].distance);
  }
}

TEST(long_words_are_far)
{
  char long_word[1000];
  memset(long_word, 'x', sizeof long_word);
  long_word[sizeof long_word - 1] = '\0';
  EXPECT(tri_word_distance(long_word, long_word) == TRI_WORD_BYTES);
  EXPECT(tri_word_distance("x", long_word) == TRI_WORD_BYTES);
  long_word[TRI_WORD_BYTES - 1] = '\0';
  EXPECT(tri_word_distance(long_word, long_word) == 0);
  EXPECT(tri_word_distance("", long_word) == TRI_WORD_BYTES - 1);
}

TEST(nearest_words)
{
  static const char *const words[] = {"run", "rum", "report", "generate"};
  EXPECT(tri_word_nearest("rnu", words, 4) == 0);
  EXPECT(tri_word_nearest("rum", words, 4) == 1);
  EXPECT(tri_word_nearest("generation", words, 4) == 3);
  EXPECT(tri_word_nearest("xxxxxxxxxxxx", words, 4) == -1);
  EXPECT(tri_word_nearest("run", words, 0) == -1);
}

int main(void)
{
  TEST_RUN(distances);
  TEST_RUN(long_words_are_far);
  TEST_RUN(nearest_words);
  return test_end();
}
