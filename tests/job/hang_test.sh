#!/bin/sh
# A rank that is stopped in mid-run is named with the operation that the others wait in, and one that is killed ends the run:
# within seconds, never by a hang.
# timeout: 120
. "$TRI_SRCDIR/tests/job/train_test_lib.sh"
train 1 out job.yaml run.dir=warm train.steps=1 # makes the corpus

# Starts a long run on 3 ranks in folder $1, sends signal $2 to rank 1 after a few steps, and waits for the end: `code`,
# and the seconds from the signal on: `seconds`.
strike() {
  dir=$1 signal=$2
  mpirun -n 3 "$trireme" run job.yaml run.dir="$dir" train.steps=1000000 parallel.limit_seconds=2 >"$dir.out" 2>&1 &
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
exit $failed
