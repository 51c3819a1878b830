#!/bin/sh
# timeout: 900
# The transports between CUDA devices, and the exchange of gradients and the stages of a pipeline over them, on the doubles:
# tests/comm/transport_test.c and tests/parallel/{data_parallel,pipeline}_test.c with a GPU for each rank, and with one that all ranks share.
folder=$TRI_BUILDDIR/tests/cuda
programs="$folder/transport_test $folder/data_parallel_test $folder/pipeline_test"
[ -x "$folder/transport_test" ] || { echo "skipped: built without --with-cuda"; exit 77; }
failed=0
export TRI_DOUBLE_DEVICES=4 TRI_DOUBLE_PROTECT=0
run() { # ranks, arguments
  n=$1
  shift
  for program in $programs; do
    echo "== $(basename "$program") $*: $n ranks, $TRI_DOUBLE_SCHEDULE"
    timeout 120 mpirun -n "$n" "$program" "$@" || { echo "not ok $(basename "$program")"; failed=1; }
  done
}
for n in 1 2 3 4; do
  for TRI_DOUBLE_SCHEDULE in eager lazy random; do
    export TRI_DOUBLE_SCHEDULE
    [ $n = 4 ] && [ $TRI_DOUBLE_SCHEDULE != lazy ] && continue
    run $n cuda:rank nccl staged
  done
  TRI_DOUBLE_SCHEDULE=lazy
  run $n cuda staged
done
exit $failed
