# How a job ends: exit codes, who speaks, nothing hangs.
# timeout: 90
trouble=$TRI_BUILDDIR/tests/runtime/trouble
failed=0
fail() {
  echo "not ok $1: $2"
  sed 's/^/    /' "$TRI_SCRATCH/out"
  failed=1
}
# expect NAME CODE LINES PATTERN COMMAND…: exit code, how many lines speak of an error, what one of them says.
expect() {
  name=$1 wanted=$2 lines=$3 pattern=$4
  shift 4
  begin=$(date +%s)
  timeout -k 5 40 "$@" >"$TRI_SCRATCH/out" 2>&1 </dev/null
  code=$?
  [ $code -eq "$wanted" ] || fail "$name" "exit code $code, wanted $wanted"
  [ $(($(date +%s) - begin)) -lt $((20 * ${TRI_TIMEOUT_FACTOR:-1})) ] || fail "$name" "took too long"
  [ "$(grep -c 'error: ' "$TRI_SCRATCH/out")" -eq "$lines" ] || fail "$name" "wanted $lines lines with an error"
  [ -z "$pattern" ] || grep -q -- "$pattern" "$TRI_SCRATCH/out" || fail "$name" "does not say '$pattern'"
}

disk='input/output error: disk of rank in trouble is full'
file='damaged file: file of rank in trouble is bad'
expect none 0 0 '' mpirun -n 3 "$trouble" none 0
expect interrupt 75 0 '' mpirun -n 3 "$trouble" interrupt 0
# An error that all agree on ends in order, an error of one rank while others wait for it does not; both say it once.
expect agree-2 5 1 "^rank 0: error: on .*: $file" mpirun -n 2 "$trouble" agree 0
expect agree-4 5 1 "^rank 3: error: on .*: $file" mpirun -n 4 "$trouble" agree 3
grep -q MPI_ABORT "$TRI_SCRATCH/out" && fail agree-4 "was aborted"
expect error-2 4 1 "^rank 0: error: on .*: $disk" mpirun -n 2 "$trouble" error 0 20
expect error-4 4 1 "^rank 2: error: on .*: $disk" mpirun -n 4 "$trouble" error 2 20
# Another rank is late at the end of the program.
expect hang-at-end 10 3 '"end of the program" .*rank 1 (host .*) did not arrive' mpirun -n 3 "$trouble" hang-at-end 1
# A rank that vanishes takes the job with it.
expect kill 137 0 '' mpirun -n 4 "$trouble" kill 2 20
expect exit 3 0 '' mpirun -n 3 "$trouble" exit 1 20
# Without mpirun.
expect alone 0 0 '' "$trouble" none 0
expect alone-error 4 1 "^error: $disk" "$trouble" error 0
expect alone-agree 5 1 "^error: $file" "$trouble" agree 0
expect trace 4 3 "at get_into_trouble (.*trouble.c:" env TRIREME_DEBUG=1 "$trouble" error 0
[ $failed -eq 0 ] && echo "ok ends"
exit $failed
