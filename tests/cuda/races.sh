#!/bin/sh
# timeout: 300
# Races of the CUDA kernels: ThreadSanitizer sees every CUDA thread as a thread of its own.
#
# Kernels are compiled with clang -fsanitize=thread, the emulation without (it defines
# TRI_EMU_TSAN). Kernels with a planted race must be reported, right ones must be silent.
. "$TRI_SRCDIR/tests/cuda/emulation_build.sh"
clang=$(command -v clang++-14 || command -v clang++) || { echo "skipped: no clang++"; exit 77; }
failed=0
build_emulated "$TRI_SCRATCH/races" "$clang" "-O2 -DTRI_EMU_TSAN" "-O1 -fsanitize=thread" \
  tests/cuda/emulation_test.cpp tests/cuda/emulation_faults.cu || exit 1

# Fixed addresses, where it can be asked for: ThreadSanitizer of clang 14 knows fewer than a kernel gives.
fixed=
setarch "$(uname -m)" -R true 2>/dev/null && fixed="setarch $(uname -m) -R"

races_of() { # kernel, order
  TSAN_OPTIONS="exitcode=66" TRI_EMU_ORDER=$2 $fixed "$TRI_SCRATCH/races" "$1" >"$TRI_SCRATCH/report" 2>&1
  code=$?
  [ $code -eq 66 ] && grep -q "data race.* in $1\|data race.*emulation_faults.cu" "$TRI_SCRATCH/report"
}
for kernel in right_barrier right_reuse right_copy right_syncwarp right_atomic; do
  for order in 0 1 3; do
    races_of $kernel $order
    [ $code -eq 0 ] && continue
    echo "not ok no_false_report: $kernel in order $order: exit code $code"
    head -n 30 "$TRI_SCRATCH/report"
    failed=1
  done
done
[ $failed -eq 0 ] && echo "ok no_false_report"
found=0
for kernel in dropped_barrier write_after_read missing_syncwarp race_of_blocks; do
  if races_of $kernel 0; then
    found=$((found + 1))
  else
    echo "not ok planted_races_are_found: $kernel: exit code $code"
    head -n 30 "$TRI_SCRATCH/report"
    failed=1
  fi
done
[ $found -eq 4 ] && echo "ok planted_races_are_found"
exit $failed
