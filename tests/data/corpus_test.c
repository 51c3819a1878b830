// Corpora: what is written is what is read, split where promised, whole or not there, opened
// without reading the content, and damage is told.
// timeout: 120
#define _GNU_SOURCE
#include "trireme/data/corpus.h"

#include <dirent.h>
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "corpus_test.h"
#include "data/corpus_build.h"
#include "data/corpus_file.h"
#include "trireme/base/memory.h"

static void expect_split(const tri_corpus *corpus, tri_split split, const uint8_t *want, int64_t n)
{
  tri_corpus_facts facts;
  tri_corpus_get_facts(corpus, &facts);
  EXPECT(facts.n_tokens[split] == n);
  EXPECT(facts.n_bytes[split] == n);
  int32_t *got = malloc(((size_t)n + 2) * sizeof *got);
  static const int64_t steps[] = {1, 31, 257, 1000, 100000};
  for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
    for (int64_t i = 0; i < n + 2; i++)
      got[i] = -7;
    for (int64_t first = 0; first < n; first += steps[s]) {
      const int64_t part = n - first < steps[s] ? n - first : steps[s];
      EXPECT_OK(tri_corpus_read(corpus, split, first, part, got + first));
    }
    for (int64_t i = 0; i < n; i++)
      EXPECT(got[i] == want[i]);
    EXPECT(got[n] == -7 && got[n + 1] == -7);
  }
  free(got);
}

TEST(reads_what_was_written)
{
  enum { N = 40000 };
  static uint8_t data[N];
  tri_corpus *corpus = NULL;
  fill_noise(1, N, data);
  const char *path = in_scratch("a.h5");
  build_bytes_corpus(path, data, N, 0.1);
  EXPECT_OK(tri_corpus_open(path, &corpus));
  tri_corpus_facts facts;
  tri_corpus_get_facts(corpus, &facts);
  const int64_t cut = facts.n_bytes[TRI_SPLIT_TRAIN];
  EXPECT(cut >= N - N / 10 && data[cut - 1] == '\n');
  EXPECT(memchr(data + (N - N / 10), '\n', (size_t)(cut - 1 - (N - N / 10))) == NULL);
  EXPECT(facts.vocab_size == 256 && strcmp(facts.tokenizer_name, "bytes") == 0);
  expect_split(corpus, TRI_SPLIT_TRAIN, data, cut);
  expect_split(corpus, TRI_SPLIT_VALIDATION, data + cut, N - cut);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "the split has",
               tri_corpus_read(corpus, TRI_SPLIT_TRAIN, cut - 1, 2, (int32_t[2]){0}));
  tri_corpus_close(&corpus);
  EXPECT(corpus == NULL);
}

TEST(carries_its_tokenizer)
{
  tri_corpus *corpus = NULL;
  tri_tokenizer *tokenizer = NULL;
  const char *path = in_scratch("b.h5");
  build_bytes_corpus(path, "one\ntwo\n", 8, 0);
  EXPECT_OK(tri_corpus_open(path, &corpus));
  EXPECT_OK(tri_corpus_tokenizer(corpus, &tokenizer));
  EXPECT(tri_tokenizer_vocab_size(tokenizer) == 256);
  EXPECT(strcmp(tri_tokenizer_name(tokenizer), "bytes") == 0);
  tri_tokenizer_close(&tokenizer);
  tri_corpus_close(&corpus);
}

static void expect_cut(const char *text, double fraction, int64_t cut)
{
  tri_corpus *corpus = NULL;
  const char *path = in_scratch("cut.h5");
  const int64_t n = (int64_t)strlen(text);
  build_bytes_corpus(path, text, (size_t)n, fraction);
  EXPECT_OK(tri_corpus_open(path, &corpus));
  expect_split(corpus, TRI_SPLIT_TRAIN, (const uint8_t *)text, cut);
  expect_split(corpus, TRI_SPLIT_VALIDATION, (const uint8_t *)text + cut, n - cut);
  tri_corpus_close(&corpus);
}

TEST(validation_begins_at_a_line)
{
  expect_cut("aa\nbb\ncc\ndd\n", 0, 12);
  expect_cut("aa\nbb\ncc\ndd\n", 0.5, 9); // byte 6 is the c behind a line end; its line ends at 9
  expect_cut("aa\nbb\ncc\ndd\n", 0.1, 9); // nothing would be left: the last line end before
  expect_cut("aaaaaaaaaa", 0.2, 8);
  expect_cut("aaaaaaa\xe2\x82\xac", 0.2, 10); // not inside a character
}

// What the files are cut into does not matter, nor how they are read.
TEST(texts_are_joined)
{
  enum { N = 3000 };
  static uint8_t data[N];
  fill_noise(5, N, data);
  static const size_t ends[] = {0, 1, 1, 1000, 2999, 3000};
  const char *names[] = {"t0", "t1", "t2", "t3", "t4"};
  char paths[5][512];
  const char *list[5];
  for (int i = 0; i < 5; i++) {
    snprintf(paths[i], sizeof paths[i], "%s/%s", test_scratch(), names[i]);
    list[i] = paths[i];
    write_bytes(list[i], data + ends[i], ends[i + 1] - ends[i]);
  }
  tri_tokenizer *bytes = NULL;
  EXPECT_OK(tri_tokenizer_open("bytes", &bytes));
  static const size_t blocks[] = {1, 7, 999, 1 << 20};
  for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
    tri_corpus *corpus = NULL;
    const char *path = in_scratch("joined.h5");
    EXPECT_OK(tri_corpus_build_in_blocks(list, 5, bytes, 0, path, blocks[b]));
    EXPECT_OK(tri_corpus_open(path, &corpus));
    if (corpus != NULL) expect_split(corpus, TRI_SPLIT_TRAIN, data, N);
    tri_corpus_close(&corpus);
  }
  tri_tokenizer_close(&bytes);
}

TEST(same_text_gives_the_same_file)
{
  char *first, *second;
  size_t n_first, n_second;
  build_bytes_corpus(in_scratch("s1.h5"), "one\ntwo\nthree\n", 14, 0.3);
  build_bytes_corpus(in_scratch("s2.h5"), "one\ntwo\nthree\n", 14, 0.3);
  EXPECT_OK(tri_file_read(in_scratch("s1.h5"), 1 << 20, &first, &n_first));
  EXPECT_OK(tri_file_read(in_scratch("s2.h5"), 1 << 20, &second, &n_second));
  EXPECT(n_first == n_second && memcmp(first, second, n_first) == 0);
  tri_free(first);
  tri_free(second);
}

static int count_files(const char *folder)
{
  int n = 0;
  DIR *listing = opendir(folder);
  while (listing != NULL && readdir(listing) != NULL)
    n++;
  if (listing != NULL) closedir(listing);
  return n - 2;
}

TEST(what_cannot_be_read_or_written_is_named)
{
  tri_tokenizer *bytes = NULL;
  EXPECT_OK(tri_tokenizer_open("bytes", &bytes));
  const char *text = in_scratch("text"), *missing = in_scratch("missing"), *folder = test_scratch();
  write_bytes(text, "one\n", 4);
  EXPECT_ERROR(TRI_ERR_IO, "missing", tri_corpus_build(&missing, 1, bytes, 0, in_scratch("x.h5")));
  EXPECT_ERROR(TRI_ERR_IO, "is not a regular file",
               tri_corpus_build(&folder, 1, bytes, 0, in_scratch("x.h5")));
  EXPECT_ERROR(TRI_ERR_IO, "No such file or directory",
               tri_corpus_build(&text, 1, bytes, 0, in_scratch("no/x.h5")));
  EXPECT_ERROR(TRI_ERR_IO, "Not a directory",
               tri_corpus_build(&text, 1, bytes, 0, in_scratch("text/x.h5")));
  EXPECT_ERROR(TRI_ERR_IO, "is not a regular file", tri_corpus_build(&text, 1, bytes, 0, folder));
  EXPECT_ERROR(TRI_ERR_IO, "both a text and the corpus",
               tri_corpus_build(&text, 1, bytes, 0, text));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "fraction 1",
               tri_corpus_build(&text, 1, bytes, 1, in_scratch("x.h5")));
  write_bytes(text, "", 0);
  EXPECT_ERROR(TRI_ERR_FORMAT, "the text is empty",
               tri_corpus_build(&text, 1, bytes, 0, in_scratch("x.h5")));
  EXPECT(!tri_file_exists(in_scratch("x.h5")));
  tri_tokenizer_close(&bytes);
}

// A disk that is full after any number of bytes: the build says so and leaves nothing.
TEST(full_disk_leaves_nothing)
{
  enum { N = 30000 };
  static uint8_t data[N];
  fill_noise(2, N, data);
  const char *folder = in_scratch("full");
  char path[600];
  EXPECT_OK(tri_file_make_folder(folder));
  snprintf(path, sizeof path, "%s/c.h5", folder);
  tri_tokenizer *bytes = NULL;
  const char *text = in_scratch("full-text");
  write_bytes(text, data, N);
  EXPECT_OK(tri_tokenizer_open("bytes", &bytes));
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before, small;
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  static const rlim_t limits[] = {1, 100, 2048, 2 * N - 1, 2 * N, 2 * N + 100, 2 * N + 500};
  for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
    small.rlim_cur = limits[l];
    setrlimit(RLIMIT_FSIZE, &small);
    const tri_status status = tri_corpus_build(&text, 1, bytes, 0, path);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT(status == TRI_ERR_IO && strstr(tri_error_message(), "c.h5") != NULL);
    EXPECT(count_files(folder) == 0);
  }
  EXPECT_OK(tri_corpus_build(&text, 1, bytes, 0, path));
  EXPECT(count_files(folder) == 1);
  tri_tokenizer_close(&bytes);
}

static int64_t bytes_read_by_this_process(void)
{
  long long n = -1;
  FILE *file = fopen("/proc/self/io", "r");
  if (file == NULL) return -1;
  if (fscanf(file, "rchar: %lld", &n) != 1) n = -1;
  fclose(file);
  return n;
}

static void copy_all_but_holes(int from, int to)
{
  static char page[1 << 16];
  for (off_t at = lseek(from, 0, SEEK_DATA); at >= 0; at = lseek(from, at, SEEK_DATA)) {
    const ssize_t n = pread(from, page, sizeof page, at);
    EXPECT(n > 0 && pwrite(to, page, (size_t)n, at) == n);
    at += n;
  }
  EXPECT(ftruncate(to, lseek(from, 0, SEEK_END)) == 0);
}

// 4 GiB of tokens, all zero, in a file without blocks.
TEST(opening_reads_headers_only)
{
  tri_corpus *corpus = NULL;
  const char *path = in_scratch("huge.h5");
  tri_corpus_shape shape = {.token_bytes = 2, .tokenizer_bytes = 10};
  strcpy(shape.facts.tokenizer_name, "bytes");
  shape.facts.vocab_size = 256;
  shape.facts.n_tokens[TRI_SPLIT_TRAIN] = 1ll << 31;
  int headers = -1;
  EXPECT_OK(tri_corpus_file_create(path, &shape, &headers));
  const int file = open(path, O_WRONLY);
  copy_all_but_holes(headers, file);
  close(file);
  close(headers);
  const int64_t before = bytes_read_by_this_process();
  EXPECT_OK(tri_corpus_open(path, &corpus));
  int32_t last = -1;
  EXPECT_OK(tri_corpus_read(corpus, TRI_SPLIT_TRAIN, (1ll << 31) - 1, 1, &last));
  EXPECT(last == 0);
  EXPECT(bytes_read_by_this_process() - before < 1 << 16);
  tri_corpus_close(&corpus);
  unlink(path);
}

// Opens and reads all of a file that may be damaged: false for an error, which must name the file.
static bool read_all(const char *path)
{
  tri_corpus *corpus = NULL;
  tri_tokenizer *tokenizer = NULL;
  tri_corpus_facts facts = {.vocab_size = 0};
  tri_error_clear();
  tri_status status = tri_corpus_open(path, &corpus);
  if (status == TRI_OK) status = tri_corpus_tokenizer(corpus, &tokenizer);
  if (status == TRI_OK) tri_corpus_get_facts(corpus, &facts);
  for (int split = 0; split < 2; split++) {
    int32_t token;
    for (int64_t i = 0; i < facts.n_tokens[split] && status == TRI_OK; i++)
      status = tri_corpus_read(corpus, split, i, 1, &token);
  }
  EXPECT(status == TRI_OK || strstr(tri_error_message(), path) != NULL);
  tri_tokenizer_close(&tokenizer);
  tri_corpus_close(&corpus);
  return status == TRI_OK;
}

// Damages a file in many ways, in a process of its own, since HDF5 might crash; `place` says where
// it was then.
static void damage_in_child(void (*damage)(const char *whole, size_t n, const char *path,
                                           size_t *place))
{
  char *whole;
  size_t n;
  const char *path = in_scratch("damaged.h5");
  build_bytes_corpus(path, "one\ntwo\nthree\nfour\n", 19, 0.3);
  EXPECT(read_all(path));
  EXPECT_OK(tri_file_read(path, 1 << 20, &whole, &n));
  size_t *place =
      mmap(NULL, sizeof *place, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    damage(whole, n, path, place);
    fflush(stdout);
    _exit(test_failed_here > 0);
  }
  int code = -1;
  EXPECT(waitpid(child, &code, 0) == child);
  if (code != 0) printf("# ended at place %zu with %d\n", *place, code);
  EXPECT(WIFEXITED(code) && WEXITSTATUS(code) == 0);
  munmap(place, sizeof *place);
  tri_free(whole);
}

static void truncate_everywhere(const char *whole, size_t n, const char *path, size_t *place)
{
  for (size_t keep = 0; keep < n; keep += 1 + keep / 40) {
    *place = keep;
    write_bytes(path, whole, keep);
    EXPECT(!read_all(path));
  }
  write_bytes(path, whole, n - 1);
  EXPECT(!read_all(path));
}

TEST(truncated_files_are_refused)
{
  damage_in_child(truncate_everywhere);
}

static void flip_bits(const char *whole, size_t n, const char *path, size_t *place)
{
  int refused = 0;
  char *flipped = malloc(n);
  for (uint64_t i = 0; i < 400; i++) {
    const size_t bit = tri_random_u64(11, i) % (8 * n);
    *place = bit;
    memcpy(flipped, whole, n);
    flipped[bit / 8] ^= (char)(1 << bit % 8);
    write_bytes(path, flipped, n);
    refused += !read_all(path);
  }
  free(flipped);
  EXPECT(refused > 50);
}

// One bit wrong anywhere: an error, or (in a token, in padding) tokens that are still below the
// vocabulary; never a crash.
TEST(flipped_bits_never_crash)
{
  damage_in_child(flip_bits);
}

static void set_number(const char *path, const char *name, int64_t value)
{
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  EXPECT(H5Awrite(attribute, H5T_NATIVE_INT64, &value) >= 0);
  H5Aclose(attribute);
  H5Fclose(file);
}

static void set_text(const char *path, const char *name, const char *value)
{
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  const hid_t type = H5Aget_type(attribute);
  EXPECT(H5Tget_size(type) == strlen(value) && H5Awrite(attribute, type, value) >= 0);
  H5Tclose(type);
  H5Aclose(attribute);
  H5Fclose(file);
}

TEST(another_tokenizer_is_noticed)
{
  tri_corpus *corpus = NULL;
  tri_tokenizer *tokenizer = NULL;
  char hex[TRI_DIGEST_HEX_BYTES];
  const char *path = in_scratch("other.h5");
  build_bytes_corpus(path, "one\ntwo\n", 8, 0);
  memset(hex, '7', sizeof hex);
  hex[TRI_DIGEST_HEX_BYTES - 1] = '\0';
  set_text(path, "tokenizer_digest", hex);
  EXPECT_OK(tri_corpus_open(path, &corpus));
  EXPECT_ERROR(TRI_ERR_FORMAT, "is not the tokenizer that attributes tokenizer_digest",
               tri_corpus_tokenizer(corpus, &tokenizer));
  tri_corpus_close(&corpus);
  hex[3] = 'x';
  set_text(path, "tokenizer_digest", hex);
  EXPECT_ERROR(TRI_ERR_FORMAT, "not 64 hex digits", tri_corpus_open(path, &corpus));
  set_text(path, "format", "trireme-corpse");
  EXPECT_ERROR(TRI_ERR_FORMAT, "attribute format is 'trireme-corpse'",
               tri_corpus_open(path, &corpus));
  EXPECT(corpus == NULL && tokenizer == NULL);
}

TEST(wrong_content_is_named)
{
  tri_corpus *corpus = NULL;
  tri_tokenizer *tokenizer = NULL;
  const char *path = in_scratch("wrong.h5");
  build_bytes_corpus(path, "one\ntwo\n", 8, 0);
  set_number(path, "vocab_size", 112);
  EXPECT_OK(tri_corpus_open(path, &corpus));
  int32_t tokens[8];
  EXPECT_ERROR(TRI_ERR_FORMAT, "token 119 in 0 to 8 is not below vocab_size 112",
               tri_corpus_read(corpus, TRI_SPLIT_TRAIN, 0, 8, tokens));
  EXPECT_ERROR(TRI_ERR_FORMAT, "tokenizer_digest", tri_corpus_tokenizer(corpus, &tokenizer));
  tri_corpus_close(&corpus);
  set_number(path, "vocab_size", 0);
  EXPECT_ERROR(TRI_ERR_FORMAT, "attribute vocab_size is 0", tri_corpus_open(path, &corpus));
  set_number(path, "vocab_size", 70000);
  EXPECT_ERROR(TRI_ERR_FORMAT, "is not of 4-byte", tri_corpus_open(path, &corpus));
  set_number(path, "version", 2);
  EXPECT_ERROR(TRI_ERR_FORMAT, "is corpus version 2", tri_corpus_open(path, &corpus));
  write_bytes(path, "hello", 5);
  EXPECT_ERROR(TRI_ERR_FORMAT, "cannot be opened as a corpus", tri_corpus_open(path, &corpus));
  EXPECT_ERROR(TRI_ERR_IO, "No such file", tri_corpus_open(in_scratch("missing"), &corpus));
  EXPECT(corpus == NULL && tokenizer == NULL);
}

TEST(a_file_that_shrinks_is_noticed)
{
  tri_corpus *corpus = NULL;
  int32_t tokens[8];
  const char *path = in_scratch("shrinks.h5");
  build_bytes_corpus(path, "one\ntwo\n", 8, 0);
  EXPECT_OK(tri_corpus_open(path, &corpus));
  EXPECT(truncate(path, 1000) == 0);
  EXPECT_ERROR(TRI_ERR_FORMAT, "is truncated: it ends at byte",
               tri_corpus_read(corpus, TRI_SPLIT_TRAIN, 0, 8, tokens));
  tri_corpus_close(&corpus);
}

int main(void)
{
  TEST_RUN(reads_what_was_written);
  TEST_RUN(carries_its_tokenizer);
  TEST_RUN(validation_begins_at_a_line);
  TEST_RUN(texts_are_joined);
  TEST_RUN(same_text_gives_the_same_file);
  TEST_RUN(what_cannot_be_read_or_written_is_named);
  TEST_RUN(full_disk_leaves_nothing);
  TEST_RUN(opening_reads_headers_only);
  TEST_RUN(truncated_files_are_refused);
  TEST_RUN(flipped_bits_never_crash);
  TEST_RUN(another_tokenizer_is_noticed);
  TEST_RUN(wrong_content_is_named);
  TEST_RUN(a_file_that_shrinks_is_noticed);
  EXPECT_OK(tri_memory_check_balance());
  return test_end();
}
