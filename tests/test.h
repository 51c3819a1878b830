// A test program: functions that state invariants, run one after another, on every rank.
//
//   TEST(halo_is_periodic) { EXPECT(a == b); EXPECT_OK(tri_halo_exchange(h)); }
//   int main(void) { TEST_RUN(halo_is_periodic); return test_end(); }
//
// Rank 0 prints "ok NAME" or "not ok NAME: …"; other ranks speak only of failures. The exit code is
// 1 after a failure.
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base/status.h"

static const char *test_name;
static int test_failures, test_failed_here;

__attribute__((unused)) static int test_rank(void)
{
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  return rank == NULL ? 0 : atoi(rank);
}

__attribute__((unused)) static void test_fail(const char *file, int line, const char *what)
{
  if (test_failed_here++ < 5)
    printf("not ok %s: rank %d: %s:%d: %s\n", test_name, test_rank(), file, line, what);
}

__attribute__((unused)) static void test_run_one(const char *name, void (*function)(void))
{
  test_name = name;
  test_failed_here = 0;
  function();
  if (test_failed_here == 0 && test_rank() == 0) printf("ok %s\n", name);
  if (test_failed_here > 0) test_failures++;
  fflush(stdout);
}

__attribute__((unused)) static int test_end(void)
{
  return test_failures == 0 ? 0 : 1;
}

// A folder for this test's files, removed when it ends.
__attribute__((unused)) static const char *test_scratch(void)
{
  const char *folder = getenv("TRI_SCRATCH");
  return folder == NULL ? "/tmp" : folder;
}

#define TEST(name) static void name(void)
#define TEST_RUN(name) test_run_one(#name, name)

#define EXPECT(condition) \
  do { \
    if (!(condition)) test_fail(__FILE__, __LINE__, #condition); \
  } while (0)

#define EXPECT_OK(call) \
  do { \
    if ((call) != TRI_OK) { \
      char text_[2400]; \
      snprintf(text_, sizeof text_, "%s: %s", #call, tri_error_message()); \
      test_fail(__FILE__, __LINE__, text_); \
    } \
  } while (0)

// The call fails with this status, and its message holds this text.
#define EXPECT_ERROR(code, part, call) \
  do { \
    const tri_status got_ = (call); \
    if (got_ != (code) || strstr(tri_error_message(), (part)) == NULL) { \
      char text_[2600]; \
      snprintf(text_, sizeof text_, "%s gave %d '%s', wanted %d with '%s'", #call, (int)got_, \
               tri_error_message(), (int)(code), (part)); \
      test_fail(__FILE__, __LINE__, text_); \
    } \
  } while (0)

// |a - b| <= tolerance, in double.
#define EXPECT_NEAR(a, b, tolerance) \
  do { \
    const double a_ = (a), b_ = (b), t_ = (tolerance); \
    if (!(a_ - b_ <= t_ && b_ - a_ <= t_)) { \
      char text_[256]; \
      snprintf(text_, sizeof text_, "%s = %.9g, %s = %.9g, apart by more than %.3g", #a, a_, #b, \
               b_, t_); \
      test_fail(__FILE__, __LINE__, text_); \
    } \
  } while (0)
