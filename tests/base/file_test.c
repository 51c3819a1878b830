// Paths and files: the folder of a path, atomic writing into the folder it names.
#include "test.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"

static bool folder_is(const char *path, const char *wanted)
{
  char folder[64];
  return tri_path_folder(folder, sizeof folder, path) == TRI_OK && strcmp(folder, wanted) == 0;
}

TEST(folder_of_a_path)
{
  EXPECT(folder_is("a", "."));
  EXPECT(folder_is("", "."));
  EXPECT(folder_is("/a", "/"));
  EXPECT(folder_is("a/b", "a"));
  EXPECT(folder_is("/a/b.c", "/a"));
  EXPECT(folder_is("a/b/", "a/b"));
}

TEST(folder_that_does_not_fit_is_an_error)
{
  char folder[4] = "xyz";
  EXPECT_OK(tri_path_folder(folder, sizeof folder, "abc/d"));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "longer than 3 bytes",
               tri_path_folder(folder, sizeof folder, "abcd/e"));
  EXPECT(strcmp(folder, "abc") == 0);
}

TEST(atomic_write_replaces_the_whole_file)
{
  char path[4096];
  char *data = NULL;
  size_t n = 0;
  EXPECT_OK(tri_path_join(path, sizeof path, test_scratch(), "file"));
  EXPECT_OK(tri_file_write_atomic(path, "a longer text", 13));
  EXPECT_OK(tri_file_write_atomic(path, "short", 5));
  EXPECT_OK(tri_file_read(path, 100, &data, &n));
  EXPECT(n == 5 && data != NULL && memcmp(data, "short", 6) == 0);
  tri_free(data);
  EXPECT_ERROR(TRI_ERR_FORMAT, "5 bytes are more than the 4", tri_file_read(path, 4, &data, &n));
}

int main(void)
{
  TEST_RUN(folder_of_a_path);
  TEST_RUN(folder_that_does_not_fit_is_an_error);
  TEST_RUN(atomic_write_replaces_the_whole_file);
  return test_end();
}
