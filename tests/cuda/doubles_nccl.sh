#!/bin/sh
# timeout: 300
# The NCCL double at 1 to 4 ranks under every schedule, and planted mistakes on 2. See doubles_nccl_test.c.
. "$TRI_SRCDIR/tests/cuda/doubles_build.sh"
failed=0
program=$TRI_SCRATCH/nccl
build_on_doubles "$program" "-O1 -Wall -Wextra -Werror" tests/cuda/doubles_nccl_test.c ||
  { echo "not ok nccl: does not build"; exit 1; }
for n in 1 2 3 4; do
  for schedule in eager lazy random; do
    echo "== $n ranks, $schedule"
    TRI_DOUBLE_SCHEDULE=$schedule timeout 60 mpirun -n $n "$program" || failed=1
  done
done
expect() { # case, what rank says, environment
  said=$(env TRI_DOUBLE_SCHEDULE=lazy $3 timeout 60 mpirun -n 2 "$program" "$1" 2>&1)
  case $said in
  *"$2"*) echo "ok $1" ;;
  *) echo "not ok $1: wanted '$2', got: $said"; failed=1 ;;
  esac
}
expect host_pointer "not a device pointer but pinned host memory"
expect missing_wait "data wrong"
expect count "ncclAllReduce(count 99"
expect communicator "waits since" TRI_DOUBLE_PATIENCE=2
expect not_polled "while the last call on the communicator is in progress"
expect abort "async error seen" TRI_DOUBLE_FAIL=ncclCommGetAsyncError:1
exit $failed
