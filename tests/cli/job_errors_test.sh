#!/bin/sh
# Wrong job files end `trireme run` with exit code 3, a missing one with 4, one message from all ranks together, at one
# rank and at two, before anything is made.
# timeout: 120
trireme=$TRI_BUILDDIR/trireme
err=$TRI_SCRATCH/err
failed=0
cd "$TRI_SCRATCH" || exit 99
cat >good.yaml <<'END'
kind: train
data: {corpus: missing.h5}
model: {layers: 1, heads: 1, width: 8, context: 8}
train: {steps: 1, global_batch: 4, microbatch: 1}
END
sed 's/steps/stepz/' good.yaml >bad.yaml

expect() { # name, ranks, exit code wanted, text wanted once, arguments …
  name=$1 ranks=$2 code=$3 text=$4
  shift 4
  if [ "$ranks" -eq 1 ]; then
    "$trireme" run "$@" >"$err" 2>&1
  else
    mpirun -n "$ranks" "$trireme" run "$@" >"$err" 2>&1
  fi
  got=$?
  times=$(grep -cF -e "$text" "$err")
  if [ $got -ne "$code" ] || [ "$times" -ne 1 ]; then
    echo "not ok $name ($ranks ranks): exit code $got, wanted $code; '$text' $times times, wanted once:"
    cat "$err"
    failed=1
  elif [ -e runs ]; then
    echo "not ok $name ($ranks ranks): a run folder was made"
    failed=1
  else
    echo "ok $name ($ranks ranks)"
  fi
}

for n in 1 2; do
  expect unknown_key $n 3 "bad job file: bad.yaml:4: unknown key train.stepz: did you mean train.steps?" bad.yaml
  expect bad_override $n 3 "override train.lr=fast: train.lr wants a number in (0, 1000], found 'fast'" good.yaml train.lr=fast
  expect missing_file $n 4 "none.yaml: cannot be opened" none.yaml
done
exit $failed
