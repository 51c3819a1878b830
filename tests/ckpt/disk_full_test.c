// ranks: 1 2
//
// Writes that fail, at any place of a file: the rank says why, the others hear of it, nothing is
// left behind, the older checkpoint is whole, and the program goes on and ends in good order (HDF5
// must not be left with a file that it could not close).
//
// disk_full_test FOLDER: the same on a file system that is too small (disk_full.sh).
#include <signal.h>
#include <sys/resource.h>

#include "test.h"
#include "trireme/base/file.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/comm/comm.h"

enum { N_ARRAYS = 40 };

static tri_comm *world;
static char folder[512];
static int64_t rows = 500; // of an array, all on the last rank
static tri_ckpt_array arrays[N_ARRAYS];

static tri_status fetch(void *user, int index, const tri_box *part, void *host_out)
{
  (void)user;
  memset(host_out, 'a' + index % 26, (size_t)tri_box_elements(part) * 4);
  return TRI_OK;
}

static tri_status store(void *user, int index, const tri_box *part, const void *host_in)
{
  for (int64_t i = 0; i < 4 * tri_box_elements(part); i++)
    *(int64_t *)user += ((const char *)host_in)[i] != 'a' + index % 26;
  return TRI_OK;
}

static bool is_last(void)
{
  return tri_comm_rank(world) == tri_comm_size(world) - 1;
}

static tri_ckpt_state make_state(int64_t *wrong)
{
  for (int i = 0; i < N_ARRAYS; i++) {
    tri_ckpt_array *a = &arrays[i];
    *a = (tri_ckpt_array){.dtype = TRI_DTYPE_F32, .n_replicas = 1};
    snprintf(a->name, sizeof a->name, "group%d/array%d", i % 3, i);
    a->shape = tri_shape_1d(rows);
    a->box = tri_box_all(&a->shape);
    if (!is_last()) a->box.count[0] = 0;
  }
  return (tri_ckpt_state){arrays, N_ARRAYS, fetch, store, wrong};
}

static tri_status save(int64_t step)
{
  const tri_ckpt_state state = make_state(NULL);
  return tri_ckpt_save(world, folder, step, &state, "{}");
}

// The only checkpoint is that of step 1, and it is whole.
static void expect_old_one(void)
{
  char path[600], command[700];
  int64_t step, wrong = 0;
  tri_ckpt *ckpt = NULL;
  const tri_ckpt_state state = make_state(&wrong);
  EXPECT_OK(tri_ckpt_latest(world, folder, path, sizeof path, &step));
  EXPECT(step == 1);
  EXPECT_OK(tri_ckpt_open(world, path, &ckpt));
  if (ckpt != NULL) EXPECT_OK(tri_ckpt_load(ckpt, world, &state));
  tri_ckpt_close(&ckpt);
  EXPECT(wrong == 0);
  snprintf(command, sizeof command, "test \"$(ls -A '%s')\" = step-00000001", folder);
  EXPECT(system(command) == 0);
  EXPECT_OK(tri_comm_barrier(world, "test"));
}

static void limit_file_size(rlim_t bytes)
{
  struct rlimit limit;
  EXPECT(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  limit.rlim_cur = bytes;
  EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

// The limit moves through the whole file of the last rank, so that every write of it fails once.
TEST(every_write_may_fail)
{
  char path[600];
  int64_t bytes = 0;
  EXPECT_OK(save(1));
  snprintf(path, sizeof path, "%s/step-00000001/rank-%05d.h5", folder, tri_comm_size(world) - 1);
  EXPECT_OK(tri_file_size(path, &bytes));
  for (int64_t limit = 0; limit < bytes; limit += limit < 4096 ? 512 : bytes / 23) {
    if (is_last()) limit_file_size((rlim_t)limit);
    EXPECT_ERROR(is_last() ? TRI_ERR_IO : TRI_ERR_PEER, "File too large", save(2));
    if (is_last()) limit_file_size(RLIM_INFINITY);
    expect_old_one();
  }
  if (is_last()) limit_file_size((rlim_t)bytes - 1);
  EXPECT_ERROR(is_last() ? TRI_ERR_IO : TRI_ERR_PEER, "File too large", save(2));
  if (is_last()) limit_file_size(RLIM_INFINITY);
  expect_old_one();
  EXPECT_OK(save(2));
}

TEST(full_disk)
{
  rows = 100;
  EXPECT_OK(save(1));
  for (rows = 100000; rows < 130000; rows += 9973) { // far more than there is, in data and metadata
    EXPECT_ERROR(is_last() ? TRI_ERR_IO : TRI_ERR_PEER, "No space left on device", save(2));
    const int64_t large = rows;
    rows = 100;
    expect_old_one();
    rows = large;
  }
  // Not enough by a little: what HDF5 holds back until the end does not fit.
  char command[1200];
  for (int free_kib = 0; free_kib <= 32; free_kib += 4) {
    snprintf(command, sizeof command,
             "cd '%s'/.. && dd if=/dev/zero of=fill bs=1k count=$(($(df -Pk . | awk 'NR == 2 "
             "{print $4}') - %d)) 2>/dev/null; test -e fill",
             folder, free_kib);
    rows = 100;
    if (tri_comm_rank(world) == 0) EXPECT(system(command) == 0);
    EXPECT_OK(tri_comm_barrier(world, "test"));
    const tri_status got = save(2);
    EXPECT(got == TRI_ERR_IO || got == TRI_ERR_PEER);
    EXPECT(strstr(tri_error_message(), "No space left on device") != NULL);
    expect_old_one();
    snprintf(command, sizeof command, "rm '%s'/../fill", folder);
    if (tri_comm_rank(world) == 0) EXPECT(system(command) == 0);
    EXPECT_OK(tri_comm_barrier(world, "test"));
  }
  EXPECT_OK(save(2));
}

int main(int argc, char **argv)
{
  signal(SIGXFSZ, SIG_IGN);
  if (tri_comm_create_world(30, &world) != TRI_OK) return 1;
  if (argc == 2) {
    snprintf(folder, sizeof folder, "%s/ckpt", argv[1]);
    TEST_RUN(full_disk);
  } else {
    snprintf(folder, sizeof folder, "%s/full-%d", test_scratch(), tri_comm_size(world));
    TEST_RUN(every_write_may_fail);
  }
  tri_comm_destroy(&world);
  tri_comm_finish();
  return test_end();
}
