#!/bin/sh
# A rank that is stopped in mid-run is named with the operation that the others wait in, and one that is killed ends the run:
# within seconds, never by a hang.
# timeout: 240
. "$TRI_SRCDIR/tests/job/train_test_lib.sh"
train 1 out job.yaml run.dir=warm train.steps=1 # makes the corpus

# Starts a long run on 3 ranks in folder $1, sends signal $2 to rank 1 after a few steps, and waits for the end: `code`,
# and the seconds from the signal on: `seconds`. More arguments go to the run.
strike() {
  dir=$1 signal=$2
  shift 2
  mpirun -n 3 "$trireme" run job.yaml run.dir="$dir" train.steps=1000000 parallel.limit_seconds=2 "$@" >"$dir.out" 2>&1 &
  launcher=$!
  tries=0
  until grep -q '"step":3,' "$dir/metrics.jsonl" 2>/dev/null || [ $tries -ge 400 ]; do
    sleep 0.05
    tries=$((tries + 1))
  done
  # The launcher starts its ranks in their order.
  child=$(ps -o pid= --ppid $launcher --sort=pid | sed -n 2p | tr -d ' ')
  began=$(date +%s)
  kill -"$signal" "$child"
  wait $launcher
  code=$?
  seconds=$(($(date +%s) - began))
}

strike stopped STOP
if [ $code -eq 10 ] && [ $seconds -lt 20 ]; then ok stopped_rank_ends_the_run; else
  bad stopped_rank_ends_the_run "exit code $code after $seconds s"
  cat stopped.out
fi
for text in '^rank 0: error: waits in operation [0-9]* "[a-z ]*" of "[a-z]*"' '^rank 2: error: waits in operation' \
  '^rank 0: error: .*: operation [0-9]* "[a-z ]*" of "[a-z]*": .*; rank 1 (host [^ ]*) did not arrive$'; do
  grep -q "$text" stopped.out && ok stopped_rank_is_named || bad stopped_rank_is_named "no line '$text'"
done
tries=0
while ps -o pid= -p "$child" >/dev/null && [ $tries -lt 50 ]; do # the launcher ends a moment before its ranks are gone
  sleep 0.1
  tries=$((tries + 1))
done
ps -o pid= -p "$child" >/dev/null && bad stopped_rank_is_ended "process $child is there" || ok stopped_rank_is_ended

strike killed KILL
if [ $code -eq 137 ] && [ $seconds -lt 20 ]; then ok killed_rank_ends_the_run; else
  bad killed_rank_ends_the_run "exit code $code after $seconds s"
  cat killed.out
fi
grep -q 'process rank 1 ' killed.out && ok killed_rank_is_named || bad killed_rank_is_named "$(cat killed.out)"

# The same inside a pipeline, where a stage waits for its neighbours alone, in each kind of schedule.
for schedule in 1f1b zb-h1 interleaved; do
  pipeline="parallel.pipeline=3 parallel.schedule=$schedule model.layers=4 train.validate_every=0"
  [ $schedule = interleaved ] && pipeline="$pipeline parallel.virtual_stages=2"
  strike killed_$schedule KILL $pipeline
  if [ $code -eq 137 ] && [ $seconds -lt 20 ] && grep -q 'process rank 1 ' killed_$schedule.out; then ok killed_stage_$schedule; else
    bad killed_stage_$schedule "exit code $code after $seconds s"
    cat killed_$schedule.out
  fi
  strike stopped_$schedule STOP $pipeline
  if [ $code -eq 10 ] && [ $seconds -lt 20 ] && grep -q 'rank 1 (host [^ ]*) did not arrive' stopped_$schedule.out; then
    ok stopped_stage_$schedule
  else
    bad stopped_stage_$schedule "exit code $code after $seconds s"
    cat stopped_$schedule.out
  fi
done
exit $failed
