#!/bin/sh
# timeout: 400
# Races in the exchange of gradients between two ranks over NCCL, whatever the schedule: tests/parallel/data_parallel_test.c
# where every stream of the doubles is a logical thread to ThreadSanitizer. A missing event between the stream that computes
# and the one that exchanges, either way, is found.
. "$TRI_SRCDIR/tests/cuda/stream_races_build.sh"
build_with_logical_streams "$TRI_SCRATCH/races" tests/parallel/data_parallel_test.c || exit 1
# MPI itself is not instrumented.
export TSAN_OPTIONS="exitcode=66 ignore_noninstrumented_modules=1 detect_deadlocks=0"
export TRI_DOUBLE_SCHEDULE=eager TRI_DOUBLE_PROTECT=0 TRI_DOUBLE_DEVICES=2
# shellcheck disable=SC2086
mpirun -n 2 $fixed "$TRI_SCRATCH/races" cuda:rank nccl >"$TRI_SCRATCH/report" 2>&1
code=$?
grep "^ok" "$TRI_SCRATCH/report"
if [ $code -eq 0 ] && ! grep -q "data race" "$TRI_SCRATCH/report"; then echo "ok silent_exchange"; else
  echo "not ok silent_exchange: exit code $code"
  head -n 60 "$TRI_SCRATCH/report"
  exit 1
fi
