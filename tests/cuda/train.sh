#!/bin/sh
# timeout: 900
# The whole program with device cuda, on the doubles of NVIDIA's libraries: it trains as the CPU does, with the same bits
# whatever the schedule of its queues, goes on from checkpoints of either device, and says what is wrong with a GPU.
program=$TRI_BUILDDIR/tests/cuda/trireme_on_doubles
[ -x "$program" ] || { echo "skipped: built without --with-cuda"; exit 77; }
. "$TRI_SRCDIR/tests/job/train_test_lib.sh"
trireme=$program
small="train.steps=3 train.global_batch=6 model.width=16 train.validate_every=0"
export TRI_DOUBLE_PROTECT=0 TRI_DOUBLE_SCHEDULE=lazy

# name, run folder, run folder, bound: loss and gradient norm of every step are equal to this relative bound
expect_close() {
  if paste -d' ' "$2/metrics.jsonl" "$3/metrics.jsonl" | awk -v bound="$4" '
    function number(line, key,   from) {
      from = index(line, "\"" key "\":")
      return from == 0 ? "none" : substr(line, from + length(key) + 3) + 0
    }
    function far(a, b) { return a == "none" || b == "none" || (a > b ? a - b : b - a) > bound * b }
    /"step"/ {
      half = index($0, "} {")
      a = substr($0, 1, half); b = substr($0, half + 2)
      if (index(a, "\"loss\"") == 0) next
      n++
      if (far(number(a, "loss"), number(b, "loss")) || far(number(a, "grad_norm"), number(b, "grad_norm"))) { print; bad = 1 }
    }
    END { exit bad || n < 3 }'; then ok "$1"; else
    bad "$1" "steps differ by more than $4, or there are fewer than 3"
    head -n 5 "$2/metrics.jsonl" "$3/metrics.jsonl"
  fi
}

# The kernels have other orders of sums than the CPU's: 1e-5 in f32, and of bf16 a rounding here and there.
for precision in f32 bf16; do
  train 1 out job.yaml $small train.precision=$precision run.dir=cpu-$precision || cat out
  train 1 out job.yaml $small train.precision=$precision run.dir=cuda-$precision device=cuda || cat out
  digest=$(digest_of out)
  [ $precision = f32 ] && bound=1e-5 || bound=1e-2
  expect_close "as_on_the_cpu_$precision" cuda-$precision cpu-$precision $bound
  for how in eager random; do
    TRI_DOUBLE_SCHEDULE=$how expect_digest "schedule_${how}_$precision" 1 "$digest" job.yaml $small \
      train.precision=$precision run.dir=$how-$precision device=cuda
  done
  [ $precision = f32 ] && wanted=$digest
done
TRI_EMU_ORDER=3 TRI_EMU_SEED=5 expect_digest other_order_of_threads 1 "$wanted" job.yaml $small run.dir=order device=cuda

# Checkpoints do not know the device.
train 1 out job.yaml $small run.dir=half device=cuda train.steps=3 checkpoint.every=1 checkpoint.keep=0
rm -rf half/checkpoints/step-00000003 half/checkpoints/step-00000002
expect_digest resumed_on_cuda 1 "$wanted" job.yaml $small run.dir=half device=cuda
rm -rf half/checkpoints/step-00000003
train 1 out job.yaml $small run.dir=half device=cpu
code=$?
[ $code -eq 0 ] && grep -q "step *3/3" out && ok resumed_on_the_cpu || { bad resumed_on_the_cpu "exit code $code"; cat out; }

# The work of a micro-batch recorded as a graph: the same bits, and few launches by the host.
train 1 out job.yaml $small run.dir=plain device=cuda model.dropout=0
plain=$(digest_of out)
for how in lazy random; do
  TRI_DOUBLE_SCHEDULE=$how expect_digest "graphs_$how" 1 "$plain" job.yaml $small run.dir=graphs-$how device=cuda \
    model.dropout=0 cuda.graph=true
done
TRI_DOUBLE_COUNTERS=1 train 1 out job.yaml $small run.dir=graphs-count device=cuda model.dropout=0 cuda.graph=true
grep -q "^CUDA doubles: .* 9 graph launches" out && ok a_graph_for_each_micro_batch || bad a_graph_for_each_micro_batch "$(grep '^CUDA doubles' out)"
expect_error graphs_without_dropout 1 3 "model.dropout" job.yaml $small run.dir=g2 device=cuda cuda.graph=true
expect_error graphs_need_cuda 1 3 "device is cpu" job.yaml $small run.dir=g3 model.dropout=0 cuda.graph=true

# Inside a step no wait for a whole device, and of the host one for each micro-batch's place and two for the norm.
waits() { # kind
  sed -n "s/^CUDA doubles: .*[, ]\([0-9]*\) $1.*/\1/p" out
}
for steps in 2 4; do
  TRI_DOUBLE_COUNTERS=1 train 1 out job.yaml $small run.dir=w$steps device=cuda train.steps=$steps
  eval "device_$steps=$(waits 'device and') stream_$steps=$(waits 'stream sync')"
done
if [ -n "$device_2" ] && [ "$device_2" = "$device_4" ]; then ok no_device_wait_in_a_step; else
  bad no_device_wait_in_a_step "'$device_2' in 2 steps, '$device_4' in 4"
fi
if [ -n "$stream_2" ] && [ $((stream_4 - stream_2)) -le $((2 * (3 + 2))) ]; then ok few_host_waits_in_a_step; else
  bad few_host_waits_in_a_step "'$stream_2' in 2 steps, '$stream_4' in 4"
fi

# Text is made on the device too.
"$trireme" generate cuda-f32 --prompt "line" --tokens 8 --temperature 0 >text-cuda 2>err || cat err
sed -i 's/^device: *cuda/device: cpu/' cuda-f32/job.yaml
"$trireme" generate cuda-f32 --prompt "line" --tokens 8 --temperature 0 >text-cpu 2>err || cat err
if [ -s text-cuda ] && cmp -s text-cuda text-cpu; then ok generates_as_on_the_cpu; else
  bad generates_as_on_the_cpu "$(cat text-cuda) / $(cat text-cpu)"
fi

# What there is, and what is not.
TRI_DOUBLE_DEVICES=3 "$trireme" info >out 2>&1
grep -q '^cuda:2 .*sm_90.* at 0000:03:00.0$' out && ok info_lists_devices || { bad info_lists_devices "info said:"; cat out; }
TRI_DOUBLE_DEVICES=none "$trireme" info >out 2>&1
code=$?
[ $code -eq 0 ] && grep -q '^cuda .*no NVIDIA driver' out && ok info_without_driver || { bad info_without_driver "$code"; cat out; }
if [ ! -e /dev/nvidiactl ]; then
  "$TRI_BUILDDIR/trireme" info >out 2>&1
  code=$?
  [ $code -eq 0 ] && grep -q '^cuda .*no NVIDIA driver' out && ok product_starts_without_driver || { bad product_starts_without_driver "$code"; cat out; }
fi

# Two parts of a machine with a GPU each (two_parts.xml): a rank that nobody has bound goes where its GPU is, one that is bound
# takes the GPU that is near. The parts have one processing unit each, which must be there.
if taskset -c 0 true && taskset -c 1 true; then
  export HWLOC_XMLFILE="$TRI_SRCDIR/tests/cuda/two_parts.xml" HWLOC_THISSYSTEM=1
  TRI_DOUBLE_DEVICES=2 train 2 out job.yaml $small run.dir=parts device=cuda train.steps=2
  if grep -q "rank 0 .* units 1, " out && grep -q "rank 1 .* units 0, .*0000:02:00.0, network mlx5_0" out; then
    ok ranks_follow_their_devices
  else
    bad ranks_follow_their_devices "no such ranks:"
    cat out
  fi
  TRI_DOUBLE_DEVICES=2 taskset -c 0 "$trireme" run job.yaml $small run.dir=near device=cuda train.steps=2 >out 2>&1
  if grep -q "^device .*0000:02:00.0" out; then ok near_devices_first; else
    bad near_devices_first "another device:"
    cat out
  fi
  unset HWLOC_XMLFILE HWLOC_THISSYSTEM
fi

# What can be wrong with GPUs.
TRI_DOUBLE_DEVICES=none expect_error no_driver 1 8 "no NVIDIA driver" job.yaml $small run.dir=f1 device=cuda
TRI_DOUBLE_DEVICES=0 expect_error no_device 1 8 "no CUDA device" job.yaml $small run.dir=f2 device=cuda
CUDA_VISIBLE_DEVICES= expect_error hidden_devices 1 8 "CUDA_VISIBLE_DEVICES" job.yaml $small run.dir=f3 device=cuda
TRI_DOUBLE_MEMORY_MIB=65 expect_error full_device 1 6 "bytes wanted" job.yaml $small run.dir=f4 device=cuda model.width=512 model.layers=8
expect_error one_device_for_two_ranks 2 3 "cuda.share=true" job.yaml $small run.dir=f5 device=cuda
TRI_DOUBLE_FAIL=async:300 expect_error device_fails_in_a_step 1 14 "CUDA" job.yaml $small run.dir=f6 device=cuda
TRI_DOUBLE_FAIL=cublasLtMatmul:20 expect_error product_fails 1 14 "cublasLtMatmul" job.yaml $small run.dir=f7 device=cuda
TRI_DOUBLE_FAIL=cudaMalloc:2 expect_error allocation_fails 1 6 "bytes wanted" job.yaml $small run.dir=f8 device=cuda
TRI_DOUBLE_FAIL=launch:50 expect_error launch_fails 1 14 "CUDA" job.yaml $small run.dir=f9 device=cuda
exit $failed
