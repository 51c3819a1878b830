// docs/job-file.md has one row for each key, in the order of the table, with what the table says,
// and no other rows; other pages and files that must agree with the program.
#include "test.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/job/job.h"

enum { ROW_BYTES = 1024 };

// Markdown reads a bar as the end of a cell.
static void without_bars(const char *text, char *out, size_t size)
{
  size_t n = 0;
  for (; *text != '\0' && n + 2 < size; text++) {
    if (text[0] == ' ' && text[1] == '|') continue;
    out[n++] = *text == '|' ? ',' : *text;
  }
  out[n] = '\0';
}

static void row_of(const tri_job_key *key, char row[ROW_BYTES])
{
  char type[256];
  without_bars(key->type, type, sizeof type);
  snprintf(row, ROW_BYTES, "| `%s` | %s%s%s | %s | %s |", key->path, type,
           key->range[0] == '\0' ? "" : " in ", key->range,
           key->default_value[0] == '\0' ? "required" : key->default_value, key->meaning);
}

TEST(reference_page_is_the_table)
{
  char path[4096], row[ROW_BYTES];
  char *page = NULL;
  size_t size_bytes = 0;
  const char *folder = getenv("TRI_SRCDIR");
  EXPECT_OK(tri_path_join(path, sizeof path, folder == NULL ? "." : folder, "docs/job-file.md"));
  EXPECT_OK(tri_file_read(path, TRI_JOB_MAX_BYTES, &page, &size_bytes));
  if (page == NULL) return;
  const char *line = page;
  int n_rows = 0;
  tri_job_key key;
  for (; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
    if (strncmp(line, "| `", 3) != 0) continue;
    if (!tri_job_get_key(n_rows++, &key)) break;
    row_of(&key, row);
    if (strncmp(line, row, strlen(row)) == 0 && line[strlen(row)] == '\n') continue;
    printf("row %d of %s is not\n%s\n", n_rows, path, row);
    EXPECT(false);
  }
  EXPECT(tri_job_get_key(n_rows - 1, &key) && !tri_job_get_key(n_rows, &key));
  tri_free(page);
}

TEST(shipped_jobs_load)
{
  static const char *const jobs[] = {"jobs/quickstart.yaml"};
  const char *folder = getenv("TRI_SRCDIR");
  for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++) {
    char path[4096];
    tri_job *job = NULL;
    EXPECT_OK(tri_path_join(path, sizeof path, folder == NULL ? "." : folder, jobs[j]));
    EXPECT_OK(tri_job_load(path, NULL, 0, &job));
    tri_job_free(&job);
  }
}

// docs/exit-codes.md names every status with its number.
TEST(exit_codes_are_documented)
{
  static const tri_status all[] = {
      TRI_OK,         TRI_ERR_USAGE,    TRI_ERR_CONFIG,      TRI_ERR_IO,     TRI_ERR_FORMAT,
      TRI_ERR_MEMORY, TRI_ERR_NUMERIC,  TRI_ERR_UNSUPPORTED, TRI_ERR_COMM,   TRI_ERR_TIMEOUT,
      TRI_ERR_PEER,   TRI_ERR_ARGUMENT, TRI_ERR_INTERNAL,    TRI_ERR_DEVICE, TRI_ERR_INTERRUPTED};
  char path[4096], row[128];
  char *page = NULL;
  size_t size_bytes = 0;
  const char *folder = getenv("TRI_SRCDIR");
  EXPECT_OK(tri_path_join(path, sizeof path, folder == NULL ? "." : folder, "docs/exit-codes.md"));
  EXPECT_OK(tri_file_read(path, TRI_JOB_MAX_BYTES, &page, &size_bytes));
  if (page == NULL) return;
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    snprintf(row, sizeof row, "\n| %d | %s |", (int)all[i], tri_status_name(all[i]));
    EXPECT(strstr(page, row) != NULL);
  }
  tri_free(page);
}

int main(int argc, char **argv)
{
  // docs_test --rows prints the rows, to paste into the page.
  if (argc > 1 && strcmp(argv[1], "--rows") == 0) {
    char row[ROW_BYTES];
    tri_job_key key;
    for (int i = 0; tri_job_get_key(i, &key); i++) {
      row_of(&key, row);
      printf("%s\n", row);
    }
    return 0;
  }
  TEST_RUN(reference_page_is_the_table);
  TEST_RUN(shipped_jobs_load);
  TEST_RUN(exit_codes_are_documented);
  return test_end();
}
