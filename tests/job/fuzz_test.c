// Job files with bytes flipped, lines dropped, doubled and swapped: a status of the job file, or a
// job that reads back; never a crash, never a leak.
#include <malloc.h>

#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"
#include "trireme/job/job.h"

enum { N_ROUNDS = 6000, ROOM = 16384 };

static const char start[] = "# a job\n"
                            "kind: train\n"
                            "name: \"fuzz\"\n"
                            "seed: 7\n"
                            "data:\n"
                            "  corpus: 'a.h5'\n"
                            "  text: [a.txt, \"b\\tc\", 'd']\n"
                            "  text_command: []\n"
                            "model: {layers: 2, heads: 4, width: 64, context: 32, dropout: .1}\n"
                            "train:\n"
                            "  steps: 100\n"
                            "  global_batch: 12\n"
                            "  microbatch: 2\n"
                            "  lr: 1e-3 # peak\n"
                            "  schedule: linear\n"
                            "  precision: bf16\n"
                            "parallel:\n"
                            "  overlap: off\n"
                            "  data: auto\n"
                            "checkpoint:\n"
                            "  dir: >\n"
                            "    folded\n"
                            "    text\n"
                            "  resume: |-\n"
                            "    never\n";

// Numbers of one stream, in order.
typedef struct dice {
  uint64_t key, next;
} dice;

static size_t roll(dice *d, size_t n)
{
  return n == 0 ? 0 : (size_t)(tri_random_u64(d->key, d->next++) % n);
}

// The line that holds byte `at`: [first, end), the newline included.
static void line_at(const char *text, size_t n, size_t at, size_t *first, size_t *end)
{
  *first = at;
  while (*first > 0 && text[*first - 1] != '\n')
    --*first;
  *end = at;
  while (*end < n && text[*end] != '\n')
    ++*end;
  if (*end < n) ++*end;
}

static size_t insert(char *text, size_t n, size_t at, const char *piece, size_t size)
{
  char copy[ROOM];
  if (n + size > ROOM || size > ROOM) return n;
  memcpy(copy, piece, size);
  memmove(text + at + size, text + at, n - at);
  memcpy(text + at, copy, size);
  return n + size;
}

static size_t mutate(dice *d, char *text, size_t n)
{
  static const char marks[] = ":{}[],-?&*!|>'\"%@`#~ \t\n\r\\.0e\xff\x80";
  static const char *const pieces[] = {
      "<<: *a\n", "&a ",     "*a",   "---\n", "...\n",        "? [",         "!!map ", "- - - ",
      "{{",       "\"\\0\"", "0x7f", "1e400", "\xef\xbb\xbf", "%YAML 9.9\n", "  "};
  if (n == 0) return 0;
  const size_t at = roll(d, n);
  size_t first, end;
  line_at(text, n, at, &first, &end);
  switch (roll(d, 8)) {
  case 0: text[at] = (char)(text[at] ^ (1 << roll(d, 8))); return n;
  case 1: text[at] = marks[roll(d, sizeof marks)]; return n; // also the zero byte
  case 2: text[at] = (char)roll(d, 256); return n;
  case 3: memmove(text + first, text + end, n - end); return n - (end - first);
  case 4: return insert(text, n, first, text + first, end - first);
  case 5: return roll(d, 4) == 0 ? at : n; // cut short
  case 6: {
    const char *piece = pieces[roll(d, sizeof pieces / sizeof pieces[0])];
    return insert(text, n, at, piece, strlen(piece));
  }
  default: // a line moved to the end
    if (n + (end - first) > ROOM) return n;
    memcpy(text + n, text + first, end - first);
    memmove(text + first, text + end, n - first);
    return n;
  }
}

// What was accepted is written and read back to the same text.
static void check_accepted(const tri_job *job)
{
  char *yaml = NULL, *yaml_again = NULL;
  tri_job *again = NULL;
  EXPECT_OK(tri_job_to_yaml(job, &yaml));
  EXPECT_OK(tri_job_parse(yaml, strlen(yaml), "written", NULL, 0, &again));
  if (again != NULL) EXPECT_OK(tri_job_to_yaml(again, &yaml_again));
  EXPECT(yaml_again != NULL && strcmp(yaml, yaml_again) == 0);
  tri_free(yaml);
  tri_free(yaml_again);
  tri_job_free(&again);
}

// Bytes in use, those of libyaml and libcyaml too (0 where a sanitizer has its own allocator, and
// its own way to find leaks).
static int64_t bytes_in_use(void)
{
  return (int64_t)mallinfo2().uordblks;
}

TEST(mutated_files_are_read_or_refused)
{
  int n_accepted = 0;
  int64_t in_use = 0;
  char *text = malloc(ROOM);
  for (uint64_t round = 0; round < N_ROUNDS; round++) {
    // The second half repeats the first, so that what malloc keeps for itself is the same.
    if (round == N_ROUNDS / 2) in_use = bytes_in_use();
    dice d = {.key = tri_random_key(round % (N_ROUNDS / 2), "fuzz")};
    size_t n = sizeof start - 1;
    memcpy(text, start, n);
    for (size_t m = roll(&d, 4); m < 4; m++)
      n = mutate(&d, text, n);
    // A block of exactly this size, so that a sanitizer sees reads past its end.
    char *exact = malloc(n == 0 ? 1 : n);
    memcpy(exact, text, n);
    tri_job *job = NULL;
    tri_error_clear();
    const tri_status status = tri_job_parse(exact, n, "fuzz.yaml", NULL, 0, &job);
    EXPECT(status == TRI_OK || status == TRI_ERR_CONFIG);
    EXPECT((status == TRI_OK) == (job != NULL));
    if (status != TRI_OK) EXPECT(strncmp(tri_error_message(), "fuzz.yaml:", 10) == 0);
    if (job != NULL) check_accepted(job);
    n_accepted += job != NULL;
    tri_job_free(&job);
    free(exact);
    if (tri_memory_blocks(TRI_MODULE_JOB) != 0) {
      EXPECT(tri_memory_blocks(TRI_MODULE_JOB) == 0);
      break;
    }
  }
  // Its caches still move a little; one event leaked in a hundred rounds is 20 KiB.
  EXPECT_NEAR((double)bytes_in_use(), (double)in_use, 8192);
  free(text);
  // Both kinds must come, or the mutations are too weak or too strong to mean anything.
  EXPECT(n_accepted > N_ROUNDS / 50 && n_accepted < N_ROUNDS / 2);
}

TEST(mutated_overrides_are_read_or_refused)
{
  static const char *const good[] = {"data.text=[a, 'b']", "train.lr=1e-4", "run.dir=\"x\"",
                                     "parallel.overlap=on"};
  int n_accepted = 0;
  char *text = malloc(ROOM + 1);
  for (uint64_t round = 0; round < N_ROUNDS; round++) {
    dice d = {.key = tri_random_key(round, "overrides")};
    const char *from = good[roll(&d, 4)];
    size_t n = strlen(from);
    memcpy(text, from, n);
    for (size_t m = roll(&d, 3); m < 3; m++)
      n = mutate(&d, text, n);
    text[n] = '\0';
    const char *const overrides[] = {text};
    tri_job *job = NULL;
    const tri_status status =
        tri_job_parse(start, sizeof start - 1, "fuzz.yaml", overrides, 1, &job);
    EXPECT(status == TRI_OK || status == TRI_ERR_CONFIG);
    if (status != TRI_OK) EXPECT(strncmp(tri_error_message(), "override ", 9) == 0);
    n_accepted += job != NULL;
    tri_job_free(&job);
    EXPECT(tri_memory_blocks(TRI_MODULE_JOB) == 0);
  }
  free(text);
  EXPECT(n_accepted > N_ROUNDS / 50 && n_accepted < N_ROUNDS * 3 / 4);
}

int main(void)
{
  TEST_RUN(mutated_files_are_read_or_refused);
  TEST_RUN(mutated_overrides_are_read_or_refused);
  return test_end();
}
