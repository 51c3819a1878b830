#!/bin/sh
# timeout: 600
# Training on several CUDA devices, on the doubles: the same bits on any ranks, over any transport, on any schedule; a rank
# that fails, stops or cannot abort ends the run with what happened.
program=$TRI_BUILDDIR/tests/cuda/trireme_on_doubles
[ -x "$program" ] || { echo "skipped: built without --with-cuda"; exit 77; }
. "$TRI_SRCDIR/tests/job/train_test_lib.sh"
trireme=$program
small="device=cuda train.steps=3 train.global_batch=6 model.width=16 train.validate_every=0"
export TRI_DOUBLE_PROTECT=0 TRI_DOUBLE_SCHEDULE=lazy TRI_DOUBLE_DEVICES=4

expect_header() { # name, text
  if grep -qF -e "$2" out; then ok "$1"; else
    bad "$1" "no '$2'"
    grep "^exchange" out
  fi
}

train 1 out job.yaml $small run.dir=n1
wanted=$(digest_of out)
expect_digest two_ranks 2 "$wanted" job.yaml $small run.dir=n2
expect_header nccl_is_named "exchange   nccl "
expect_header exact_is_named "parallel.reduce exact"
expect_digest three_ranks 3 "$wanted" job.yaml $small run.dir=n3
for TRI_DOUBLE_SCHEDULE in eager random; do
  expect_digest "two_ranks_$TRI_DOUBLE_SCHEDULE" 2 "$wanted" job.yaml $small run.dir=s-$TRI_DOUBLE_SCHEDULE
done
TRI_DOUBLE_SCHEDULE=lazy
expect_digest without_overlap 3 "$wanted" job.yaml $small run.dir=o3 parallel.overlap=false
expect_digest one_bucket 2 "$wanted" job.yaml $small run.dir=b2 parallel.bucket_mib=8 parallel.in_flight=1
expect_digest staged 3 "$wanted" job.yaml $small run.dir=t3 parallel.transport=staged
for TRI_DOUBLE_SCHEDULE in lazy random; do
  expect_digest "two_stages_$TRI_DOUBLE_SCHEDULE" 2 "$wanted" job.yaml $small run.dir=p-$TRI_DOUBLE_SCHEDULE parallel.pipeline=2
done
TRI_DOUBLE_SCHEDULE=lazy
expect_digest two_stages_two_data_ranks 4 "$wanted" job.yaml $small run.dir=pd parallel.pipeline=2
expect_digest two_stages_of_two_chunks 2 "$wanted" job.yaml $small run.dir=pv parallel.pipeline=2 parallel.virtual_stages=2 \
  parallel.schedule=interleaved
expect_digest two_stages_in_halves 2 "$wanted" job.yaml $small run.dir=pz parallel.pipeline=2 parallel.schedule=zb-h1
expect_digest three_stages_staged 3 "$wanted" job.yaml $small run.dir=ps parallel.pipeline=3 parallel.transport=staged
train 2 out job.yaml $small run.dir=x2 parallel.tensor=2
tensor=$(digest_of out)
[ -n "$tensor" ] || bad tensor_2 "no digest"
for TRI_DOUBLE_SCHEDULE in eager random; do
  expect_digest "tensor_2_$TRI_DOUBLE_SCHEDULE" 2 "$tensor" job.yaml $small run.dir=x-$TRI_DOUBLE_SCHEDULE parallel.tensor=2
done
TRI_DOUBLE_SCHEDULE=lazy
expect_digest tensor_2_stages_2 4 "$tensor" job.yaml $small run.dir=xp parallel.tensor=2 parallel.pipeline=2
for TRI_DOUBLE_SCHEDULE in lazy random; do
  expect_digest "zero_2_$TRI_DOUBLE_SCHEDULE" 3 "$wanted" job.yaml $small run.dir=y2-$TRI_DOUBLE_SCHEDULE parallel.zero=2
  expect_digest "zero_3_$TRI_DOUBLE_SCHEDULE" 2 "$wanted" job.yaml $small run.dir=y3-$TRI_DOUBLE_SCHEDULE parallel.zero=3
done
TRI_DOUBLE_SCHEDULE=lazy
expect_digest zero_3_stages_2_staged 4 "$wanted" job.yaml $small run.dir=yp parallel.zero=3 parallel.pipeline=2 parallel.transport=staged
TRI_DOUBLE_DEVICES=1 expect_digest one_device_for_two_ranks 2 "$wanted" job.yaml $small run.dir=d2 cuda.share=true
expect_header sharing_is_named "exchange   staged: ranks 0 and 1 share GPU"
TRI_DOUBLE_DEVICES=1 expect_error nccl_refuses_a_shared_device 2 8 "ranks 0 and 1 share GPU" job.yaml $small run.dir=e1 \
  cuda.share=true parallel.transport=nccl
expect_error host_refuses_a_device 2 8 "is not host memory" job.yaml $small run.dir=e2 parallel.transport=host

# NCCL's own sums: other bits perhaps, the same loss to the digits that are printed.
train 3 out job.yaml $small run.dir=f3 parallel.reduce=fast
expect_header fast_is_named "parallel.reduce fast"
loss_of() { sed -n 's/^step *3\/3  loss \([0-9.]*\).*/\1/p' "$1/run.log"; }
if [ -n "$(loss_of f3)" ] && [ "$(loss_of f3)" = "$(loss_of n1)" ]; then ok fast_sums; else
  bad fast_sums "loss '$(loss_of f3)', '$(loss_of n1)' with exact sums"
fi
TRI_DOUBLE_DEVICES=1 expect_error fast_without_nccl 2 8 "take parallel.reduce: exact" job.yaml $small run.dir=e3 \
  cuda.share=true parallel.reduce=fast

# name, exit code, text, environment of the last of two ranks, arguments …: that rank alone has a fault.
expect_fault() {
  name=$1 expected=$2 text=$3 fault=$4
  shift 4
  began=$(date +%s)
  # shellcheck disable=SC2086
  mpirun -n 1 "$trireme" run "$@" : -n 1 env $fault "$trireme" run "$@" >out 2>&1
  code=$?
  seconds=$(($(date +%s) - began))
  if [ $code -eq "$expected" ] && grep -q -e "$text" out && [ $seconds -lt 40 ]; then ok "$name"; else
    bad "$name" "exit code $code after $seconds s, wanted $expected with '$text':"
    cat out
  fi
}
expect_fault asynchronous_error 9 'rank 1: error: .*NCCL: operation [0-9]* "gradient .*remote process exited' \
  TRI_DOUBLE_FAIL=ncclCommGetAsyncError:60 job.yaml $small run.dir=fault1
expect_fault call_fails 9 'rank 1: error: .*ncclSend and ncclRecv: unhandled system error' \
  TRI_DOUBLE_FAIL=ncclSend:9 job.yaml $small run.dir=fault2
expect_fault communicator_fails 9 'rank 1: error: .*ncclCommInitRankConfig' \
  TRI_DOUBLE_FAIL=ncclCommInitRankConfig:1 job.yaml $small run.dir=fault3 parallel.limit_seconds=3
expect_fault device_of_one_rank_fails 14 'rank 1: error: .*CUDA' \
  TRI_DOUBLE_FAIL=async:300 job.yaml $small run.dir=fault4
expect_fault abort_hangs 9 'rank 1: NCCL: operation .*; ncclCommAbort did not return within 10 s: this process ends' \
  "TRI_DOUBLE_FAIL=ncclCommGetAsyncError:60 TRI_DOUBLE_HANG=ncclCommAbort" job.yaml $small run.dir=fault5

# A rank that stands still while others wait for its part of a sum.
mpirun -n 2 "$trireme" run job.yaml $small train.steps=1000000 run.dir=still parallel.limit_seconds=2 >out 2>&1 &
launcher=$!
tries=0
until grep -q '"step":3,' still/metrics.jsonl 2>/dev/null || [ $tries -ge 600 ]; do
  sleep 0.05
  tries=$((tries + 1))
done
kill -STOP "$(ps -o pid= --ppid $launcher --sort=pid | sed -n 2p | tr -d ' ')"
wait $launcher
code=$?
if [ $code -eq 10 ] && grep -q 'rank 1 (host .*) did not arrive' out; then ok stopped_rank_is_named; else
  bad stopped_rank_is_named "exit code $code"
  tail -n 20 out
fi
exit $failed
