#!/bin/sh
# timeout: 120
#
# A run that saves all the time is killed (SIGKILL) at random moments, one of its ranks or all; the
# run after it must find a newest checkpoint that is whole and right, and never an older one than
# before.
loop=$TRI_BUILDDIR/tests/ckpt/save_loop
folder=$TRI_SCRATCH/kill
kills=${TRI_KILLS:-20}
newest=0
torn=0 # kills that left a half-written folder
i=0

# Random hundredths of a second from $1 on, $2 wide.
pause() {
  drawn=$(od -An -N2 -tu2 /dev/urandom)
  sleep "$(echo "$drawn $1 $2" | awk '{ printf "%.3f", ($2 + $1 % ($3 * 10) / 10) / 100 }')"
}

# The newest step found by the run; fails when it is older than the one before.
resumed() {
  step=$(sed -n 's/^resumed //p' "$TRI_SCRATCH/log" | head -n 1)
  if grep -q '^not ok' "$TRI_SCRATCH/log" || [ -z "$step" ] || [ "$step" -lt "$newest" ]; then
    echo "not ok kill_test: after kill $i: newest '$step', before $newest"
    cat "$TRI_SCRATCH/log"
    exit 1
  fi
  newest=$step
}

while [ $i -lt "$kills" ]; do
  i=$((i + 1))
  ranks=$((1 + i % 2))
  rm -f "$folder".pid.*
  : > "$TRI_SCRATCH/log"
  if [ $ranks -eq 1 ]; then
    "$loop" "$folder" 100000 > "$TRI_SCRATCH/log" 2>&1 &
  else
    mpirun -n $ranks "$loop" "$folder" 100000 > "$TRI_SCRATCH/log" 2>&1 &
  fi
  job=$!
  waited=0
  until grep -q '^resumed' "$TRI_SCRATCH/log" || [ $waited -gt 300 ]; do
    sleep 0.1
    waited=$((waited + 1))
  done
  pause 0 30
  first=1
  for name in "$folder".pid.*; do
    [ -e "$name" ] || continue
    pid=${name##*.}
    # Of every fourth run one rank only: the launcher ends the others.
    [ $((i % 4)) -eq 1 ] && [ $first -eq 0 ] && break
    kill -9 "$pid" 2> /dev/null
    first=0
  done
  wait $job 2> /dev/null
  resumed
  ls -A "$folder" 2> /dev/null | grep -q partial && torn=$((torn + 1))
done

"$loop" "$folder" 3 > "$TRI_SCRATCH/log" 2>&1 || { echo "not ok kill_test: no run after $i kills"; cat "$TRI_SCRATCH/log"; exit 1; }
resumed
if ls -A "$folder" | grep -q partial; then
  echo "not ok kill_test: half-written folders were not removed"
  exit 1
fi
if [ $torn -eq 0 ]; then
  echo "not ok kill_test: no kill fell into a save"
  exit 1
fi
echo "ok kill_test: $kills kills, $torn in the middle of a save, newest step $newest"
