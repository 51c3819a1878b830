// Ranges of the row-major index of a box as boxes: every element once, in order, contiguous, not
// more boxes than promised, for all small boxes and all ranges of them.
#include "trireme/tensor/box.h"

#include "test.h"

static int most_for(int n_axes)
{
  return n_axes < 2 ? 1 : 2 * n_axes - 1;
}

// The row-major index, inside `box`, of the element `e` of its part `part`.
static int64_t index_in(const tri_box *box, const tri_box *part, int64_t e)
{
  int64_t at[TRI_MAX_AXES], index = 0;
  for (int a = part->n_axes - 1; a >= 0; a--) {
    at[a] = part->start[a] + e % part->count[a] - box->start[a];
    e /= part->count[a];
  }
  for (int a = 0; a < box->n_axes; a++)
    index = index * box->count[a] + at[a];
  return index;
}

static bool lies_in(const tri_box *part, const tri_box *box)
{
  bool inside = part->n_axes == box->n_axes;
  for (int a = 0; inside && a < box->n_axes; a++)
    inside = part->start[a] >= box->start[a] &&
             part->start[a] + part->count[a] <= box->start[a] + box->count[a];
  return inside;
}

// Returns how many boxes the range took.
static int check_range(const tri_box *box, int64_t first, int64_t n)
{
  tri_box parts[TRI_RANGE_BOXES];
  const int n_parts = tri_box_cut_range(box, first, n, parts);
  int64_t next = first;
  EXPECT(n_parts <= most_for(box->n_axes) && (n > 0) == (n_parts > 0));
  for (int i = 0; i < n_parts && i < TRI_RANGE_BOXES; i++) {
    EXPECT(lies_in(&parts[i], box) && tri_box_elements(&parts[i]) > 0);
    for (int64_t e = 0; e < tri_box_elements(&parts[i]); e++)
      EXPECT(index_in(box, &parts[i], e) == next++);
  }
  EXPECT(next == first + n);
  return n_parts;
}

// All ranges of all boxes with these axes, extents from 0 to `largest`; returns the most boxes that
// a range took.
static int check_all(int n_axes, int64_t largest)
{
  int64_t n_boxes = 1;
  int most = 0;
  for (int a = 0; a < n_axes; a++)
    n_boxes *= largest + 1;
  for (int64_t which = 0; which < n_boxes; which++) {
    tri_box box = {.n_axes = n_axes};
    int64_t rest = which;
    for (int a = 0; a < n_axes; a++) {
      box.start[a] = 10 * a + which % 3;
      box.count[a] = rest % (largest + 1);
      rest /= largest + 1;
    }
    const int64_t elements = tri_box_elements(&box);
    for (int64_t first = 0; first <= elements; first++)
      for (int64_t n = 0; n <= elements - first; n++) {
        const int used = check_range(&box, first, n);
        if (used > most) most = used;
      }
  }
  return most;
}

TEST(ranges_become_boxes_in_order)
{
  EXPECT(check_all(0, 0) == 1);
  EXPECT(check_all(1, 9) == 1);
  EXPECT(check_all(2, 7) == 3); // the bound is reached
  EXPECT(check_all(3, 4) == 5);
  EXPECT(check_all(4, 3) == 7 && TRI_RANGE_BOXES == 7);
}

TEST(large_boxes_do_not_overflow)
{
  const tri_box box = {.n_axes = 2, .count = {(int64_t)1 << 31, (int64_t)1 << 31}};
  tri_box parts[TRI_RANGE_BOXES];
  EXPECT(tri_box_cut_range(&box, 1, ((int64_t)1 << 62) - 2, parts) == 3);
  EXPECT(parts[0].count[1] == ((int64_t)1 << 31) - 1 && parts[0].start[1] == 1);
  EXPECT(parts[1].start[0] == 1 && parts[1].count[0] == ((int64_t)1 << 31) - 2);
  EXPECT(parts[2].start[0] == ((int64_t)1 << 31) - 1 && parts[2].start[1] == 0);
  EXPECT(parts[2].count[0] == 1 && parts[2].count[1] == ((int64_t)1 << 31) - 1);
}

int main(void)
{
  TEST_RUN(ranges_become_boxes_in_order);
  TEST_RUN(large_boxes_do_not_overflow);
  return test_end();
}
