# A rank that does not arrive: the others say where they wait, one names it, and the job ends in time.
# timeout: 90
trouble=$TRI_BUILDDIR/tests/runtime/trouble
failed=0
fail() {
  echo "not ok $1: $2"
  sed 's/^/    /' "$TRI_SCRATCH/$1"
  failed=1
}

# Runs KIND on N ranks with rank RANK in trouble; what it printed, its exit code and its seconds stay behind.
start() {
  (
    begin=$(date +%s)
    timeout -k 5 60 mpirun -n "$2" "$trouble" "$1" "$3" >"$TRI_SCRATCH/$1-$2" 2>&1 </dev/null
    echo "$? $(($(date +%s) - begin))" >"$TRI_SCRATCH/$1-$2.end"
  ) &
}

# expect NAME CODE PATTERN…: every pattern is in the output, and the end came in time.
expect() {
  name=$1
  read -r code seconds <"$TRI_SCRATCH/$name.end"
  [ "$code" -eq "$2" ] || fail "$name" "exit code $code, wanted $2"
  [ "$seconds" -lt $((20 * ${TRI_TIMEOUT_FACTOR:-1})) ] || fail "$name" "took $seconds s"
  shift 2
  for pattern in "$@"; do
    grep -q -- "$pattern" "$TRI_SCRATCH/$name" || fail "$name" "does not say '$pattern'"
  done
}

op='operation [0-9]* "gradient bucket" of "world"'
here='error: waits in operation [0-9]* "gradient bucket" of "world", for 2'
host=$(hostname)

# They mostly sleep, so they can run side by side.
start stop 2 1
start stop 3 0
start stop 4 2
start other 2 0
start other 3 1
start other 4 3
wait
start loop 3 1
start sleep 4 3
start pair 4 2
start leave 3 2
start late 3 1
start tardy 3 1
wait

expect stop-2 10 "rank 0: $here" "$op: no answer for 2[.0-9]* s; rank 0 waits here; rank 1 (host $host) did not arrive"
expect stop-3 10 "rank 1: $here" "rank 2: $here" \
  "rank 1: error: .*$op: no answer .*; ranks 1, 2 wait here; rank 0 (host $host) did not arrive"
expect stop-4 10 "rank 0: $here" "rank 1: $here" "rank 3: $here" \
  "rank 0: error: .*$op: no answer .*; ranks 0, 1, 3 wait here; rank 2 (host $host) did not arrive"
for n in 2 3 4; do
  expect other-$n 10 'error: waits in operation [0-9]* "gradient norm" of "world"' 'no rank is missing'
done
expect other-2 10 "rank 0: error: .* \"gradient norm\" .*; rank 0 waits here; rank 1 waits in operation [0-9]* \"gradient bucket\""
expect other-3 10 "rank 0: error: .*$op: .*; ranks 0, 2 wait here; rank 1 waits in operation [0-9]* \"gradient norm\""
expect other-4 10 "rank 0: error: .*$op: .*; ranks 0-2 wait here; rank 3 waits in operation [0-9]* \"gradient norm\""
expect loop-3 10 "rank 0: $here" "rank 2: $here" "ranks 0, 2 wait here; rank 1 (host $host) did not arrive"
expect sleep-4 10 "rank 0: $here" "ranks 0-2 wait here; rank 3 (host $host) did not arrive"
expect pair-4 10 'rank 2: error: waits in operation 1 "pair sums" of "pair"' \
  "ranks 0, 1, 3 wait here; rank 2 waits in operation 1 \"pair sums\" of \"pair\""
expect leave-3 10 "ranks 0, 1 wait here; rank 2 waits in operation [0-9]* \"end of the program\""
# Within the limit a slow rank is no trouble; beyond it, it is, even when it comes while the others still look for it.
expect late-3 0
grep -q error "$TRI_SCRATCH/late-3" && fail late-3 "speaks of an error"
expect tardy-3 10 "rank 0: $here" "rank 2: $here"
# One rank names the missing one, and nobody else.
for run in stop-2 stop-3 stop-4 loop-3 sleep-4; do
  [ "$(grep -c 'did not arrive: operation' "$TRI_SCRATCH/$run")" -eq 1 ] || fail $run "is named more than once"
done
[ $failed -eq 0 ] && echo "ok timeout"
exit $failed
