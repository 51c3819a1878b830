#!/bin/sh
# timeout: 300
# The emulation of CUDA against itself: plain, with ucontext in place of the hand-written switch, and under
# AddressSanitizer. See emulation_test.cpp.
. "$TRI_SRCDIR/tests/cuda/emulation_build.sh"
compiler=${CXX:-g++}
failed=0
run_build() { # name, flags
  build_emulated "$TRI_SCRATCH/$1" "$compiler" "$2" "$2" tests/cuda/emulation_test.cpp \
    tests/cuda/emulation_faults.cu || { echo "not ok $1: does not build"; exit 1; }
  echo "== $1"
  ASAN_OPTIONS=detect_leaks=0 "$TRI_SCRATCH/$1" || failed=1
}
run_build plain "-O2 -Wall -Wextra -Werror"
run_build ucontext "-O2 -DTRI_EMU_UCONTEXT"
run_build address "-O1 -fsanitize=address"
exit $failed
