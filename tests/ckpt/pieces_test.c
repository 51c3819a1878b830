// Cutting of arrays: slabs walk every element once in order, the pieces of replicas are a
// partition, and the cover check agrees with counting and says what is wrong where.
#include "ckpt/pieces.h"

#include "ckpt/cover.h"
#include "test.h"
#include "trireme/base/random.h"

static int64_t draw(uint64_t *counter, int64_t below)
{
  return (int64_t)(tri_random_u64(11, (*counter)++) % (uint64_t)below);
}

static tri_shape draw_shape(uint64_t *counter, int64_t most)
{
  tri_shape shape = {.n_axes = (int)draw(counter, TRI_MAX_AXES + 1)};
  for (int a = 0; a < shape.n_axes; a++)
    shape.extent[a] = 1 + draw(counter, most);
  return shape;
}

// Bit i of an element: box i holds it.
static void mark_box(const tri_shape *shape, const tri_box *box, int bit, uint64_t *marks)
{
  const int64_t n = tri_box_elements(box);
  for (int64_t e = 0; e < n; e++) {
    int64_t rest = e, place[TRI_MAX_AXES], index = 0;
    for (int a = box->n_axes - 1; a >= 0; a--) {
      place[a] = box->start[a] + rest % box->count[a];
      rest /= box->count[a];
    }
    for (int a = 0; a < box->n_axes; a++)
      index = index * shape->extent[a] + place[a];
    marks[index] |= (uint64_t)1 << bit;
  }
}

static int64_t first_index(const tri_shape *shape, const tri_box *box)
{
  int64_t index = 0;
  for (int a = 0; a < box->n_axes; a++)
    index = index * shape->extent[a] + box->start[a];
  return index;
}

TEST(slabs_walk_the_packed_box_in_order)
{
  uint64_t counter = 1000000;
  for (int trial = 0; trial < 3000; trial++) {
    const tri_shape shape = draw_shape(&counter, 6);
    tri_box box = tri_box_all(&shape), slab;
    for (int a = 0; a < box.n_axes; a++)
      box.start[a] = draw(&counter, 100);
    const size_t limit = 4 * (size_t)(1 + draw(&counter, 80));
    tri_slabs slabs;
    tri_slabs_begin(&slabs, &box, 4, limit);
    int64_t next = 0;
    while (tri_slabs_next(&slabs, &slab)) {
      EXPECT((size_t)tri_box_elements(&slab) * 4 <= limit);
      tri_box inside = slab;
      for (int a = 0; a < slab.n_axes; a++)
        inside.start[a] -= box.start[a];
      EXPECT(first_index(&shape, &inside) == next);
      next += tri_box_elements(&slab);
    }
    EXPECT(next == tri_box_elements(&box));
  }
  tri_slabs slabs;
  tri_box slab;
  const tri_box none = {.n_axes = 2, .count = {0, 3}};
  tri_slabs_begin(&slabs, &none, 4, 100);
  EXPECT(!tri_slabs_next(&slabs, &slab));
}

TEST(replicas_share_a_box)
{
  static const int64_t rows[] = {1, 31, 32, 33, 257, 1000};
  int64_t written[7] = {0}, total = 0;
  for (int trial = 0; trial < 600; trial++) {
    const int n = 1 + trial % 7;
    const tri_shape shape = tri_shape_2d(rows[trial % 6], 1 + trial % 5 * 300);
    tri_box pieces[7];
    int n_pieces = 0;
    tri_ckpt_array array = {.dtype = TRI_DTYPE_F32, .shape = shape, .n_replicas = n};
    snprintf(array.name, sizeof array.name, "a%d", trial);
    array.box = tri_box_all(&shape);
    for (array.replica = 0; array.replica < n; array.replica++) {
      if (!tri_ckpt_piece(&array, &pieces[n_pieces])) continue;
      if (n == 7) written[array.replica] += tri_box_elements(&pieces[n_pieces]);
      if (n == 7) total += tri_box_elements(&pieces[n_pieces]);
      n_pieces++;
    }
    static const int ranks[7] = {0, 1, 2, 3, 4, 5, 6};
    const tri_cover cover = {array.name, &shape, pieces, ranks, "rank", n_pieces};
    EXPECT_OK(tri_ckpt_check_cover(&cover));
    EXPECT(n_pieces == 1 || tri_shape_elements(&shape) * 4 > TRI_PIECE_BYTES);
  }
  for (int r = 0; r < 7; r++)
    EXPECT_NEAR((double)written[r], (double)total / 7, 0.25 * (double)total / 7);
}

TEST(replicas_share_the_small_boxes_of_an_array)
{
  int written[4] = {0};
  tri_ckpt_array array = {.name = "a", .dtype = TRI_DTYPE_F32, .n_replicas = 4};
  array.shape = tri_shape_1d(4000);
  for (int i = 0; i < 1000; i++) {
    array.box = (tri_box){.n_axes = 1, .start = {4 * i}, .count = {4}};
    tri_box piece;
    int n_writers = 0;
    for (array.replica = 0; array.replica < 4; array.replica++) {
      if (!tri_ckpt_piece(&array, &piece)) continue;
      written[array.replica]++;
      n_writers++;
    }
    EXPECT(n_writers == 1);
  }
  for (int r = 0; r < 4; r++)
    EXPECT_NEAR(written[r], 250, 70); // five standard deviations of a fair draw
}

// Cuts a box at random into a partition.
static int cut(uint64_t *counter, const tri_box *box, int depth, tri_box *out)
{
  const int axis = box->n_axes == 0 ? 0 : (int)draw(counter, box->n_axes);
  if (depth == 0 || box->n_axes == 0 || box->count[axis] < 2) {
    *out = *box;
    return 1;
  }
  tri_box low = *box, high = *box;
  low.count[axis] = 1 + draw(counter, box->count[axis] - 1);
  high.start[axis] += low.count[axis];
  high.count[axis] -= low.count[axis];
  const int n = cut(counter, &low, depth - 1, out);
  return n + cut(counter, &high, depth - 1, out + n);
}

// The message names the first bad element, all that follow it in the same boxes, and those boxes.
static void expect_cover_error(const tri_cover *cover, const uint64_t *marks, int64_t bad)
{
  const int64_t elements = tri_shape_elements(cover->shape);
  int64_t end = bad + 1;
  while (end < elements && marks[end] == marks[bad])
    end++;
  char range[128], held[256] = "are held by no rank";
  snprintf(range, sizeof range, "array a: elements [%d, %d), the first at (", (int)bad, (int)end);
  if (marks[bad] != 0) {
    int used = snprintf(held, sizeof held, "are held %d times:", __builtin_popcountll(marks[bad]));
    int named = 0;
    for (int i = 0; i < cover->n_boxes && named < 8; i++)
      if ((marks[bad] >> i & 1) != 0)
        used += snprintf(held + used, sizeof held - (size_t)used, "%s rank %d",
                         named++ == 0 ? " by" : ",", cover->holders[i]);
  }
  EXPECT_ERROR(TRI_ERR_FORMAT, range, tri_ckpt_check_cover(cover));
  EXPECT_ERROR(TRI_ERR_FORMAT, held, tri_ckpt_check_cover(cover));
}

TEST(cover_check_agrees_with_counting)
{
  uint64_t counter = 2000000;
  int n_good = 0, ranks[40];
  for (int i = 0; i < 40; i++)
    ranks[i] = 3 * i;
  for (int trial = 0; trial < 4000; trial++) {
    const tri_shape shape = draw_shape(&counter, 6);
    const tri_box all = tri_box_all(&shape);
    tri_box boxes[40];
    int n = cut(&counter, &all, (int)draw(&counter, 5), boxes);
    const int change = (int)draw(&counter, 5), which = (int)draw(&counter, n);
    const int axis = shape.n_axes == 0 ? 0 : (int)draw(&counter, shape.n_axes);
    if (change == 1) boxes[n++] = boxes[which];
    if (change == 2) boxes[which] = boxes[--n];
    if (change == 3 && boxes[which].start[axis] > 0) boxes[which].start[axis]--;
    if (change == 4 && boxes[which].count[axis] > 1) boxes[which].count[axis]--;
    const int64_t elements = tri_shape_elements(&shape);
    uint64_t *marks = calloc((size_t)elements, sizeof *marks);
    for (int i = 0; i < n; i++)
      mark_box(&shape, &boxes[i], i, marks);
    int64_t bad = 0;
    while (bad < elements && __builtin_popcountll(marks[bad]) == 1)
      bad++;
    const tri_cover cover = {"a", &shape, boxes, ranks, "rank", n};
    if (bad == elements) {
      EXPECT_OK(tri_ckpt_check_cover(&cover));
      n_good++;
    } else {
      expect_cover_error(&cover, marks, bad);
    }
    free(marks);
  }
  EXPECT(n_good > 500 && n_good < 3500);
}

TEST(names_are_plain)
{
  static const char *const good[] = {"a", "parameter/h.0.ln_1.weight", "a..b", "...", "x/.y"};
  static const char *const bad[] = {"",     "/",      "/a",     "a/",  "a//b",
                                    ".",    "..",     "a/../b", "./a", "a/.",
                                    "a\\b", "a\"b\"", "a\nb",   "a b", "\xc3\xa9"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
    EXPECT(tri_ckpt_name_is_plain(good[i]));
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    EXPECT(!tri_ckpt_name_is_plain(bad[i]));
  char full[96];
  memset(full, 'a', sizeof full);
  EXPECT(!tri_ckpt_name_is_plain(full)); // 96 bytes without an end
  full[95] = '\0';
  EXPECT(tri_ckpt_name_is_plain(full));
}

int main(void)
{
  TEST_RUN(slabs_walk_the_packed_box_in_order);
  TEST_RUN(replicas_share_a_box);
  TEST_RUN(replicas_share_the_small_boxes_of_an_array);
  TEST_RUN(cover_check_agrees_with_counting);
  TEST_RUN(names_are_plain);
  return test_end();
}
