// Memory limits of invented machines: files below a scratch folder instead of /proc and /sys.
#include "device/cpu/memory_limits.h"

#include "test.h"
#include "trireme/base/file.h"

static char root[512];
static int n_roots;

// Puts a text into a file below the root, and makes its folders.
static void put(const char *name, const char *text)
{
  char path[1024], folder[1024];
  snprintf(path, sizeof path, "%s/%s", root, name);
  snprintf(folder, sizeof folder, "%s", path);
  *strrchr(folder, '/') = '\0';
  EXPECT_OK(tri_file_make_folder(folder));
  EXPECT_OK(tri_file_write_atomic(path, text, strlen(text)));
}

// A new machine with 1000 kB, 800 of them free.
static void new_machine(const char *cgroups)
{
  snprintf(root, sizeof root, "%s/machine-%d", test_scratch(), n_roots++);
  put("proc/meminfo", "MemTotal:    1000 kB\nMemFree: 7 kB\nMemAvailable:  800 kB\n");
  if (cgroups != NULL) put("proc/self/cgroup", cgroups);
}

static void expect(size_t total_bytes, size_t free_bytes, const char *least)
{
  tri_memory_limits limits;
  EXPECT_OK(tri_memory_limits_read(root, &limits));
  EXPECT(limits.total_bytes == total_bytes);
  EXPECT(limits.free_bytes == free_bytes);
  EXPECT(strcmp(limits.least, least) == 0);
}

static const char machine[] = "MemAvailable in /proc/meminfo";
enum { KIB = 1024 };

TEST(without_groups_the_machine_is_the_limit)
{
  new_machine(NULL);
  expect(1000 * KIB, 800 * KIB, machine);
  new_machine("0::/\n");
  expect(1000 * KIB, 800 * KIB, machine);
  new_machine("0::/gone\nno line at all\n4:memory:/gone/too\n");
  expect(1000 * KIB, 800 * KIB, machine);
}

TEST(the_machine_must_say)
{
  tri_memory_limits limits;
  new_machine(NULL);
  put("proc/meminfo", "MemTotal: 1000 kB\n");
  EXPECT_ERROR(TRI_ERR_IO, "no MemAvailable", tri_memory_limits_read(root, &limits));
  EXPECT_ERROR(TRI_ERR_IO, "/proc/meminfo cannot be read", tri_memory_limits_read("/n", &limits));
}

TEST(version_2_up_the_tree)
{
  new_machine("0::/slurm/job_1/step_0\n");
  put("sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n");
  put("sys/fs/cgroup/slurm/job_1/step_0/memory.current", "4096\n");
  expect(1000 * KIB, 800 * KIB, machine);
  put("sys/fs/cgroup/slurm/job_1/memory.max", "102400\n");
  put("sys/fs/cgroup/slurm/job_1/memory.current", "62400\n");
  expect(102400, 40000, "the limit of 102400 bytes in /sys/fs/cgroup/slurm/job_1/memory.max");
  // The file cache can be had, wherever its lines are.
  put("sys/fs/cgroup/slurm/job_1/memory.stat",
      "anon 5\ninactive_file 1000\ninactive_file_more 7\nactive_file 500\n");
  expect(102400, 41500, "the limit of 102400 bytes in /sys/fs/cgroup/slurm/job_1/memory.max");
  // A group above with less to give, one below with a smaller limit and more to give.
  put("sys/fs/cgroup/slurm/memory.max", "200000\n");
  put("sys/fs/cgroup/slurm/memory.current", "190000\n");
  put("sys/fs/cgroup/slurm/job_1/step_0/memory.max", "50000\n");
  expect(50000, 10000, "the limit of 200000 bytes in /sys/fs/cgroup/slurm/memory.max");
  put("sys/fs/cgroup/slurm/memory.current", "200001\n");
  expect(50000, 0, "the limit of 200000 bytes in /sys/fs/cgroup/slurm/memory.max");
}

TEST(version_1_up_the_tree)
{
  new_machine("9:name=systemd:/\n4:cpu,memory:/a/b\n3:memory_other:/c\n0::/\n");
  put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "77\n");
  put("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "1\n");
  put("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "1\n");
  expect(1000 * KIB, 800 * KIB, machine);
  put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300000\n");
  put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100000\n");
  put("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 9\ntotal_inactive_file 100\n");
  expect(300000, 200100,
         "the limit of 300000 bytes in /sys/fs/cgroup/memory/a/memory.limit_in_bytes");
}

TEST(a_container_sees_its_own_group_as_the_root)
{
  new_machine("0::/../other\n4:memory:/docker/0123\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  expect(300000, 200000,
         "the limit of 300000 bytes in /sys/fs/cgroup/memory/memory.limit_in_bytes");
  put("sys/fs/cgroup/memory.max", "5000\n");
  put("sys/fs/cgroup/memory.current", "1000\n");
  put("sys/fs/other/memory.max", "1\n");
  put("sys/fs/other/memory.current", "1\n");
  expect(5000, 4000, "the limit of 5000 bytes in /sys/fs/cgroup/memory.max");
}

TEST(this_machine_says)
{
  tri_memory_limits limits;
  EXPECT_OK(tri_memory_limits_read("", &limits));
  EXPECT(limits.free_bytes > 0 && limits.free_bytes <= limits.total_bytes);
}

int main(void)
{
  TEST_RUN(without_groups_the_machine_is_the_limit);
  TEST_RUN(the_machine_must_say);
  TEST_RUN(version_2_up_the_tree);
  TEST_RUN(version_1_up_the_tree);
  TEST_RUN(a_container_sees_its_own_group_as_the_root);
  TEST_RUN(this_machine_says);
  return test_end();
}
