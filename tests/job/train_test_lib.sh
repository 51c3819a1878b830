# Shared by the shell tests of the train job: a text, a job of a few seconds, and ways to run and compare.
trireme=$TRI_BUILDDIR/trireme
cd "$TRI_SCRATCH" || exit 99
failed=0
awk 'BEGIN { for (i = 0; i < 3000; i++) printf "line %d of a text that repeats itself %d times\n", i, i * i % 97 }' >text
cat >job.yaml <<'END'
kind: train
name: small
model: {layers: 2, heads: 2, width: 32, context: 24, dropout: 0.1}
data: {corpus: corpus.h5, text: [text]}
train: {steps: 12, global_batch: 10, microbatch: 2, lr: 3e-3, warmup_steps: 2, validate_every: 5, validate_samples: 7}
log: {peak_gflops: 1}
parallel: {bucket_mib: 0.01}
END

ok() { echo "ok $1"; }
bad() { # name, why
  echo "not ok $1: $2"
  failed=1
}

# ranks, output file, arguments of trireme run …: returns its exit code
train() {
  n=$1 out=$2
  shift 2
  if [ "$n" -eq 1 ]; then "$trireme" run "$@" >"$out" 2>&1; else mpirun -n "$n" "$trireme" run "$@" >"$out" 2>&1; fi
}

digest_of() { tail -n 1 "$1" | sed -n 's/^state digest \([0-9a-f]\{64\}\)$/\1/p'; }

# name, ranks, digest wanted, arguments …
expect_digest() {
  name=$1 ranks=$2 expected=$3
  shift 3
  train "$ranks" out "$@"
  code=$?
  got=$(digest_of out)
  if [ $code -eq 0 ] && [ -n "$expected" ] && [ "$got" = "$expected" ]; then ok "$name"; else
    bad "$name" "exit code $code, digest '$got', wanted '$expected'"
    tail -n 5 out
  fi
}

# name, ranks, exit code wanted, text wanted, arguments …
expect_error() {
  name=$1 ranks=$2 expected=$3 text=$4
  shift 4
  train "$ranks" out "$@"
  code=$?
  if [ $code -eq "$expected" ] && grep -qF -e "$text" out; then ok "$name"; else
    bad "$name" "exit code $code, wanted $expected with '$text':"
    cat out
  fi
}
