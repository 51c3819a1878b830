#!/bin/sh
# timeout: 300
# tests/gpu/run, the script for a machine with a GPU, on the doubles: every step that needs none is done at tiny sizes, the
# others say why not, and what it writes is whole. Its numbers are no GPU's.
program=$TRI_BUILDDIR/tests/cuda/trireme_on_doubles
[ -x "$program" ] || { echo "skipped: built without --with-cuda"; exit 77; }
cd "$TRI_SCRATCH" || exit 99
failed=0
ok() { echo "ok $1"; }
bad() {
  echo "not ok $1: $2"
  failed=1
}
run="$TRI_SRCDIR/tests/gpu/run"
export TRI_DOUBLE_SCHEDULE=lazy TRI_DOUBLE_DEVICES=1 PYTHONDONTWRITEBYTECODE=1

python3 "$run" --build "$TRI_BUILDDIR" --rehearse --limit 250 --out out >run.out 2>&1
code=$?
[ $code -eq 0 ] && ok ends_well || { bad ends_well "exit code $code"; cat run.out; }
python3 - out/gpu.json <<'END' && ok report_is_whole || { bad report_is_whole "see above"; cat out/gpu.txt; }
import json, sys
report = json.load(open(sys.argv[1]))
steps = {s["name"]: s for s in report["steps"]}
needed = {"device", "probes", "corpus", "repeats", "two ranks", "as on the CPU", "memory", "products", "attention", "fft speed",
          "train 124M"}
wrong = [n for n in needed if steps.get(n, {}).get("status") != "ok"]
wrong += [s["name"] for s in report["steps"] if s["status"] == "failed" or s["status"] == "skipped" and not s["why"]]
assert not wrong, wrong
assert len(steps) == 16, sorted(steps)
assert all(r["gb_per_s"] > 0 for r in steps["memory"]["results"]["rows"])
assert steps["train 124M"]["results"]["tokens_per_second"] > 0
assert [m["got"] for m in report["marks"]] == [None] * 3, "a rehearsal reaches no mark"
END
for text in 'a rehearsal on doubles' 'not measured' 'largest difference' 'tokens/s' 'of a copy'; do
  grep -q "$text" out/gpu.txt && ok table_is_whole || bad table_is_whole "no '$text' in gpu.txt"
done

# A step that finds a mistake is told, stops no other, and sets the exit code.
TRI_DOUBLE_FAIL=cublasLtMatmul:20 python3 "$run" --build "$TRI_BUILDDIR" --rehearse --limit 100 --out bad \
  --only "corpus,repeats,probes" >bad.out 2>&1
code=$?
[ $code -eq 1 ] && grep -q '^failed   repeats.*cublasLtMatmul' bad.out && grep -q '^ok       probes' bad.out && ok a_mistake_is_told || { bad a_mistake_is_told "exit code $code"; cat bad.out; }

python3 "$run" >usage.out 2>&1
[ $? -eq 2 ] && grep -q 'one of --packages and --build' usage.out && ok usage || bad usage "$(cat usage.out)"
exit $failed
