#!/bin/sh
# Interrupted anywhere, by a signal or by SIGKILL, and resumed on another number of ranks, a run ends with the digest of the
# uninterrupted one.
# timeout: 240
. "$TRI_SRCDIR/tests/job/train_test_lib.sh"
train 1 out job.yaml run.dir=whole train.steps=40
wanted=$(digest_of out)
[ -n "$wanted" ] && ok whole_run || bad whole_run "no digest"

# steps in metrics.jsonl so far
steps_done() { if [ -f "$1/metrics.jsonl" ]; then grep -c '"step":' "$1/metrics.jsonl"; else echo 0; fi; }

# Starts a run on $1 ranks in folder $2, and sends signal $3 to a rank once it has done a few more steps.
interrupt() {
  n=$1 dir=$2 signal=$3
  mpirun -n "$n" "$trireme" run job.yaml run.dir="$dir" train.steps=40 checkpoint.every=3 >"$dir.out" 2>&1 &
  launcher=$!
  already=$(steps_done "$dir")
  tries=0
  while [ "$(steps_done "$dir")" -lt $((already + 4)) ] && [ $tries -lt 600 ] && kill -0 $launcher 2>/dev/null; do
    sleep 0.05
    tries=$((tries + 1))
  done
  # The ranks are the launcher's children; one of them is enough.
  child=$(ps -o pid= --ppid $launcher | head -n 1 | tr -d ' ')
  [ -n "$child" ] && kill -"$signal" "$child" 2>/dev/null
  wait $launcher
}

interrupt 2 cut TERM
code=$?
saved=$(ls cut/checkpoints 2>/dev/null | grep -c '^step-')
if [ $code -eq 75 ] && [ "$saved" -ge 1 ]; then ok stopped_by_a_signal; else
  # The run may have been quicker than the signal.
  if [ $code -eq 0 ]; then ok stopped_by_a_signal_too_late; else
    bad stopped_by_a_signal "exit code $code, $saved checkpoints"
    cat cut.out
  fi
fi
interrupt 3 cut USR1
interrupt 1 cut KILL
interrupt 4 cut KILL
expect_digest resumed_on_other_ranks 2 "$wanted" job.yaml run.dir=cut train.steps=40
lines=$(steps_done cut)
[ "$lines" -eq 40 ] && ok metrics_have_every_step_once || bad metrics_have_every_step_once "$lines lines"
expect_digest finished_run_again 3 "$wanted" job.yaml run.dir=cut train.steps=40
expect_digest from_a_named_checkpoint 2 "$wanted" job.yaml run.dir=named train.steps=40 checkpoint.resume="$(ls -d cut/checkpoints/step-* | tail -n 1)"

# What a checkpoint does not fit is refused, and nothing of it is lost.
expect_error other_seed 2 3 "seed 1337" job.yaml run.dir=cut train.steps=40 seed=5
expect_error other_shape 2 3 "shape" job.yaml run.dir=cut train.steps=40 model.width=48
expect_digest still_there 1 "$wanted" job.yaml run.dir=cut train.steps=40

# A newest checkpoint with a flipped byte is passed over and set aside: the run goes on from the one before it.
flip() { # file: its 1000th byte becomes another one
  byte=$(od -An -tu1 -j 999 -N 1 "$1")
  printf "$(printf '\\%03o' $((byte ^ 255)))" | dd of="$1" bs=1 seek=999 conv=notrunc 2>/dev/null
}
train 3 out job.yaml run.dir=flipped train.steps=40 checkpoint.every=8 checkpoint.keep=0
flip flipped/checkpoints/step-00000040/rank-00001.h5
flip flipped/checkpoints/step-00000032/rank-00002.h5
mv flipped/checkpoints/step-00000024/manifest.json broken.json
expect_digest past_damaged_ones 4 "$wanted" job.yaml run.dir=flipped train.steps=40 checkpoint.keep=9
grep -q 'warning: checkpoint of step 40 is passed over: .*step-00000040/rank-00001.h5: is damaged' out &&
  grep -q 'warning: checkpoint of step 32 is passed over: .*step-00000032/rank-00002.h5: is damaged' out &&
  grep -q 'resumed from .*step-00000016 at step 16' out && ok damaged_ones_are_named || {
  bad damaged_ones_are_named "not in the output"
  cat out
}
names=$(cd flipped/checkpoints && echo *)
[ "$names" = "damaged-step-00000032 damaged-step-00000040 step-00000008 step-00000016 step-00000024 step-00000040" ] &&
  ok damaged_ones_are_set_aside || bad damaged_ones_are_set_aside "$names"

# None is left: the error, never a new beginning.
for file in flipped/checkpoints/step-*/rank-00000.h5; do flip "$file"; done
before=$(ls flipped/checkpoints)
expect_error all_damaged 2 5 "none of its 4 checkpoints is whole" job.yaml run.dir=flipped train.steps=41
[ "$before" = "$(ls flipped/checkpoints)" ] && ok all_damaged_stay || bad all_damaged_stay "$(ls flipped/checkpoints)"
exit $failed
