// Byte-pair encodings: merges follow the rule, every form of file is the same encoding, and what is
// wrong or not supported is refused with its name.
// timeout: 120
#include "data/byte_alphabet.h"
#include "data/utf8.h"
#include "tokenizer_test.h"

// Parts of a tokenizer.json; NULL: as it should be.
typedef struct json_parts {
  const char *root, *pre_tokenizer, *decoder, *model, *vocab, *merges, *added;
  int left_out; // a byte without a token, 0: none
} json_parts;

// Token = byte value, then `vocab`. Ids of `vocab` begin at 256.
static void print_json(const json_parts *parts, char *out, size_t size)
{
  size_t n = 0;
  n += (size_t)snprintf(out + n, size - n, "{%s\"model\":{%s\"vocab\":{",
                        parts->root == NULL ? "" : parts->root,
                        parts->model == NULL ? "\"type\":\"BPE\"," : parts->model);
  for (int byte = 0, id = 0; byte < 256; byte++) {
    char text[3] = "";
    tri_byte_alphabet_character((uint8_t)byte, text);
    if (byte == parts->left_out && byte > 0) continue;
    const char *escape = byte == '"' || byte == '\\' ? "\\" : "";
    n += (size_t)snprintf(out + n, size - n, "%s\"%s%s\":%d", id == 0 ? "" : ",", escape, text, id);
    id++;
  }
  snprintf(out + n, size - n,
           "%s},\"merges\":%s},\"added_tokens\":%s,\"pre_tokenizer\":%s,\"decoder\":%s}",
           parts->vocab == NULL ? "" : parts->vocab, parts->merges == NULL ? "[]" : parts->merges,
           parts->added == NULL ? "[]" : parts->added,
           parts->pre_tokenizer == NULL
               ? "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}"
               : parts->pre_tokenizer,
           parts->decoder == NULL ? "null" : parts->decoder);
}

static tri_status from_parts(const json_parts *parts, tri_tokenizer **out)
{
  static char json[65536];
  print_json(parts, json, sizeof json);
  return tri_tokenizer_from_json(json, strlen(json), "made", out);
}

static void expect_refused(tri_status code, const char *text, json_parts parts)
{
  tri_tokenizer *tokenizer = NULL;
  EXPECT_ERROR(code, text, from_parts(&parts, &tokenizer));
  EXPECT(tokenizer == NULL);
  EXPECT(strstr(tri_error_message(), "made") != NULL);
}

TEST(what_is_not_supported_is_named)
{
  const tri_status no = TRI_ERR_UNSUPPORTED;
#define MODEL "\"type\":\"BPE\","
#define LEVEL "\"type\":\"ByteLevel\""
  expect_refused(no, "field normalizer ",
                 (json_parts){.root = "\"normalizer\":{\"type\":\"NFC\"},"});
  expect_refused(no, "field later ", (json_parts){.root = "\"later\":1,"});
  expect_refused(no, "field model.type is 'WordPiece'",
                 (json_parts){.model = "\"type\":\"WordPiece\","});
  expect_refused(no, "field model.dropout ", (json_parts){.model = MODEL "\"dropout\":0.1,"});
  expect_refused(no, "field model.ignore_merges ",
                 (json_parts){.model = MODEL "\"ignore_merges\":true,"});
  expect_refused(no, "field model.byte_fallback ",
                 (json_parts){.model = MODEL "\"byte_fallback\":true,"});
  expect_refused(no, "field model.continuing_subword_prefix ",
                 (json_parts){.model = MODEL "\"continuing_subword_prefix\":\"##\","});
  expect_refused(no, "field pre_tokenizer.type is ''", (json_parts){.pre_tokenizer = "null"});
  expect_refused(no, "field pre_tokenizer.type is 'Sequence'",
                 (json_parts){.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[]}"});
  expect_refused(no, "field pre_tokenizer.add_prefix_space ",
                 (json_parts){.pre_tokenizer = "{" LEVEL ",\"add_prefix_space\":true}"});
  expect_refused(no, "field pre_tokenizer.use_regex ",
                 (json_parts){.pre_tokenizer = "{" LEVEL ",\"use_regex\":false}"});
  expect_refused(no, "field decoder.type is 'WordPiece'",
                 (json_parts){.decoder = "{\"type\":\"WordPiece\"}"});
#undef MODEL
#undef LEVEL
}

TEST(wrong_entries_are_named)
{
  const tri_status bad = TRI_ERR_FORMAT;
#define TH ",\"th\":256"
  expect_refused(bad, "token 'th' has id 257", (json_parts){.vocab = ",\"th\":257"});
  expect_refused(bad, "token 'th' has id -1", (json_parts){.vocab = ",\"th\":-1"});
  expect_refused(bad, "token 'th' has id 7, which another", (json_parts){.vocab = ",\"th\":7"});
  expect_refused(bad, "the id of token 'th'", (json_parts){.vocab = ",\"th\":\"256\""});
  expect_refused(bad, "the id of token 'th'", (json_parts){.vocab = ",\"th\":256.5"});
  expect_refused(bad, "is not JSON", (json_parts){.vocab = ",\"th\":99999999999999999999"});
  expect_refused(bad, "duplicate object key", (json_parts){.vocab = TH ",\"th\":257"});
  expect_refused(bad, "'t h' (id 256) is not written", (json_parts){.vocab = ",\"t h\":256"});
  expect_refused(bad, "no token has id 256, but one has id 257",
                 (json_parts){.vocab = ",\"th\":257", .added = "[{\"id\":7,\"content\":\"x\"}]"});
  expect_refused(bad, "byte 0x61", (json_parts){.left_out = 'a', .vocab = ",\"th\":255"});
  expect_refused(bad, "merge model.merges[0]: 'th' is no token",
                 (json_parts){.merges = "[\"th e\"]"});
  expect_refused(bad, "merge model.merges[1]: 'hx'",
                 (json_parts){.vocab = TH, .merges = "[\"t h\",[\"h\",\"x\"]]"});
  expect_refused(bad, "merge model.merges[1] is there already, as number 0",
                 (json_parts){.vocab = TH, .merges = "[\"t h\",[\"t\",\"h\"]]"});
  expect_refused(bad, "model.merges[0] is neither", (json_parts){.merges = "[\"th\"]"});
  expect_refused(bad, "model.merges[0] is neither", (json_parts){.merges = "[[\"t\",1]]"});
  expect_refused(bad, "field model.merges is missing", (json_parts){.merges = "{}"});
  expect_refused(bad, "field added_tokens is", (json_parts){.added = "{}"});
  expect_refused(bad, "added_tokens[0] has no", (json_parts){.added = "[{\"id\":1}]"});
  expect_refused(
      bad, "two added tokens have id 256",
      (json_parts){.added = "[{\"id\":256,\"content\":\"x\"},{\"id\":256,\"content\":\"y\"}]"});
#undef TH
}

TEST(added_tokens_decode_only)
{
  tri_tokenizer *tokenizer = NULL, *again = NULL;
  EXPECT_OK(from_parts(&(json_parts){.vocab = ",\"<|a b|>\":256,\"th\":257",
                                     .merges = "[\"t h\"]",
                                     .added = "[{\"id\":256,\"content\":\"<|a b|>\"},"
                                              "{\"id\":258,\"content\":\"\xc3\xa9\"}]"},
                       &tokenizer));
  EXPECT(tri_tokenizer_vocab_size(tokenizer) == 259);
  char *json = NULL;
  EXPECT_OK(tri_tokenizer_to_json(tokenizer, &json));
  EXPECT_OK(tri_tokenizer_from_json(json, strlen(json), "again", &again));
  for (int t = 0; t < 2; t++) {
    const tri_tokenizer *one = t == 0 ? tokenizer : again;
    char *text = NULL;
    size_t n;
    EXPECT_OK(tri_tokenizer_decode(one, (int32_t[]){256, 257, 258, 'x'}, 4, &text, &n));
    EXPECT(n == 12 && strcmp(text, "<|a b|>th\xc3\xa9x") == 0);
    tri_free(text);
    int32_t *ids = NULL;
    int64_t n_ids;
    EXPECT_OK(tri_tokenizer_encode(one, "<|a b|>th", 9, &ids, &n_ids));
    EXPECT(n_ids == 8 && ids[0] == '<' && ids[7] == 257);
    tri_free(ids);
    EXPECT_ERROR(TRI_ERR_ARGUMENT, "number 259 at place 1 is no token",
                 tri_tokenizer_decode(one, (int32_t[]){0, 259}, 2, &text, &n));
    EXPECT_ERROR(TRI_ERR_ARGUMENT, "number -1 at place 0 is no token",
                 tri_tokenizer_decode(one, (int32_t[]){-1}, 1, &text, &n));
  }
  tri_free(json);
  tri_tokenizer_close(&tokenizer);
  tri_tokenizer_close(&again);
}

TEST(digests_tell_encodings_apart)
{
#define AB ",\"ab\":256,\"ac\":257"
  static const json_parts all[] = {
      {.vocab = AB, .merges = "[\"a b\"]"},
      {.vocab = AB, .merges = "[\"a c\"]"},
      {.vocab = AB, .merges = "[\"a b\",\"a c\"]"},
      {.vocab = AB, .merges = "[\"a c\",\"a b\"]"},
      {.vocab = ",\"ab\":257,\"ac\":256", .merges = "[\"a b\"]"},
      {.vocab = ",\"ab\":256,\"ad\":257", .merges = "[\"a b\"]"},
      {.vocab = ",\"ab\":256", .merges = "[\"a b\"]"},
  };
#undef AB
  enum { N = sizeof all / sizeof all[0] };
  tri_digest digests[N];
  for (int i = 0; i < N; i++) {
    tri_tokenizer *tokenizer = NULL;
    EXPECT_OK(from_parts(&all[i], &tokenizer));
    tri_tokenizer_digest(tokenizer, &digests[i]);
    tri_tokenizer_close(&tokenizer);
    for (int other = 0; other < i; other++)
      EXPECT(memcmp(&digests[other], &digests[i], sizeof digests[i]) != 0);
  }
}

// The rule, step by step: the strongest merge of the whole piece, the leftmost of equals.
static int merge_plainly(const char *const merges[][2], int n_merges, char parts[][32], int n)
{
  for (;;) {
    int best = n_merges, place = -1;
    for (int i = 0; i + 1 < n; i++) {
      for (int m = 0; m < best; m++) {
        if (strcmp(parts[i], merges[m][0]) != 0 || strcmp(parts[i + 1], merges[m][1]) != 0)
          continue;
        best = m;
        place = i;
      }
    }
    if (place < 0) return n;
    const size_t n_left = strlen(parts[place]), n_right = strlen(parts[place + 1]);
    if (n_left + n_right >= sizeof *parts) return -1;
    memmove(parts[place] + n_left, parts[place + 1], n_right + 1);
    memmove(parts + place + 1, parts + place + 2, (size_t)(n - place - 2) * sizeof *parts);
    n--;
  }
}

// Merges in an order that no training gives: parts may be made by weaker merges than the whole.
TEST(merges_follow_the_rule)
{
  static const char *const merges[][2] = {{"ab", "c"}, {"bc", "bc"}, {"c", "ab"},   {"a", "a"},
                                          {"b", "c"},  {"a", "b"},   {"aa", "aa"},  {"abc", "a"},
                                          {"c", "c"},  {"aa", "a"},  {"cc", "aaa"}, {"b", "b"}};
  enum { N_MERGES = sizeof merges / sizeof merges[0] };
  char vocab[1024] = "", list[1024] = "[";
  char names[N_MERGES][32];
  for (int m = 0, id = 256; m < N_MERGES; m++) {
    snprintf(names[m], sizeof names[m], "%s%s", merges[m][0], merges[m][1]);
    bool twice = false; // "abc" is made in two ways
    for (int earlier = 0; earlier < m; earlier++)
      twice = twice || strcmp(names[earlier], names[m]) == 0;
    if (!twice) sprintf(vocab + strlen(vocab), ",\"%s\":%d", names[m], id++);
    sprintf(list + strlen(list), "%s\"%s %s\"", m == 0 ? "" : ",", merges[m][0], merges[m][1]);
  }
  strcat(list, "]");
  tri_tokenizer *tokenizer = NULL;
  EXPECT_OK(from_parts(&(json_parts){.vocab = vocab, .merges = list}, &tokenizer));
  for (uint64_t key = 0; key < 2000; key++) {
    char text[32] = "", parts[32][32];
    const int n = 1 + (int)(tri_random_u64(key, 99) % 30);
    for (int i = 0; i < n; i++) {
      text[i] = (char)('a' + tri_random_u64(key, (uint64_t)i) % 3);
      snprintf(parts[i], sizeof parts[i], "%c", text[i]);
    }
    const int want = merge_plainly(merges, N_MERGES, parts, n);
    int32_t *ids = NULL;
    int64_t n_ids;
    EXPECT_OK(tri_tokenizer_encode(tokenizer, text, (size_t)n, &ids, &n_ids));
    EXPECT(n_ids == want);
    for (int i = 0; i < want && n_ids == want; i++) {
      char *part = NULL;
      size_t n_part;
      EXPECT_OK(tri_tokenizer_decode(tokenizer, &ids[i], 1, &part, &n_part));
      EXPECT(strcmp(part, parts[i]) == 0);
      tri_free(part);
    }
    tri_free(ids);
  }
  tri_tokenizer_close(&tokenizer);
}

// --- files

static void copy_reference(const char *name, const char *folder, const char *as)
{
  char *data = NULL;
  char path[1200];
  size_t n;
  read_reference(name, &data, &n);
  snprintf(path, sizeof path, "%s/%s", folder, as);
  write_bytes(path, data, n);
  tri_free(data);
}

static void expect_opens(const char *folder, const char *name, const char *want_name,
                         const tri_digest *want)
{
  char path[1200];
  tri_digest digest;
  snprintf(path, sizeof path, "%s%s%s", folder, name[0] == '\0' ? "" : "/", name);
  tri_tokenizer *tokenizer = open_tokenizer(path);
  if (tokenizer == NULL) return;
  tri_tokenizer_digest(tokenizer, &digest);
  EXPECT(memcmp(&digest, want, sizeof digest) == 0);
  EXPECT(strcmp(tri_tokenizer_name(tokenizer), want_name) == 0);
  tri_tokenizer_close(&tokenizer);
}

TEST(every_form_is_the_same_encoding)
{
  tri_digest digest;
  tri_tokenizer *tokenizer = open_tokenizer(reference("tokenizer.json")), *none = NULL;
  tri_tokenizer_digest(tokenizer, &digest);
  char *json = NULL;
  EXPECT_OK(tri_tokenizer_to_json(tokenizer, &json));
  const char *folder = in_scratch("forms"), *printed = in_scratch("printed.json");
  write_bytes(printed, json, strlen(json));
  expect_opens(printed, "", "bpe printed.json", &digest);
  EXPECT_OK(tri_file_make_folder(folder));
  EXPECT_ERROR(TRI_ERR_IO, "holds no tokenizer.json", tri_tokenizer_open(folder, &none));
  copy_reference("vocab.json", folder, "encoder.json");
  expect_opens(reference("vocab.json"), "", "bpe vocab.json", &digest);
  expect_opens(reference("merges.txt"), "", "bpe merges.txt", &digest);
  EXPECT_ERROR(TRI_ERR_IO, "neither merges.txt nor vocab.bpe", tri_tokenizer_open(folder, &none));
  copy_reference("merges.txt", folder, "vocab.bpe");
  expect_opens(folder, "", "bpe encoder.json", &digest);
  expect_opens(folder, "vocab.bpe", "bpe vocab.bpe", &digest);
  expect_opens(folder, "encoder.json", "bpe encoder.json", &digest);
  copy_reference("tokenizer.json", folder, "tokenizer.json");
  expect_opens(folder, "", "bpe tokenizer.json", &digest);
  EXPECT_ERROR(TRI_ERR_IO, "No such file", tri_tokenizer_open(in_scratch("no.json"), &none));
  EXPECT(none == NULL);
  tri_free(json);
  tri_tokenizer_close(&tokenizer);
}

TEST(wrong_merge_lines_are_named)
{
  tri_tokenizer *none = NULL;
  const char *folder = in_scratch("lines");
  char path[1200];
  EXPECT_OK(tri_file_make_folder(folder));
  snprintf(path, sizeof path, "%s/merges.txt", folder);
  copy_reference("vocab.json", folder, "vocab.json");
  static const char *const texts[] = {"#version: 0.2\nt h\noops\n", "t h\nt qqq\n",
                                      "t h\r\nt h\r\n"};
  static const char *const wants[] = {"merges.txt: line 3 is not two tokens",
                                      "merges.txt: merge line 2: 'qqq' is no token",
                                      "merges.txt: merge line 2 is there already, as number 0"};
  for (int i = 0; i < 3; i++) {
    write_bytes(path, texts[i], strlen(texts[i]));
    EXPECT_ERROR(TRI_ERR_FORMAT, wants[i], tri_tokenizer_open(path, &none));
  }
  EXPECT(none == NULL);
}

// One byte of the file wrong: refused, or another encoding that is still one.
TEST(damaged_files_never_crash)
{
  char *json = NULL;
  size_t n;
  int refused = 0;
  read_reference("tokenizer.json", &json, &n);
  for (uint64_t i = 0; i < 300; i++) {
    const size_t at = tri_random_u64(5, i) % n;
    const char before = json[at];
    json[at] = (char)tri_random_u64(6, i);
    tri_tokenizer *tokenizer = NULL;
    if (tri_tokenizer_from_json(json, i % 10 == 0 ? at : n, "damaged", &tokenizer) == TRI_OK) {
      expect_round_trip(tokenizer, "the quick \xff brown", 17);
    } else {
      refused++;
      EXPECT(strstr(tri_error_message(), "damaged") != NULL);
    }
    tri_tokenizer_close(&tokenizer);
    json[at] = before;
  }
  EXPECT(refused > 100);
  tri_free(json);
}

// --- parts

TEST(alphabet_is_a_bijection)
{
  char seen[256][3];
  for (int byte = 0; byte < 256; byte++) {
    memset(seen[byte], 0, sizeof seen[byte]);
    const int n = tri_byte_alphabet_character((uint8_t)byte, seen[byte]);
    uint8_t back[2] = {0};
    size_t n_back = 0;
    EXPECT(tri_byte_alphabet_bytes(seen[byte], (size_t)n, back, &n_back));
    EXPECT(n_back == 1 && back[0] == byte);
    for (int other = 0; other < byte; other++)
      EXPECT(strcmp(seen[other], seen[byte]) != 0);
  }
  EXPECT(strcmp(seen[' '], "\xc4\xa0") == 0 && strcmp(seen['\n'], "\xc4\x8a") == 0);
  uint8_t out[8];
  size_t n;
  static const char *const outside[] = {" ", "\n", "\xc5\x84", "\xc2\x80", "\xe2\x82\xac", "\xc4"};
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
    EXPECT(!tri_byte_alphabet_bytes(outside[i], strlen(outside[i]), out, &n));
}

TEST(utf8_is_checked_strictly)
{
  static const struct {
    const char *text;
    size_t valid;
  } cases[] = {
      {"", 0},
      {"abc", 3},
      {"0123456789\xc3\xa9", 12},
      {"\xc3", 0},
      {"a\xc3(", 1},
      {"\xc0\x80", 0},
      {"\xc1\xbf", 0},
      {"\xe0\x9f\xbf", 0},
      {"\xe0\xa0\x80", 3},
      {"\xed\x9f\xbf", 3},
      {"\xed\xa0\x80", 0},
      {"\xef\xbf\xbf", 3},
      {"\xf0\x8f\xbf\xbf", 0},
      {"\xf0\x90\x80\x80", 4},
      {"\xf4\x8f\xbf\xbf", 4},
      {"\xf4\x90\x80\x80", 0},
      {"\xf5\x80\x80\x80", 0},
      {"\xf0\x9f\x91", 0},
      {"\xf0\x9f\x91z", 0},
      {"\x80", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *text = cases[i].text;
    EXPECT(tri_utf8_valid_bytes((const uint8_t *)text, strlen(text)) == cases[i].valid);
  }
}

int main(void)
{
  TEST_RUN(what_is_not_supported_is_named);
  TEST_RUN(wrong_entries_are_named);
  TEST_RUN(added_tokens_decode_only);
  TEST_RUN(digests_tell_encodings_apart);
  TEST_RUN(merges_follow_the_rule);
  TEST_RUN(every_form_is_the_same_encoding);
  TEST_RUN(wrong_merge_lines_are_named);
  TEST_RUN(damaged_files_never_crash);
  TEST_RUN(alphabet_is_a_bijection);
  TEST_RUN(utf8_is_checked_strictly);
  EXPECT_OK(tri_memory_check_balance());
  return test_end();
}
