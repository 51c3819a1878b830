// The binding of ranks, kernel threads, and what a job ends with.
// ranks: 1 2 3 4
// timeout: 60
#include "runtime/runtime_private.h"
#include "test.h"
#include "trireme/base/memory.h"

static tri_runtime *runtime;

// Numbers in a list such as "0-3,8".
static int count_list(const char *list)
{
  int n = 0, first, last, used;
  while (sscanf(list, "%d%n", &first, &used) == 1) {
    list += used;
    last = first;
    if (*list == '-') {
      if (sscanf(list + 1, "%d%n", &last, &used) != 1) return -1;
      list += 1 + used;
    }
    n += last - first + 1;
    if (*list == ',') list++;
  }
  return *list == '\0' ? n : -1;
}

TEST(binding_is_told)
{
  const tri_binding *binding = tri_runtime_binding(runtime);
  EXPECT(strlen(binding->host) > 0);
  EXPECT(strlen(binding->cpu) > 0);
  EXPECT(binding->n_processing_units >= 1);
  EXPECT(count_list(binding->units) == binding->n_processing_units);
  EXPECT(!binding->bound); // run-test binds no rank
}

TEST(threads_share_the_host_evenly)
{
  const int size = tri_comm_size(tri_runtime_world(runtime));
  const int units = tri_runtime_binding(runtime)->n_processing_units;
  EXPECT(tri_runtime_threads(runtime, 7) == 7);
  EXPECT(tri_runtime_threads(runtime, 0) == (units / size > 1 ? units / size : 1));
}

static void expect_verdict(const int *statuses, int size, tri_status wanted, int wanted_rank)
{
  int rank = 99;
  EXPECT(tri_runtime_verdict(statuses, size, &rank) == wanted);
  EXPECT(rank == wanted_rank);
}

// The cause of the end is an error that began on its rank, whoever else failed because of it.
TEST(verdict_is_the_cause)
{
  expect_verdict((const int[]){0, 0, 0}, 3, TRI_OK, -1);
  expect_verdict((const int[]){0, -1, 0}, 3, TRI_OK, -1);
  expect_verdict((const int[]){TRI_ERR_INTERRUPTED, TRI_ERR_INTERRUPTED}, 2, TRI_ERR_INTERRUPTED,
                 0);
  expect_verdict((const int[]){TRI_ERR_PEER, TRI_ERR_PEER, TRI_ERR_IO, TRI_ERR_CONFIG}, 4,
                 TRI_ERR_IO, 2);
  expect_verdict((const int[]){-1, TRI_ERR_TIMEOUT, TRI_ERR_TIMEOUT}, 3, TRI_ERR_TIMEOUT, 1);
  expect_verdict((const int[]){TRI_ERR_TIMEOUT, TRI_ERR_PEER, TRI_ERR_NUMERIC}, 3, TRI_ERR_NUMERIC,
                 2);
  expect_verdict((const int[]){TRI_OK, TRI_ERR_PEER}, 2, TRI_ERR_PEER, 1);
}

int main(void)
{
  if (tri_runtime_start(30, &runtime) != TRI_OK) {
    printf("not ok runtime_start: %s\n", tri_error_message());
    return 1;
  }
  TEST_RUN(binding_is_told);
  TEST_RUN(threads_share_the_host_evenly);
  TEST_RUN(verdict_is_the_cause);
  const int code = tri_runtime_finish(&runtime, TRI_OK);
  EXPECT(code == 0 && runtime == NULL);
  EXPECT_OK(tri_memory_check_balance());
  return test_end();
}
