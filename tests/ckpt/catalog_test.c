// ranks: 1 2 3
//
// The folder of checkpoints: the newest whole one is found among damaged and half-written ones,
// retention never removes the last good one, and damage of any byte of a checkpoint is refused on
// all ranks.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/comm/comm.h"

static tri_comm *world;
static char folder[512];

static bool is_root(void)
{
  return tri_comm_rank(world) == 0;
}

// What root alone does to the files; the others wait.
#define ON_ROOT(action) \
  do { \
    EXPECT_OK(tri_comm_barrier(world, "test")); \
    if (is_root()) action; \
    EXPECT_OK(tri_comm_barrier(world, "test")); \
  } while (0)

static const char *path_of(const char *name)
{
  static char path[1200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void shell(const char *format, const char *name)
{
  char command[1600];
  snprintf(command, sizeof command, format, path_of(name));
  EXPECT(system(command) == 0);
}

// A small checkpoint: two arrays of this rank's rows.
static tri_status small_fetch(void *user, int index, const tri_box *part, void *host_out)
{
  (void)user;
  memset(host_out, 'a' + index, (size_t)tri_box_elements(part) * 4);
  return TRI_OK;
}

static tri_status small_store(void *user, int index, const tri_box *part, const void *host_in)
{
  (void)index;
  for (int64_t i = 0; i < 4 * tri_box_elements(part); i++)
    *(int64_t *)user += ((const char *)host_in)[i];
  return TRI_OK;
}

static int64_t sum_stored;

static void save_small(int64_t step)
{
  const int rank = tri_comm_rank(world), n = tri_comm_size(world);
  tri_ckpt_array arrays[2] = {
      {"x", TRI_DTYPE_F32, {1, {4 * n}}, {1, {4 * rank}, {4}}, 0, 1},
      {"y/z", TRI_DTYPE_I32, {1, {4 * n}}, {1, {4 * rank}, {4}}, 0, 1},
  };
  const tri_ckpt_state state = {arrays, 2, small_fetch, small_store, &sum_stored};
  EXPECT_OK(tri_ckpt_save(world, folder, step, &state, "{\"a\":1}"));
}

static tri_status open_small(const char *name)
{
  tri_ckpt *ckpt = NULL;
  const tri_status status = tri_ckpt_open(world, path_of(name), &ckpt);
  tri_ckpt_close(&ckpt);
  return status;
}

static int64_t latest(void)
{
  char path[600] = "?";
  int64_t step = -2;
  EXPECT_OK(tri_ckpt_latest(world, folder, path, sizeof path, &step));
  char want[600] = "";
  if (step >= 0) snprintf(want, sizeof want, "%s/step-%08lld", folder, (long long)step);
  EXPECT(strcmp(path, want) == 0);
  return step;
}

TEST(no_folder_is_no_checkpoint)
{
  EXPECT(latest() == -1);
  EXPECT_OK(tri_ckpt_prune(world, folder, 2));
  EXPECT_ERROR(is_root() ? TRI_ERR_IO : TRI_ERR_PEER, "no such checkpoint", open_small("step-1"));
  ON_ROOT(EXPECT_OK(tri_file_make_folder(folder)));
  EXPECT(latest() == -1);
}

TEST(latest_is_the_newest_whole_one)
{
  for (int64_t step = 98; step <= 102; step++)
    save_small(step == 102 ? 100000000 : step); // more digits are more, not less
  EXPECT(latest() == 100000000);
  ON_ROOT(shell("truncate -s -1 '%s'", "step-100000000/rank-00000.h5"));
  EXPECT(latest() == 101);
  ON_ROOT(shell("echo >> '%s'", "step-00000101/manifest.json"));
  EXPECT(latest() == 100);
  ON_ROOT(shell("rm '%s'", "step-00000100/manifest.json"));
  EXPECT(latest() == 99);
  ON_ROOT(shell("rm '%s'", "step-00000099/rank-00000.h5"));
  EXPECT(latest() == 98);
  // Names that are none of ours, a stranger's step, a pipe that would make a reader wait.
  ON_ROOT(shell("cd '%s' && mkdir step-500 step-000000500 step--0000001 step-00000500x "
                "step-99999999999999999999 .step-00000600.partial-0123456789abcdef && "
                "cp -r step-00000098 step-00000700 && cp -r step-00000098 "
                ".step-00000800.partial-0123456789abcdee && touch step-00000900 && "
                "mkdir step-00000950 && mkfifo step-00000950/manifest.json",
                "."));
  EXPECT(latest() == 98);
  EXPECT_ERROR(is_root() ? TRI_ERR_FORMAT : TRI_ERR_PEER, "is not a regular file",
               open_small("step-00000950"));
  EXPECT_ERROR(is_root() ? TRI_ERR_FORMAT : TRI_ERR_PEER, "manifest.json: is missing",
               open_small("step-00000900"));
  ON_ROOT(shell("cd '%s' && rm -r step-500 step-000000500 step--0000001 step-00000500x "
                "step-99999999999999999999",
                "."));
}

TEST(listing_says_what_is_wrong)
{
  tri_ckpt_entry *entries = NULL;
  int n = 0;
  EXPECT_OK(tri_ckpt_list(folder, &entries, &n));
  EXPECT(n == 8);
  for (int i = 0; i < n; i++) {
    EXPECT(i == 0 || entries[i].step < entries[i - 1].step);
    EXPECT((entries[i].status == TRI_OK) == (entries[i].step == 98));
    EXPECT((entries[i].message[0] == '\0') == (entries[i].step == 98));
    if (entries[i].step == 700) EXPECT(strstr(entries[i].message, "is that of step 98") != NULL);
    if (entries[i].step != 98) continue;
    EXPECT(entries[i].facts.n_arrays == 2 && entries[i].facts.n_files == tri_comm_size(world));
    EXPECT(entries[i].facts.elements == 8 * tri_comm_size(world));
  }
  tri_free(entries);
}

TEST(retention_keeps_whole_ones)
{
  // The whole one is the oldest: it stays, and so do all that are newer.
  EXPECT_OK(tri_ckpt_prune(world, folder, 1));
  EXPECT(latest() == 98);
  ON_ROOT(shell("test -e '%s'", "step-00000950"));
  for (int64_t step = 1001; step <= 1004; step++)
    save_small(step);
  EXPECT_OK(tri_ckpt_prune(world, folder, 0));
  ON_ROOT(shell("test -e '%s'", "step-00000098"));
  EXPECT_OK(tri_ckpt_prune(world, folder, 3));
  ON_ROOT(shell("cd '%s' && test \"$(ls -A | tr '\\n' ' ')\" = "
                "'step-00001002 step-00001003 step-00001004 step-100000000 '",
                "."));
  EXPECT_ERROR(is_root() ? TRI_ERR_ARGUMENT : TRI_ERR_PEER, "-1 checkpoints cannot be kept",
               tri_ckpt_prune(world, folder, -1));
}

TEST(temporary_folders_of_the_living_stay)
{
  int lock = -1;
  static const char name[] = ".step-00000600.partial-0123456789abcdef";
  ON_ROOT(EXPECT(mkdir(path_of(name), 0755) == 0));
  ON_ROOT(EXPECT((lock = open(path_of(name), O_RDONLY)) >= 0 && flock(lock, LOCK_EX) == 0));
  EXPECT_OK(tri_ckpt_prune(world, folder, 2));
  ON_ROOT(EXPECT(access(path_of(name), F_OK) == 0));
  ON_ROOT(close(lock));
  EXPECT_OK(tri_ckpt_prune(world, folder, 2));
  ON_ROOT(EXPECT(access(path_of(name), F_OK) != 0));
}

TEST(when_none_is_whole_it_is_said)
{
  char path[600];
  int64_t step;
  ON_ROOT(shell("rm -r '%s'/step-*/rank-00000.h5", "."));
  EXPECT_ERROR(is_root() ? TRI_ERR_FORMAT : TRI_ERR_PEER, "none of its 3 checkpoints is whole",
               tri_ckpt_latest(world, folder, path, sizeof path, &step));
  ON_ROOT(shell("rm -r '%s'/step-*", "."));
}

static void flip(const char *name, int64_t bit)
{
  char byte;
  const int fd = open(path_of(name), O_RDWR);
  EXPECT(pread(fd, &byte, 1, (off_t)(bit / 8)) == 1);
  byte = (char)(byte ^ 1 << bit % 8);
  EXPECT(pwrite(fd, &byte, 1, (off_t)(bit / 8)) == 1);
  close(fd);
}

// A bit of every byte (of the data file: of every 37th), and cuts.
TEST(damage_is_refused_on_all_ranks)
{
  static const char *const names[] = {"step-00000005/manifest.json", "step-00000005/rank-00000.h5"};
  save_small(5);
  for (int which = 0; which < 2; which++) {
    int64_t bytes = 0;
    EXPECT_OK(tri_file_size(path_of(names[which]), &bytes));
    for (int64_t bit = 0; bit < 8 * bytes; bit += which == 0 ? 13 : 8 * 37 + 1) {
      ON_ROOT(flip(names[which], bit));
      const tri_status want = is_root() ? TRI_ERR_FORMAT : TRI_ERR_PEER;
      EXPECT_ERROR(want, strrchr(names[which], '/'), open_small("step-00000005"));
      ON_ROOT(flip(names[which], bit));
    }
    ON_ROOT(shell("cp '%s' $TRI_SCRATCH/kept", names[which]));
    for (int64_t cut = bytes - 1; cut >= 0; cut = cut * 2 / 3 - 1) {
      ON_ROOT(EXPECT(truncate(path_of(names[which]), (off_t)cut) == 0));
      EXPECT_ERROR(is_root() ? TRI_ERR_FORMAT : TRI_ERR_PEER, strrchr(names[which], '/'),
                   open_small("step-00000005"));
    }
    ON_ROOT(shell("mv $TRI_SCRATCH/kept '%s'", names[which]));
  }
  EXPECT_OK(open_small("step-00000005"));
  // Files changed between one another have the right sizes, but not the right content.
  if (tri_comm_size(world) == 1) return;
  ON_ROOT(shell("cd '%s'/step-00000005 && cp rank-00001.h5 rank-00000.h5", "."));
  EXPECT_ERROR(is_root() ? TRI_ERR_FORMAT : TRI_ERR_PEER, "rank-00000.h5: is damaged",
               open_small("step-00000005"));
}

TEST(a_folder_that_cannot_be_written)
{
  tri_ckpt_state none = {0};
  char path[600];
  ON_ROOT(shell("echo > '%s/file'", "."));
  snprintf(path, sizeof path, "%s/file/more", folder);
  EXPECT_ERROR(is_root() ? TRI_ERR_IO : TRI_ERR_PEER, "/file",
               tri_ckpt_save(world, path, 1, &none, "{}"));
  EXPECT_ERROR(is_root() ? TRI_ERR_IO : TRI_ERR_PEER, "/proc/trireme",
               tri_ckpt_save(world, "/proc/trireme", 1, &none, "{}"));
  if (geteuid() == 0) return; // root may write everywhere
  ON_ROOT(shell("chmod 555 '%s'", "."));
  EXPECT_ERROR(is_root() ? TRI_ERR_IO : TRI_ERR_PEER, "Permission denied",
               tri_ckpt_save(world, folder, 1, &none, "{}"));
  ON_ROOT(shell("chmod 755 '%s'", "."));
}

int main(void)
{
  if (tri_comm_create_world(30, &world) != TRI_OK) return 1;
  snprintf(folder, sizeof folder, "%s/catalog-%d", test_scratch(), tri_comm_size(world));
  TEST_RUN(no_folder_is_no_checkpoint);
  TEST_RUN(latest_is_the_newest_whole_one);
  TEST_RUN(listing_says_what_is_wrong);
  TEST_RUN(retention_keeps_whole_ones);
  TEST_RUN(temporary_folders_of_the_living_stay);
  TEST_RUN(when_none_is_whole_it_is_said);
  TEST_RUN(damage_is_refused_on_all_ranks);
  TEST_RUN(a_folder_that_cannot_be_written);
  EXPECT(tri_memory_blocks(TRI_MODULE_CKPT) == 0);
  tri_comm_destroy(&world);
  tri_comm_finish();
  return test_end();
}
