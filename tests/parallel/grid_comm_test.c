// ranks: 1 2 3 4 6 8
// timeout: 120
// The communicators of every grid of the started ranks: each axis has exactly its ranks, in the
// order of their coordinates; they are few, counted apart, and timed.
#include "trireme/parallel/grid_comm.h"

#include "test.h"
#include "trireme/base/memory.h"

enum { MOST_RANKS = 8 };

static tri_comm *world;

static tri_grid grid_of(int tensor, int context, int data, int pipeline)
{
  return (tri_grid){
      .size = {tensor, context, data, pipeline}, .n_virtual = 1, .schedule = TRI_PIPELINE_1F1B};
}

// Every rank of a group says who and where it is; the ranks must be those that are away from this
// one along `axes` only, the first axis fastest.
static void check_members(const tri_grid *grid, tri_comm *comm, unsigned axes)
{
  typedef struct member {
    int rank, at[TRI_GRID_AXES];
  } member;
  member self = {.rank = tri_comm_rank(world)}, all[MOST_RANKS];
  tri_grid_coordinates(grid, self.rank, self.at);
  EXPECT(tri_comm_size(comm) == tri_grid_group_size(grid, axes));
  if (tri_comm_size(comm) > MOST_RANKS) return;
  EXPECT_OK(tri_comm_all_gather(comm, "members", &self, sizeof self, all));

  int wanted[TRI_GRID_AXES];
  memcpy(wanted, self.at, sizeof wanted);
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    if ((axes & TRI_GRID_SET(a)) != 0) wanted[a] = 0;
  }
  for (int i = 0; i < tri_comm_size(comm); i++) {
    EXPECT(memcmp(all[i].at, wanted, sizeof wanted) == 0);
    EXPECT(all[i].rank == tri_grid_rank(grid, wanted));
    EXPECT((i == tri_comm_rank(comm)) == (all[i].rank == self.rank));
    // The next one: count up on the axes of the set.
    for (int a = 0; a < TRI_GRID_AXES; a++) {
      if ((axes & TRI_GRID_SET(a)) == 0) continue;
      if (++wanted[a] < grid->size[a]) break;
      wanted[a] = 0;
    }
  }
}

// Splits that the header promises.
static int n_splits(const tri_grid *grid)
{
  int n_shared = 0;
  for (int a = 0; a < TRI_GRID_AXES; a++)
    n_shared += grid->size[a] > 1;
  return n_shared + (n_shared < TRI_GRID_AXES) +
         (grid->size[TRI_GRID_CONTEXT] > 1 && grid->size[TRI_GRID_DATA] > 1);
}

static void check_grid(const tri_grid *grid)
{
  tri_grid_comms *comms = NULL;
  const int64_t operations = tri_comm_operations(world);
  EXPECT_OK(tri_grid_comms_create(world, grid, &comms));
  if (comms == NULL) return;
  EXPECT(tri_comm_operations(world) == operations + n_splits(grid) + 2);
  int at[TRI_GRID_AXES];
  tri_grid_coordinates(grid, tri_comm_rank(world), at);
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    tri_comm *comm = tri_grid_comms_axis(comms, (tri_grid_axis)a);
    check_members(grid, comm, TRI_GRID_SET(a));
    EXPECT(tri_comm_rank(comm) == at[a]);
    EXPECT(comm != world);
    for (int b = 0; b < a; b++)
      EXPECT((comm == tri_grid_comms_axis(comms, (tri_grid_axis)b)) ==
             (grid->size[a] == 1 && grid->size[b] == 1));
  }
  check_members(grid, tri_grid_comms_replicas(comms), TRI_GRID_REPLICAS);
  tri_grid_comms_destroy(&comms);
  EXPECT(comms == NULL);
}

TEST(every_axis_has_its_ranks_in_order)
{
  const int n = tri_comm_size(world);
  for (int t = 1; t <= n; t++) {
    for (int c = 1; c <= n; c++) {
      for (int d = 1; d <= n; d++) {
        if (n % (t * c * d) != 0) continue;
        const tri_grid grid = grid_of(t, c, d, n / (t * c * d));
        const int failed_before = test_failed_here;
        check_grid(&grid);
        if (test_failed_here > failed_before)
          printf("   with %d x %d x %d x %d\n", t, c, d, n / (t * c * d));
      }
    }
  }
}

// Bytes of one axis are not those of another.
TEST(axes_are_counted_apart)
{
  const int n = tri_comm_size(world);
  if (n % 2 != 0 || n == 2) return;
  const tri_grid grid = grid_of(2, 1, n / 2, 1);
  tri_grid_comms *comms = NULL;
  EXPECT_OK(tri_grid_comms_create(world, &grid, &comms));
  if (comms == NULL) return;
  tri_comm *tensor = tri_grid_comms_axis(comms, TRI_GRID_TENSOR);
  tri_comm *data = tri_grid_comms_axis(comms, TRI_GRID_DATA);
  char block[10] = {0}, all[10 * MOST_RANKS];
  EXPECT_OK(tri_comm_all_gather(data, "block", block, sizeof block, all));
  EXPECT(tri_comm_bytes_sent(data) == 10 * (n / 2 - 1));
  EXPECT(tri_comm_bytes_sent(tensor) == 0);
  EXPECT(tri_grid_comms_replicas(comms) == data);
  tri_grid_comms_destroy(&comms);
}

// The text without its number of milliseconds.
static void check_text(const tri_grid *grid, const char *before)
{
  tri_grid_comms *comms = NULL;
  EXPECT_OK(tri_grid_comms_create(world, grid, &comms));
  if (comms == NULL) return;
  const char *text = tri_grid_comms_text(comms);
  double seconds = tri_grid_comms_seconds(comms), milliseconds = -1, all[MOST_RANKS];
  EXPECT(seconds > 0 && seconds < 60);
  EXPECT_OK(tri_comm_all_gather(world, "seconds", &seconds, sizeof seconds, all));
  for (int r = 0; r < tri_comm_size(world); r++)
    EXPECT(all[r] == seconds);
  EXPECT(strncmp(text, before, strlen(before)) == 0);
  if (tri_comm_size(world) > 1) {
    int end = -1;
    EXPECT(sscanf(text + strlen(before), ", made in %lf ms%n", &milliseconds, &end) == 1);
    EXPECT(end >= 0 && text[strlen(before) + (size_t)end] == '\0');
    EXPECT(milliseconds > 1e3 * seconds - 0.051 && milliseconds < 1e3 * seconds + 0.051);
  } else {
    EXPECT(strcmp(text, before) == 0);
  }
  if (test_failed_here > 0) printf("   wanted %s\n   found  %s\n", before, text);
  tri_grid_comms_destroy(&comms);
}

TEST(text_names_what_was_made)
{
  const tri_grid grids[] = {grid_of(1, 1, 1, 1), grid_of(1, 2, 1, 1), grid_of(1, 1, 3, 1),
                            grid_of(1, 2, 2, 1), grid_of(3, 1, 1, 2), grid_of(2, 1, 2, 2)};
  const char *const texts[] = {"communicators: none for one rank",
                               "communicators: context 2",
                               "communicators: data 3",
                               "communicators: context 2, data 2, context x data 4",
                               "communicators: tensor 3, pipeline 2",
                               "communicators: tensor 2, data 2, pipeline 2"};
  for (int i = 0; i < 6; i++) {
    if (tri_grid_ranks(&grids[i]) == tri_comm_size(world)) check_text(&grids[i], texts[i]);
  }
}

TEST(a_grid_of_other_ranks_is_refused)
{
  const tri_grid grid = grid_of(3, 1, 3, 1);
  tri_grid_comms *comms = NULL;
  char message[80];
  snprintf(message, sizeof message, "a grid of 9 ranks cannot be laid over %d ranks",
           tri_comm_size(world));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, message, tri_grid_comms_create(world, &grid, &comms));
  EXPECT(comms == NULL);
  tri_grid_comms_destroy(&comms);
}

int main(void)
{
  if (tri_comm_create_world(30, &world) != TRI_OK) {
    printf("not ok create_world: %s\n", tri_error_message());
    return 1;
  }
  TEST_RUN(every_axis_has_its_ranks_in_order);
  TEST_RUN(axes_are_counted_apart);
  TEST_RUN(text_names_what_was_made);
  TEST_RUN(a_grid_of_other_ranks_is_refused);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
  return test_end();
}
