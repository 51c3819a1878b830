//
// The manifest's reader: what is written comes back, every flipped bit is found, and a manifest
// made up by an enemy, its digest in order, is refused with a message and never crashes.
#include "ckpt/manifest.h"

#include "ckpt/cover.h"
#include "ckpt/pieces.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

static char *text; // a good manifest
static size_t text_bytes;

static tri_box box(int64_t row, int64_t column, int64_t rows, int64_t columns)
{
  return (tri_box){.n_axes = 2, .start = {row, column}, .count = {rows, columns}};
}

static void make_text(void)
{
  static tri_manifest_file files[3] = {
      {"rank-00000.h5", 100000, {{1}}}, {"rank-00001.h5", 3000, {{2}}}, {"x.h5", 3000, {{3}}}};
  static char attributes[] = "{\"lr\":1.0e-5,\"step\":7}";
  tri_manifest_array arrays[3] = {{"a/b", TRI_DTYPE_F32, {2, {10, 20}}, 0, 3},
                                  {"none", TRI_DTYPE_BF16, {1, {0}}, 3, 0},
                                  {"s", TRI_DTYPE_F64, {0, {0}}, 3, 1}};
  tri_manifest_piece pieces[4] = {{.file = 0, .box = box(0, 0, 10, 5)},
                                  {.file = 1, .box = box(0, 5, 4, 15)},
                                  {.file = 2, .box = box(4, 5, 6, 15)},
                                  {.file = 1, .box = {.n_axes = 0}}};
  const tri_manifest m = {7, attributes, 3, 3, 4, files, arrays, pieces};
  EXPECT_OK(tri_manifest_write(&m, &text, &text_bytes));
}

// Puts the right digest under a changed text; returns the new size.
static size_t sign(char *changed, size_t size)
{
  char hex[TRI_DIGEST_HEX_BYTES];
  tri_digest digest;
  size_t body = size;
  while (body > 0 && (changed[body - 1] != '\n' || size - body < 60))
    body--; // to the end of the last line but one
  tri_digest_of(changed, body, &digest);
  tri_digest_hex(&digest, hex);
  return body + (size_t)sprintf(changed + body, "\"digest\":\"%s\"}\n", hex);
}

static tri_status read_text(const char *changed, size_t size)
{
  tri_manifest m;
  const tri_status status = tri_manifest_read("M", changed, size, &m);
  if (status == TRI_OK) tri_manifest_clear(&m);
  return status;
}

TEST(what_is_written_comes_back)
{
  tri_manifest m;
  char *again;
  size_t again_bytes;
  make_text();
  EXPECT_OK(tri_manifest_read("M", text, text_bytes, &m));
  EXPECT(m.step == 7 && m.n_files == 3 && m.n_arrays == 3 && m.n_pieces == 4);
  EXPECT(strcmp(m.attributes, "{\"lr\":1.0000000000000001e-5,\"step\":7}") == 0);
  EXPECT(strcmp(m.files[2].name, "x.h5") == 0 && m.files[2].digest.bytes[0] == 3);
  EXPECT(tri_manifest_find(&m, "s") == &m.arrays[2] && tri_manifest_find(&m, "t") == NULL);
  EXPECT(m.pieces[2].file == 2 && m.pieces[2].box.start[0] == 4 && m.pieces[2].box.count[1] == 15);
  EXPECT_OK(tri_manifest_write(&m, &again, &again_bytes));
  tri_free(text);
  text = again; // the attributes now in the form that writing again does not change
  text_bytes = again_bytes;
  tri_manifest_clear(&m);
  EXPECT(sign(again, again_bytes) == text_bytes);
  EXPECT_OK(read_text(text, text_bytes));
}

TEST(every_flipped_bit_and_every_cut_is_found)
{
  char *copy = malloc(text_bytes + 1);
  memcpy(copy, text, text_bytes + 1);
  for (size_t i = 0; i < 8 * text_bytes; i++) {
    copy[i / 8] = (char)(copy[i / 8] ^ 1 << i % 8);
    EXPECT_ERROR(TRI_ERR_FORMAT, "M: is ", read_text(copy, text_bytes));
    copy[i / 8] = text[i / 8];
  }
  for (size_t n = 0; n < text_bytes; n++)
    EXPECT_ERROR(TRI_ERR_FORMAT, "M: is ", read_text(text, n));
  free(copy);
}

TEST(made_up_manifests_are_refused)
{
  static const char deep[] = "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[";
  static const struct {
    const char *old, *new, *message;
  } changes[] = {
      {"trireme checkpoint", "other", "its format is 'other'"},
      {"\"version\":1", "\"version\":3", "has version 3"},
      {"\"version\":1", "\"version\":1,\"more\":1", "members that are not known"},
      {"\"step\":7,\n", "", "has no \"step\""},
      {"\"step\":7,\n", "\"step\":-1,\n", "-1 is not from 0"},
      {"\"step\":7,\n", "\"step\":7.0,\n", "a number is missing"},
      {"\"step\":7,\n", "\"step\":99999999999999999999,\n", "too big integer"},
      {"\"step\":7,\n", "\"step\":7,\"step\":7,\n", "duplicate object key"},
      {"\"attributes\":{", "\"attributes\":[{", ": "},
      {"rank-00000.h5", "../00000.h5", "no plain file name"},
      {"rank-00000.h5", "/etc/passwd", "no plain file name"},
      {"rank-00000.h5", ".hidden", "no plain file name"},
      {"rank-00000.h5", "manifest.json", "no plain file name"},
      {"rank-00000.h5", "a\\u0000b", "\\u0000 is not allowed"},
      {"rank-00000.h5", "a\xff", "unable to decode byte 0xff"},
      {"rank-00000.h5", "", "a text of 0 bytes"},
      {"rank-00000.h5", "rank-00001.h5", "twice or out of order"},
      {"rank-00000.h5", "zank-00000.h5", "twice or out of order"},
      {"\"bytes\":100000", "\"bytes\":199", "too small for its pieces"},
      {"\"bytes\":100000", "\"bytes\":\"1\"", "a number is missing"},
      {"\"bytes\":100000,", "", "has no \"bytes\""},
      {"\"digest\":\"01", "\"digest\":\"0x", "not 64 hex digits"},
      {"\"digest\":\"01", "\"digest\":\"", "not 64 hex digits"},
      {"\"name\":\"a/b\"", "\"name\":\"a/../b\"", "not made of plain parts"},
      {"\"name\":\"a/b\"", "\"name\":\"z\"", "twice or out of order"},
      {"\"name\":\"s\"", "\"name\":\"none\"", "twice or out of order"},
      {"\"f32\"", "\"f31\"", "no type is called 'f31'"},
      {"\"bytes\":3000", "\"bytes\":247", "rank-00001.h5 of 247 bytes is too small"},
      {"[10,20]", "[10,20,1]", "a list of 3 numbers is missing"},
      {"[10,20]", "[10,20,1,1,1]", "at most 4 axes"},
      {"[10,20]", "[10,-20]", "-20 is not from 0"},
      {"[10,20]", "[10,21]", "elements [20, 21), the first at (0, 20), are held by no file"},
      {"[10,20]", "[10,19]", "leaves the extent 19"},
      {"[10,20]", "[9000000000000000000,9000000000000000000]", "more bytes than 64 bits"},
      {"[10,20]", "[0,9000000000000000000]", ": "},
      {"[0,[0,0],[10,5]]", "[0,[0,0],[10,6]]",
       "[5, 6), the first at (0, 5), are held 2 times: by file 0, file 1"},
      {"[0,[0,0],[10,5]]", "[0,[0,0],[10,4]]", "[4, 5), the first at (0, 4), are held by no file"},
      {"[0,[0,0],[10,5]]", "[0,[0,0],[10,0]]", "0 is not from 1"},
      {"[0,[0,0],[10,5]]", "[0,[-1,0],[10,5]]", "-1 is not from 0"},
      {"[0,[0,0],[10,5]]", "[0,[9223372036854775807,0],[10,5]]", "leaves the extent"},
      {"[0,[0,0],[10,5]]", "[3,[0,0],[10,5]]", "3 is not from 0 to 2"},
      {"[0,[0,0],[10,5]]", "[2,[0,0],[10,5]]", "its file is there twice or out of order"},
      {"[0,[0,0],[10,5]]", "[0,[0,0]]", "no list of file, start and count"},
      {"[0,[0,0],[10,5]],", "", "[0, 5), the first at (0, 0), are held by no file"},
      {"[1,[],[]]", "", "[0, 1), the first at (), are held by no file"},
      {"[1,[],[]]", "[0,[],[]],[1,[],[]]", "at (), are held 2 times: by file 0, file 1"},
      {"[1,[],[]]", "1", "no list of file, start and count"},
      {"\"pieces\":[]", "\"pieces\":[[0,[0],[1]]]", "leaves the extent 0"},
      {"\"pieces\":[]", "\"pieces\":0", "a list of pieces"},
      {"\"pieces\":[]", deep, "M:"},
      {"{\"format\"", "[{\"format\"", "M:"},
  };
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    char changed[4096];
    const char *at = strstr(text, changes[i].old);
    EXPECT(at != NULL);
    if (at == NULL) continue;
    const int n = snprintf(changed, sizeof changed - 200, "%.*s%s%s", (int)(at - text), text,
                           changes[i].new, at + strlen(changes[i].old));
    const size_t size = sign(changed, (size_t)n);
    EXPECT_ERROR(TRI_ERR_FORMAT, changes[i].message, read_text(changed, size));
    EXPECT(strncmp(tri_error_message(), "M:", 2) == 0);
  }
}

// Random edits, signed again: refused or right, never a crash.
TEST(random_edits_never_crash)
{
  static const char *const bits[] = {"[",   "]",    "{",  "}",   ",",  ":",     "\"", "-1",
                                     "0",   "1e99", "99", "[]",  "{}", "null",  "/",  "..",
                                     "\\u", "\\",   "\n", "[0,", "3]", "65536", "a",  "true"};
  uint64_t counter = 0;
  int accepted = 0;
  for (int trial = 0; trial < 20000; trial++) {
    char changed[8192];
    memcpy(changed, text, text_bytes + 1);
    size_t size = text_bytes;
    const int n_edits = 1 + (int)(tri_random_u64(5, counter++) % 3);
    for (int e = 0; e < n_edits; e++) {
      const uint64_t r = tri_random_u64(5, counter++);
      const size_t at = (size_t)(r >> 32) % (size - 80), cut = r % 4 == 0 ? (r >> 8) % 30 : r % 3;
      const char *bit = bits[(r >> 16) % (sizeof bits / sizeof bits[0])];
      const size_t n = r % 5 == 0 ? 0 : strlen(bit);
      if (at + cut > size - 80) continue;
      memmove(changed + at + n, changed + at + cut, size - at - cut + 1);
      memcpy(changed + at, bit, n);
      size += n - cut;
    }
    size = sign(changed, size);
    const tri_status status = read_text(changed, size);
    accepted += status == TRI_OK;
    EXPECT(status == TRI_OK || status == TRI_ERR_FORMAT);
    if (status != TRI_OK) EXPECT(strncmp(tri_error_message(), "M:", 2) == 0);
  }
  EXPECT(accepted < 4000); // digits of a step, letters of a name: right as well
}

// Version 2: several pieces of an array in one file, one behind the other in its dataset.
TEST(several_pieces_in_a_file)
{
  static const struct {
    const char *old, *new, *message;
  } changes[] = {
      {"\"version\":2", "\"version\":1", "piece 1: it or its file is there twice"},
      {"[0,[0,0],[2,5]],[0,[2,2],[1,2]]", "[0,[2,2],[1,2]],[0,[0,0],[2,5]]", "out of order"},
      {"[0,[2,2],[1,2]]", "[0,[2,2],[1,2]],[0,[2,2],[1,2]]", "there twice or out of order"},
      {"[0,[2,2],[1,2]]", "[0,[2,2],[1,1]]", "[13, 14), the first at (2, 3), are held by no file"},
      {"[0,[2,2],[1,2]]", "[0,[1,4],[2,1]],[0,[2,2],[1,2]]", "2 times: by file 0, file 0"},
      {"\"bytes\":60", "\"bytes\":47", "too small for its pieces"},
  };
  char attributes[] = "{}", changed[4096], *written;
  size_t size;
  tri_manifest_file files[2] = {{"a.h5", 60, {{1}}}, {"b.h5", 60, {{2}}}};
  tri_manifest_array arrays[1] = {{"w", TRI_DTYPE_F32, {2, {3, 5}}, 0, 4}};
  tri_manifest_piece pieces[4] = {{.file = 0, .box = box(0, 0, 2, 5)},
                                  {.file = 0, .box = box(2, 2, 1, 2)},
                                  {.file = 1, .box = box(2, 0, 1, 2)},
                                  {.file = 1, .box = box(2, 4, 1, 1)}};
  const tri_manifest m = {7, attributes, 2, 1, 4, files, arrays, pieces};
  tri_manifest again;
  EXPECT_OK(tri_manifest_write(&m, &written, &size));
  EXPECT_OK(tri_manifest_read("M", written, size, &again));
  static const int64_t before[] = {0, 10, 0, 2}, total[] = {12, 12, 3, 3};
  for (int i = 0; i < 4 && again.n_pieces == 4; i++)
    EXPECT(again.pieces[i].before == before[i] && again.pieces[i].total == total[i]);
  tri_manifest_clear(&again);
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
    const char *at = strstr(written, changes[i].old);
    EXPECT(at != NULL);
    if (at == NULL) continue;
    const int n = snprintf(changed, sizeof changed - 200, "%.*s%s%s", (int)(at - written), written,
                           changes[i].new, at + strlen(changes[i].old));
    EXPECT_ERROR(TRI_ERR_FORMAT, changes[i].message, read_text(changed, sign(changed, (size_t)n)));
  }
  tri_free(written);
}

// Many pieces must not take the square of the time.
TEST(many_pieces_are_checked_fast)
{
  enum { N = 60000 };
  tri_box *columns = malloc(N * sizeof *columns);
  int *files = calloc(N, sizeof *files);
  for (int i = 0; i < N; i++)
    columns[i] = box(0, N - 1 - i, 3, 1);
  const tri_shape shape = tri_shape_2d(3, N);
  const tri_cover cover = {"c", &shape, columns, files, "file", N};
  EXPECT_OK(tri_ckpt_check_cover(&cover));
  columns[7].start[1]++;
  EXPECT_ERROR(TRI_ERR_FORMAT, "are held by no file", tri_ckpt_check_cover(&cover));
  free(files);
  free(columns);
}

int main(void)
{
  TEST_RUN(what_is_written_comes_back);
  TEST_RUN(every_flipped_bit_and_every_cut_is_found);
  TEST_RUN(made_up_manifests_are_refused);
  TEST_RUN(random_edits_never_crash);
  TEST_RUN(several_pieces_in_a_file);
  TEST_RUN(many_pieces_are_checked_fast);
  tri_free(text);
  EXPECT(tri_memory_blocks(TRI_MODULE_CKPT) == 0);
  return test_end();
}
