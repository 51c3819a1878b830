// ranks: 2
//
// save_loop FOLDER N: resumes from the newest checkpoint of the folder, which must be whole and
// right, and saves N more, one after the other: a program to be killed (kill_test.sh). Without
// arguments it is a test of itself.
#include <unistd.h>

#include "test.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/comm/comm.h"

enum { N_ARRAYS = 5, ROWS = 301, COLUMNS = 100 };

static tri_comm *world;

static int32_t element(int64_t step, int array, int64_t row, int64_t column)
{
  return (int32_t)(step * 1000003 + array * 70001 + row * COLUMNS + column);
}

typedef struct held {
  tri_ckpt_array arrays[N_ARRAYS];
  int64_t step;
  int64_t wrong, seen;
} held;

static tri_status fetch(void *user, int index, const tri_box *part, void *host_out)
{
  const held *h = user;
  int32_t *out = host_out;
  for (int64_t r = part->start[0]; r < part->start[0] + part->count[0]; r++)
    for (int64_t c = part->start[1]; c < part->start[1] + part->count[1]; c++)
      *out++ = element(h->step, index, r, c);
  return TRI_OK;
}

static tri_status store(void *user, int index, const tri_box *part, const void *host_in)
{
  held *h = user;
  const int32_t *in = host_in;
  for (int64_t r = part->start[0]; r < part->start[0] + part->count[0]; r++)
    for (int64_t c = part->start[1]; c < part->start[1] + part->count[1]; c++, h->seen++)
      h->wrong += *in++ != element(h->step, index, r, c);
  return TRI_OK;
}

static tri_ckpt_state state_of(held *h)
{
  const int rank = tri_comm_rank(world), n = tri_comm_size(world);
  for (int i = 0; i < N_ARRAYS; i++) {
    tri_ckpt_array *a = &h->arrays[i];
    *a = (tri_ckpt_array){.dtype = TRI_DTYPE_I32, .replica = rank, .n_replicas = n};
    snprintf(a->name, sizeof a->name, "array/%d", i);
    a->shape = tri_shape_2d(ROWS, COLUMNS);
    a->box = tri_box_all(&a->shape);
  }
  return (tri_ckpt_state){h->arrays, N_ARRAYS, fetch, store, h};
}

// Checks the newest checkpoint; *step is that of it, or 0.
static tri_status resume(const char *folder, int64_t *step)
{
  char path[1024], want[64];
  held h = {.step = 0};
  tri_ckpt *ckpt = NULL;
  const tri_ckpt_state state = state_of(&h);
  TRI_CALL(tri_ckpt_latest(world, folder, path, sizeof path, step));
  if (*step < 0) {
    *step = 0;
    return TRI_OK;
  }
  TRI_CALL(tri_ckpt_open(world, path, &ckpt));
  h.step = tri_ckpt_step(ckpt);
  snprintf(want, sizeof want, "{\"step\":%lld}", (long long)*step);
  const bool right = h.step == *step && strcmp(tri_ckpt_attributes(ckpt), want) == 0;
  const tri_status status = tri_ckpt_load(ckpt, world, &state);
  tri_ckpt_close(&ckpt);
  TRI_CALL(status);
  TRI_CHECK(right && h.wrong == 0 && h.seen == (int64_t)N_ARRAYS * ROWS * COLUMNS, TRI_ERR_INTERNAL,
            "%s: %lld of %lld elements are wrong", path, (long long)h.wrong, (long long)h.seen);
  return TRI_OK;
}

static tri_status loop(const char *folder, int n_saves)
{
  int64_t step;
  held h;
  const tri_ckpt_state state = state_of(&h);
  TRI_CALL(resume(folder, &step));
  printf("resumed %lld\n", (long long)step);
  fflush(stdout);
  for (int i = 0; i < n_saves; i++) {
    char attributes[64];
    // Now and then the same step again: the old one is replaced.
    if (i % 4 != 3) step++;
    h.step = step;
    snprintf(attributes, sizeof attributes, "{\"step\":%lld}", (long long)step);
    TRI_CALL(tri_ckpt_save(world, folder, step, &state, attributes));
    TRI_CALL(tri_ckpt_prune(world, folder, 2));
  }
  return TRI_OK;
}

TEST(loop_resumes)
{
  char folder[512];
  snprintf(folder, sizeof folder, "%s/loop", test_scratch());
  EXPECT_OK(loop(folder, 4));
  EXPECT_OK(loop(folder, 2));
  int64_t step;
  EXPECT_OK(resume(folder, &step));
  EXPECT(step > 3);
}

int main(int argc, char **argv)
{
  if (argc == 3) { // whom to kill, before MPI takes its time
    char name[1024];
    snprintf(name, sizeof name, "%s.pid.%d", argv[1], (int)getpid());
    FILE *file = fopen(name, "w");
    if (file == NULL || fclose(file) != 0) return 1;
  }
  if (tri_comm_create_world(30, &world) != TRI_OK) return 1;
  if (argc == 3) {
    const tri_status status = loop(argv[1], atoi(argv[2]));
    if (status != TRI_OK) printf("not ok: %s\n%s", tri_error_message(), tri_error_stack());
    tri_comm_destroy(&world);
    tri_comm_finish();
    return status;
  }
  TEST_RUN(loop_resumes);
  tri_comm_destroy(&world);
  tri_comm_finish();
  return test_end();
}
