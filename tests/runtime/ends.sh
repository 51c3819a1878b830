# How a job ends: exit codes, who speaks, nothing hangs.
# timeout: 90
. "$TRI_SRCDIR/tests/runtime/cases"
trouble=$TRI_BUILDDIR/tests/runtime/trouble
start none mpirun -n 3 "$trouble" none 0
start interrupt mpirun -n 3 "$trouble" interrupt 0
start agree-2 mpirun -n 2 "$trouble" agree 0 20
start agree-4 mpirun -n 4 "$trouble" agree 3 20
start error-2 mpirun -n 2 "$trouble" error 0 20
start error-4 mpirun -n 4 "$trouble" error 2 20
start hang-at-end mpirun -n 3 "$trouble" hang-at-end 1 2
wait
start agree-alone mpirun -n 3 "$trouble" agree-alone 1 2
start kill mpirun -n 4 "$trouble" kill 2 20
start exit mpirun -n 3 "$trouble" exit 1 20
start alone "$trouble" none 0
start alone-error "$trouble" error 0
start alone-agree "$trouble" agree 0
start trace env TRIREME_DEBUG=1 "$trouble" error 0
start no-start "$trouble" none 0 -1
wait

disk='input/output error: disk of rank in trouble is full$'
file='damaged file: file of rank in trouble is bad$'
expect none 0
expect interrupt 75
expect_count none 0 error
expect_count interrupt 0 'error: '
# An error that all agree on ends in order; one that other ranks wait for cannot. Both are said once.
expect agree-2 5 "^rank 0: error: on .*: $file"
expect agree-4 5 "^rank 3: error: on .*: $file"
expect error-2 4 "^rank 0: error: on .*: $disk"
expect error-4 4 "^rank 2: error: on .*: $disk"
for name in agree-2 agree-4; do
  expect_count $name 1 'error: [^ ]'
  expect_count $name 0 MPI_ABORT
done
for name in error-2 error-4; do
  expect_count $name 1 'error: [^ ]'
done
expect agree-alone 5 "^rank 1: error: on .*: $file"
expect hang-at-end 10 '^rank 0: error: .*"end of the program" .*rank 1 (host .*) did not arrive$'
# A rank that vanishes takes the job with it.
expect kill 137
expect exit 3
# Without mpirun.
expect alone 0
expect alone-error 4 "^error: $disk"
expect alone-agree 5 "^error: $file"
expect trace 4 "^error: $disk" 'at get_into_trouble (.*trouble.c:[0-9]*)$'
expect no-start 12 '^error: bad argument: a wait limit of -1 s is not above 0$'
[ $failed -eq 0 ] && echo "ok ends"
exit $failed
