#!/bin/sh
# `trireme checkpoint`: lists what is there and what is wrong with it, verifies digests, alone and on ranks.
trireme=$TRI_BUILDDIR/trireme
folder=$TRI_SCRATCH/run/checkpoints
out=$TRI_SCRATCH/out
failed=0

# Checkpoints of steps 1 and 2, of two ranks.
mkdir -p "$folder"
mpirun -n 2 "$TRI_BUILDDIR/tests/ckpt/save_loop" "$folder" 2 >"$out" 2>&1 || { cat "$out"; exit 1; }

expect() { # name, exit code wanted, text wanted once, command …
  name=$1 code=$2 text=$3
  shift 3
  "$@" >"$out" 2>&1
  got=$?
  if [ $got -ne "$code" ] || [ "$(grep -c -e "$text" "$out")" -ne 1 ]; then
    echo "not ok $name: exit code $got, wanted $code and '$text' once: $(head -n 5 "$out")"
    failed=1
  else
    echo "ok $name"
  fi
}

expect list_of_a_run 0 "^2 checkpoints in $folder\$" "$trireme" checkpoint list "$TRI_SCRATCH/run"
expect list_of_a_folder 0 "^           2  2 files, .* MiB, 5 arrays, 150500 elements" "$trireme" checkpoint list "$folder"
expect list_of_two 0 "^2 checkpoints" mpirun -n 2 "$trireme" checkpoint list "$folder"
expect verify 0 "^files      2, .*: all sizes and digests are right" "$trireme" checkpoint verify "$folder/step-00000002"
expect verify_of_three 0 "^arrays     5 of 150500 elements in 10 pieces" mpirun -n 3 "$trireme" checkpoint verify "$folder/step-00000001"

# The digests of the manifest are those of b2sum.
if command -v b2sum >/dev/null; then
  manifest=$folder/step-00000002/manifest.json
  head -n -1 "$manifest" | b2sum -l 256 | cut -c1-64 >"$TRI_SCRATCH/own"
  grep -q "^\"digest\":\"$(cat "$TRI_SCRATCH/own")\"}\$" "$manifest" &&
    grep -q "$(b2sum -l 256 "$folder/step-00000002/rank-00001.h5" | cut -c1-64)" "$manifest" && echo "ok b2sum" ||
    { echo "not ok b2sum: other digests than those of the manifest"; failed=1; }
fi

printf X | dd of="$folder/step-00000002/rank-00001.h5" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect damaged 5 "rank-00001.h5: is damaged" "$trireme" checkpoint verify "$folder/step-00000002"
expect damaged_of_two 5 "rank-00001.h5: is damaged" mpirun -n 2 "$trireme" checkpoint verify "$folder/step-00000002"
truncate -s 100 "$folder/step-00000002/manifest.json"
expect list_damaged 0 "^           2  damaged file: .*manifest.json: is " "$trireme" checkpoint list "$folder"
expect not_there 4 "step-00000009: no such checkpoint" "$trireme" checkpoint verify "$folder/step-00000009"
expect no_folder 4 "/nowhere: no such folder" "$trireme" checkpoint list "$TRI_SCRATCH/nowhere"
expect usage 2 "checkpoint wants" "$trireme" checkpoint look "$folder"
exit $failed
