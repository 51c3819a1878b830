#!/bin/sh
# timeout: 300
# The doubles of cudart, cuBLASLt and cuFFT against planted mistakes, plain and under the address
# sanitizer. See doubles_test.c.
. "$TRI_SRCDIR/tests/cuda/doubles_build.sh"
failed=0
run_build() { # name, flags
  build_on_doubles "$TRI_SCRATCH/$1" "$2" tests/cuda/doubles_test.c tests/cuda/doubles_kernel.cu ||
    { echo "not ok $1: does not build"; exit 1; }
  echo "== $1"
  "$TRI_SCRATCH/$1" || failed=1
}
run_build plain "-O1 -Wall -Wextra -Werror"
ASAN_OPTIONS=detect_leaks=0
export ASAN_OPTIONS
run_build address "-O1 -fsanitize=address"
exit $failed
