#!/bin/sh
# timeout: 300
# Races between streams, and between streams and the host: ThreadSanitizer sees every stream of the doubles as a thread of
# its own, so that a missing event or wait is found whatever the schedule. See stream_races_test.c.
. "$TRI_SRCDIR/tests/cuda/stream_races_build.sh"
build_with_logical_streams "$TRI_SCRATCH/races" tests/cuda/stream_races_test.c || exit 1
run_case() {
  TSAN_OPTIONS="exitcode=66" $fixed "$TRI_SCRATCH/races" "$1" >"$TRI_SCRATCH/report" 2>&1
  code=$?
}
failed=0
export TRI_DOUBLE_SCHEDULE=eager
for name in right_event right_synchronize right_refill right_reuse; do
  run_case $name
  [ $code -eq 0 ] && { echo "ok silent_$name"; continue; }
  echo "not ok silent_$name: exit code $code"
  head -n 40 "$TRI_SCRATCH/report"
  failed=1
done
for name in missing_wait missing_synchronize early_refill early_reuse; do
  run_case $name
  if [ $code -eq 66 ] && grep -q "data race" "$TRI_SCRATCH/report"; then echo "ok found_$name"; else
    echo "not ok found_$name: exit code $code"
    head -n 40 "$TRI_SCRATCH/report"
    failed=1
  fi
done
exit $failed
