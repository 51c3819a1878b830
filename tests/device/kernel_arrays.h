// One comparison of a kernel on two sides: arrays that exist on both, filled alike, compared after.
//
// Inputs lie between cells of 0xff (a NaN in every float type: a read past the end shows in the
// result), outputs are poisoned with a small finite value and lie between guard cells that no write
// may change. The first failure is kept in the run and ends it.
#pragma once

#include <stdbool.h>

#include "device/kernel_cases.h"

typedef enum kernel_role {
  KERNEL_INPUT,  // must come back untouched
  KERNEL_OUTPUT, // poisoned before, compared after
  KERNEL_IN_OUT  // filled before, compared after
} kernel_role;

typedef struct kernel_array {
  const char *name; // borrowed, a literal
  kernel_role role;
  tri_dtype dtype;
  int64_t n;
  double absolute; // what two correct results may differ by, besides …
  double relative; // … this part of the reference's value
  char *before;    // contents with guards, on the host
  char *after[2];  // the same, as each side left it
  void *device[2]; // block with guards on each side
} kernel_array;

enum { KERNEL_ARRAYS = 12 };

typedef struct kernel_run {
  const kernel_comparison *comparison;
  tri_status status; // the first failure; all later calls do nothing
  char label[200];   // kernel and sizes, for messages
  uint64_t key;      // of the random numbers
  int n_arrays;
  kernel_array arrays[KERNEL_ARRAYS];
} kernel_run;

// Two roundings of nearly the same number to this type lie at most this part of it apart.
double kernel_ulp(tri_dtype dtype);

void kernel_run_begin(kernel_run *run, const kernel_comparison *comparison, const char *format, ...)
    TRI_PRINTF(3, 4);

// Adds an array of n elements. Filled ones are uniform in [-amplitude, amplitude] + offset (i32:
// whole numbers in [offset, offset + amplitude)). The pointer is good until the run ends; what it
// points to may be changed through kernel_host before the first kernel_run_start.
kernel_array *kernel_run_add(kernel_run *run, const char *name, kernel_role role, tri_dtype dtype,
                             int64_t n, double amplitude, double offset);

// A KERNEL_OUTPUT with its tolerance: absolute + ulp(dtype) * |value|.
kernel_array *kernel_run_output(kernel_run *run, const char *name, tri_dtype dtype, int64_t n,
                                double absolute);

// Elements of the array on the host before the run: element i, and the pointer to all.
double kernel_array_get(const kernel_array *array, int64_t i);
void kernel_array_set(kernel_array *array, int64_t i, double value);
void *kernel_host(const kernel_array *array);

// Copies `from`, as side 0 left it, into `to` as its contents before: results of one run are the
// inputs of the next.
void kernel_array_take_result(kernel_run *run, kernel_array *to, const kernel_array *from);

// Puts all arrays on `side` (0 reference, 1 tuned) and sets its number of threads. False when the
// run has failed.
bool kernel_run_start(kernel_run *run, int side);

// The device pointer of an array on a side; NULL for a NULL array.
void *kernel_at(const kernel_array *array, int side);

// Takes the status of the kernel's call and reads all arrays back.
void kernel_run_finish(kernel_run *run, int side, tri_status status);

// Compares, releases everything and returns the run's status.
TRI_MUST_CHECK tri_status kernel_run_end(kernel_run *run);
