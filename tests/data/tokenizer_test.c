// Tokenizers: decode after encode is the identity on any bytes, the tokens are those of an
// independent implementation (reference/make.py), and they do not depend on how the text is cut.
// timeout: 120
#include "trireme/data/tokenizer.h"

#include "data/corpus_build.h"
#include "data/encoder.h"
#include "data/pretokenizer.h"
#include "tokenizer_test.h"

// Bytes that are mostly broken UTF-8 with valid stretches, or letters and spaces only.
static void fill_text(uint64_t key, size_t n, uint8_t *out)
{
  static const char *const parts[] = {
      "the ", "\xe4\xb8\xad", " \xd0\x96", "\xf0\x9f\x91\x8d", "'ll",
      "\n\n", "\xc2\xa0",     "42",        "\xe4\xb8",         "a"};
  for (size_t at = 0; at < n;) {
    const uint64_t r = tri_random_u64(key, at);
    const char *part = parts[r % 10];
    if (r >> 8 & 1) {
      out[at++] = (uint8_t)(r >> 16);
      continue;
    }
    for (; *part != '\0' && at < n; part++)
      out[at++] = (uint8_t)*part;
  }
}

TEST(any_bytes_come_back)
{
  enum { N = 1 << 20 };
  static uint8_t data[N];
  static const char *const names[] = {"bytes", "tokenizer.json"};
  for (int t = 0; t < 2; t++) {
    tri_tokenizer *tokenizer = open_tokenizer(t == 0 ? names[t] : reference(names[t]));
    for (size_t n = 0; n <= 300; n++) {
      fill_text(n, n, data);
      expect_round_trip(tokenizer, data, n);
      fill_noise(n, n, data);
      expect_round_trip(tokenizer, data, n);
    }
    fill_text(7, N, data);
    expect_round_trip(tokenizer, data, N);
    fill_noise(7, N, data);
    expect_round_trip(tokenizer, data, N);
    tri_tokenizer_close(&tokenizer);
  }
}

static void expect_reference(const tri_tokenizer *tokenizer, const char *text_name,
                             const char *ids_name)
{
  char *text = NULL, *want = NULL;
  size_t n, n_want;
  int32_t *ids = NULL;
  int64_t n_ids = 0, i = 0;
  read_reference(text_name, &text, &n);
  read_reference(ids_name, &want, &n_want);
  EXPECT_OK(tri_tokenizer_encode(tokenizer, text, n, &ids, &n_ids));
  const char *next = want;
  for (; *next != '\0'; i++, next = strchr(next, '\n') + 1)
    EXPECT(i < n_ids && ids[i] == atoi(next));
  EXPECT(i == n_ids && n_ids > 1000);
  expect_round_trip(tokenizer, text, n);
  tri_free(text);
  tri_free(want);
  tri_free(ids);
}

TEST(tokens_are_those_of_the_reference)
{
  tri_tokenizer *tokenizer = open_tokenizer(reference("tokenizer.json"));
  EXPECT(tri_tokenizer_vocab_size(tokenizer) == 1200);
  EXPECT(strcmp(tri_tokenizer_name(tokenizer), "bpe tokenizer.json") == 0);
  expect_reference(tokenizer, "mixed.txt", "mixed.ids");
  expect_reference(tokenizer, "kjv.txt", "kjv.ids");
  tri_tokenizer_close(&tokenizer);
}

// GPT-2's own files are checked where TRI_GPT2_BPE names their folder.
TEST(tokens_are_those_of_gpt2)
{
  const char *folder = getenv("TRI_GPT2_BPE");
  if (folder == NULL) return;
  tri_tokenizer *tokenizer = open_tokenizer(folder);
  EXPECT(tri_tokenizer_vocab_size(tokenizer) == 50257);
  int32_t *ids = NULL;
  int64_t n_ids;
  EXPECT_OK(tri_tokenizer_encode(tokenizer, "Hello world", 11, &ids, &n_ids));
  EXPECT(n_ids == 2 && ids[0] == 15496 && ids[1] == 995);
  tri_free(ids);
  expect_reference(tokenizer, "mixed.txt", "gpt2-mixed.ids");
  expect_reference(tokenizer, "kjv.txt", "gpt2-kjv.ids");
  tri_tokenizer_close(&tokenizer);
}

// --- cutting

// The pieces of a text, joined by '|'.
static void expect_pieces(const char *text, const char *want)
{
  pcre2_code *code = NULL;
  EXPECT_OK(tri_pretokenizer_create(&code));
  tri_pieces pieces = {.code = code,
                       .match = pcre2_match_data_create(1, NULL),
                       .text = (const uint8_t *)text,
                       .size_bytes = strlen(text)};
  char got[256] = "";
  for (size_t begin = 0, end = 0; begin < pieces.size_bytes; begin = end) {
    EXPECT_OK(tri_pieces_next(&pieces, &end));
    snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", begin == 0 ? "" : "|",
             (int)(end - begin), text + begin);
  }
  if (strcmp(got, want) != 0) printf("# got %s, wanted %s\n", got, want);
  EXPECT(strcmp(got, want) == 0);
  pcre2_match_data_free(pieces.match);
  pcre2_code_free(code);
}

TEST(pieces_follow_the_rule)
{
  expect_pieces("it's 'sx we'll've I'D", "it|'s| '|sx| we|'ll|'ve| I|'|D");
  expect_pieces("ab12 34c !?d", "ab|12| 34|c| !?|d");
  expect_pieces("a  b   c", "a| | b|  | c");
  expect_pieces("a \n\n b\t", "a| \n\n| b|\t");
  expect_pieces("\xd0\x96\xc3\xa9 \xe4\xb8\xad", "\xd0\x96\xc3\xa9| \xe4\xb8\xad");
  expect_pieces("1\xc2\xbd\xe2\x85\xa7.", "1\xc2\xbd\xe2\x85\xa7|.");
  // U+0085 and U+00A0 are white space, but only U+0020 leads a word; U+180E and U+200B are not.
  expect_pieces(" \xc2\x85x", " |\xc2\x85|x");
  expect_pieces(" \xc2\xa0x", " |\xc2\xa0|x");
  expect_pieces(" \xe1\xa0\x8ex \xe2\x80\x8b", " \xe1\xa0\x8e|x| \xe2\x80\x8b");
  // A broken byte is a piece of its own and an end of the text before it.
  expect_pieces("ab\xff\xff  \xc3(", "ab|\xff|\xff|  |\xc3|(");
  expect_pieces("a  \xe4\xb8", "a|  |\xe4|\xb8");
}

// The tokens of a text that comes in parts of `part` bytes; their number.
static int64_t encode_in_parts(const tri_tokenizer *tokenizer, const uint8_t *text, size_t n,
                               size_t part, int32_t *ids)
{
  tri_encoder *encoder = NULL;
  int64_t n_ids = 0;
  EXPECT_OK(tri_encoder_create(tokenizer, &encoder));
  size_t seen = 0, done = 0;
  while (done < n) {
    seen = n - seen < part ? n : seen + part;
    int64_t n_part;
    size_t consumed;
    EXPECT_OK(tri_encoder_encode(encoder, text + done, seen - done, seen == n, ids + n_ids, &n_part,
                                 &consumed));
    n_ids += n_part;
    done += consumed;
  }
  tri_encoder_destroy(&encoder);
  return n_ids;
}

static void expect_same_in_parts(const tri_tokenizer *tokenizer, const uint8_t *text, size_t n)
{
  int32_t *whole = NULL, *parts = malloc((n + 1) * sizeof *parts);
  int64_t n_whole = 0;
  static const size_t sizes[] = {1, 2, 3, 7, 31, 33, 257, 1000};
  EXPECT_OK(tri_tokenizer_encode(tokenizer, text, n, &whole, &n_whole));
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    EXPECT(encode_in_parts(tokenizer, text, n, sizes[s], parts) == n_whole);
    EXPECT(memcmp(parts, whole, (size_t)n_whole * sizeof *whole) == 0);
  }
  tri_free(whole);
  free(parts);
}

TEST(tokens_do_not_depend_on_the_cut)
{
  enum { N = 4000 };
  uint8_t data[N];
  char *text = NULL;
  size_t n;
  tri_tokenizer *tokenizer = open_tokenizer(reference("tokenizer.json"));
  read_reference("mixed.txt", &text, &n);
  expect_same_in_parts(tokenizer, (const uint8_t *)text, n);
  // Only what the rule looks ahead for: contractions, runs of spaces, broken and long characters.
  static const char *const parts[] = {
      "'", "r", "e", "l", "v", " ", "\n", "\xc2\x85", "\xf0\x9f\x91\x8d", "\xe3", "\x80", "\xf0"};
  for (uint64_t key = 0; key < 20; key++) {
    size_t at = 0;
    for (uint64_t i = 0; at + 4 < N / 4; i++) {
      const char *part = parts[tri_random_u64(key, i) % 12];
      memcpy(data + at, part, strlen(part));
      at += strlen(part);
    }
    expect_same_in_parts(tokenizer, data, at);
  }
  fill_text(3, N, data);
  expect_same_in_parts(tokenizer, data, N);
  tri_free(text);
  tri_tokenizer_close(&tokenizer);
}

TEST(corpora_do_not_depend_on_the_block)
{
  tri_tokenizer *tokenizer = open_tokenizer(reference("tokenizer.json"));
  const char *text = reference("mixed.txt");
  char *first = NULL, *other = NULL;
  size_t n_first, n_other;
  static const size_t blocks[] = {1, 100, 1 << 20};
  for (size_t b = 0; b < 3; b++) {
    EXPECT_OK(tri_corpus_build_in_blocks(&text, 1, tokenizer, 0.2, in_scratch("b.h5"), blocks[b]));
    EXPECT_OK(tri_file_read(in_scratch("b.h5"), 1 << 24, &other, &n_other));
    if (b == 0) {
      first = other;
      n_first = n_other;
      continue;
    }
    EXPECT(n_first == n_other && memcmp(first, other, n_first) == 0);
    tri_free(other);
  }
  tri_free(first);
  tri_tokenizer_close(&tokenizer);
}

TEST(corpora_carry_their_encoding)
{
  tri_tokenizer *tokenizer = open_tokenizer(reference("tokenizer.json")), *carried = NULL;
  const char *text = reference("kjv.txt");
  tri_corpus *corpus = NULL;
  tri_digest first, second;
  EXPECT_OK(tri_corpus_build(&text, 1, tokenizer, 0.1, in_scratch("c.h5")));
  EXPECT_OK(tri_corpus_open(in_scratch("c.h5"), &corpus));
  EXPECT_OK(tri_corpus_tokenizer(corpus, &carried));
  tri_tokenizer_digest(tokenizer, &first);
  tri_tokenizer_digest(carried, &second);
  EXPECT(memcmp(&first, &second, sizeof first) == 0);
  EXPECT(strcmp(tri_tokenizer_name(carried), "bpe tokenizer.json") == 0);
  tri_corpus_close(&corpus);
  tri_tokenizer_close(&carried);
  tri_tokenizer_close(&tokenizer);
}

// A megabyte without a place to cut: seconds, where quadratic time would be hours.
TEST(long_pieces_take_no_quadratic_time)
{
  enum { N = 1 << 20 };
  static uint8_t data[N];
  static const char bytes[] = {'a', ' ', '\'', '7', '\n'};
  tri_tokenizer *tokenizer = open_tokenizer(reference("tokenizer.json"));
  for (size_t b = 0; b < sizeof bytes; b++) {
    memset(data, bytes[b], N);
    expect_round_trip(tokenizer, data, N);
  }
  for (size_t i = 0; i < N; i++)
    data[i] = (uint8_t)('a' + tri_random_u64(1, i) % 26);
  expect_round_trip(tokenizer, data, N);
  tri_tokenizer_close(&tokenizer);
}

int main(void)
{
  TEST_RUN(any_bytes_come_back);
  TEST_RUN(tokens_are_those_of_the_reference);
  TEST_RUN(tokens_are_those_of_gpt2);
  TEST_RUN(pieces_follow_the_rule);
  TEST_RUN(tokens_do_not_depend_on_the_cut);
  TEST_RUN(corpora_do_not_depend_on_the_block);
  TEST_RUN(corpora_carry_their_encoding);
  TEST_RUN(long_pieces_take_no_quadratic_time);
  EXPECT_OK(tri_memory_check_balance());
  return test_end();
}
