#!/bin/sh
# `trireme info` tells of every rank, with and without a launcher.
# timeout: 60
trireme=$TRI_BUILDDIR/trireme
out=$TRI_SCRATCH/out
failed=0

check() { # name, ranks wanted
  for text in "^trireme " "^  MPI " "^ranks      $2 on 1 host$" "^device     cpu: " "^memory " "^rank 0 .* thread"; do
    [ "$(grep -c -e "$text" "$out")" -eq 1 ] || { echo "not ok $1: '$text' not once"; cat "$out"; failed=1; }
  done
  [ "$(grep -c '^rank ' "$out")" -eq "$2" ] && echo "ok $1" || { echo "not ok $1: not $2 ranks"; failed=1; }
}

"$trireme" info >"$out" || { echo "not ok info_alone: exit code $?"; failed=1; }
check info_alone 1
mpirun -n 2 "$trireme" info >"$out" || { echo "not ok info_two: exit code $?"; failed=1; }
check info_two 2
exit $failed
