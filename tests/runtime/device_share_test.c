// Which device each rank of a host takes, for hosts with few and many devices, masks and parts.
#include "runtime/device_share.h"

#include "test.h"

// A rank that sees the devices of `text`, a digit each, in this order, with `near` as bits.
static tri_device_wish sees(const char *text, uint64_t near)
{
  tri_device_wish wish = {.n = (int)strlen(text), .near = near};
  for (int d = 0; d < wish.n; d++)
    wish.ids[d] = 1000 + (uint64_t)text[d];
  return wish;
}

static void expect_choice(const char *label, const tri_device_wish *wishes, int n, bool share,
                          int left_out, const int *wanted)
{
  int taken[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
  const int got = tri_device_share(wishes, n, share, taken);
  bool same = got == left_out;
  for (int r = 0; same && r < (left_out < 0 ? n : left_out); r++)
    same = taken[r] == wanted[r];
  if (!same) printf("%s: left out %d\n", label, got);
  EXPECT(same);
}

TEST(each_rank_takes_its_own)
{
  const tri_device_wish all[] = {sees("0123", 0), sees("0123", 0), sees("0123", 0)};
  expect_choice("three of four", all, 3, false, -1, (const int[]){0, 1, 2});
}

// As Slurm's --gpus-per-task: number 0 is another device for each.
TEST(masks_that_differ_are_honoured)
{
  const tri_device_wish all[] = {sees("2", 0), sees("0", 0), sees("1", 0)};
  expect_choice("one each", all, 3, false, -1, (const int[]){0, 0, 0});
  const tri_device_wish overlapping[] = {sees("01", 0), sees("12", 0), sees("20", 0)};
  expect_choice("overlapping", overlapping, 3, false, -1, (const int[]){0, 0, 0});
  const tri_device_wish reordered[] = {sees("10", 0), sees("10", 0)};
  expect_choice("reordered", reordered, 2, false, -1, (const int[]){0, 1});
}

TEST(near_devices_first)
{
  const tri_device_wish all[] = {sees("0123", 0xc), sees("0123", 0x3), sees("0123", 0xc),
                                 sees("0123", 0x3)};
  expect_choice("two parts", all, 4, false, -1, (const int[]){2, 0, 3, 1});
  const tri_device_wish crowded[] = {sees("01", 0x2), sees("01", 0x2)};
  expect_choice("crowded", crowded, 2, false, -1, (const int[]){1, 0});
}

TEST(too_few_devices)
{
  const tri_device_wish all[] = {sees("01", 0), sees("01", 0), sees("01", 0), sees("01", 0),
                                 sees("01", 0)};
  expect_choice("refused", all, 5, false, 2, (const int[]){0, 1});
  expect_choice("shared evenly", all, 5, true, -1, (const int[]){0, 1, 0, 1, 0});
  const tri_device_wish same[] = {sees("3", 0), sees("3", 0)};
  expect_choice("one mask for both", same, 2, false, 1, (const int[]){0});
  const tri_device_wish none[] = {sees("0", 0), sees("", 0)};
  expect_choice("nothing to share", none, 2, true, 1, (const int[]){0});
}

int main(void)
{
  TEST_RUN(each_rank_takes_its_own);
  TEST_RUN(masks_that_differ_are_honoured);
  TEST_RUN(near_devices_first);
  TEST_RUN(too_few_devices);
  return test_end();
}
