# A rank that does not arrive: the others say where they wait, one names it, and the job ends in time.
# timeout: 90
. "$TRI_SRCDIR/tests/runtime/cases"
trouble=$TRI_BUILDDIR/tests/runtime/trouble
for ranks in 2 3 4; do
  start stop-$ranks mpirun -n $ranks "$trouble" stop $((ranks / 2)) 2
  start other-$ranks mpirun -n $ranks "$trouble" other $((ranks - 1)) 2
done
wait
start stop-0 mpirun -n 3 "$trouble" stop 0 2
start apart mpirun -n 3 "$trouble" apart 1 3
start loop mpirun -n 3 "$trouble" loop 1 2
start chain mpirun -n 4 "$trouble" chain 3 2
wait
start pair mpirun -n 4 "$trouble" pair 2 2
start leave mpirun -n 3 "$trouble" leave 2 2
start late mpirun -n 3 "$trouble" late 1 10
start tardy mpirun -n 3 "$trouble" tardy 1 2
wait

op='operation [0-9]* "gradient bucket" of "world": no answer for [.0-9]* s'
here='error: waits in operation [0-9]* "gradient bucket" of "world", for [.0-9]* s now$'
host=$(hostname)
expect stop-2 10 "^rank 0: $here" "^rank 0: error: .*$op; rank 0 waits here; rank 1 (host $host) did not arrive$"
expect stop-3 10 "^rank 0: $here" "^rank 2: $here" \
  "^rank 0: error: .*$op; ranks 0, 2 wait here; rank 1 (host $host) did not arrive$"
expect stop-4 10 "^rank 0: $here" "^rank 1: $here" "^rank 3: $here" \
  "^rank 0: error: .*$op; ranks 0, 1, 3 wait here; rank 2 (host $host) did not arrive$"
expect stop-0 10 "^rank 1: $here" "^rank 2: $here" \
  "^rank 1: error: .*$op; ranks 1, 2 wait here; rank 0 (host $host) did not arrive$"
# Rank 0 came a moment before rank 2 gave up, and leaves with it.
expect apart 10 '^rank 0: error: waits .*, for 0' '^rank 2: error: waits .*, for 3' \
  "^rank 0: error: .*; ranks 0, 2 wait here; rank 1 (host $host) did not arrive$"
expect loop 10 "^rank 0: $here" "^rank 2: $here" "ranks 0, 2 wait here; rank 1 (host $host) did not arrive$"
# Neighbours wait for each other, the last but one for the missing one, each further behind.
expect chain 10 "^rank 0: error: .*$op; rank 0 waits here; rank 1 waits in .*; rank 2 waits in .*; rank 3 (host $host) did not arrive$"
# One rank names the missing one, and nobody else.
for name in stop-2 stop-3 stop-4 stop-0 apart loop chain; do
  expect_count $name 1 'did not arrive: operation'
done

norm='rank \([0-9]\): error: waits in operation [0-9]* "gradient norm" of "world"'
same='no rank is missing: they do not call the same operations in the same order$'
expect other-2 10 "$norm" "; rank 0 waits here; rank 1 waits in operation [0-9]* \"gradient norm\"; $same"
expect other-3 10 "$norm" "; ranks 0, 1 wait here; rank 2 waits in operation [0-9]* \"gradient norm\"; $same"
expect other-4 10 "$norm" "; ranks 0-2 wait here; rank 3 waits in operation [0-9]* \"gradient norm\"; $same"
expect pair 10 '^rank 2: error: waits in operation 1 "pair sums" of "pair"' \
  "ranks 0, 1, 3 wait here; rank 2 waits in operation 1 \"pair sums\" of \"pair\"; $same"
expect leave 10 "ranks 0, 1 wait here; rank 2 waits in operation [0-9]* \"end of the program\"; $same"
# Within the limit a slow rank is no trouble; beyond it, it is, even when it comes while the others look for it.
expect late 0
expect_count late 0 error
expect tardy 10 "^rank 0: $here" "^rank 2: $here" \
  '^rank 1: error: comes to operation [0-9]* ".*" of "world" when others have given up$' \
  "^rank 0: error: .*$op; ranks 0, 2 wait here; rank 1 (host $host) came too late$"
[ $failed -eq 0 ] && echo "ok timeout"
exit $failed
