#!/bin/sh
# What users and machines get wrong: the message says what to do, the exit code is its own, nothing is left half-written.
# timeout: 240
. "$TRI_SRCDIR/tests/job/train_test_lib.sh"
expect_error unknown_key 2 3 "did you mean" job.yaml train.stepz=3
expect_error wrong_type 1 3 "train.steps" job.yaml train.steps=many
expect_error indivisible_heads 2 3 "heads" job.yaml model.heads=3
expect_error indivisible_batch 1 3 "microbatch" job.yaml train.microbatch=3
expect_error missing_corpus 2 4 "trireme data tokenize" job.yaml data.corpus=none.h5 'data.text=[]' run.dir=e1
expect_error missing_text 2 4 "nothing.txt" job.yaml data.corpus=none.h5 'data.text=[nothing.txt]' run.dir=e2
[ ! -e none.h5 ] && ok no_half_corpus || bad no_half_corpus "none.h5 is there"
expect_error no_such_program 1 4 "cannot be started" job.yaml data.corpus=none.h5 'data.text=[]' 'data.text_command=[no-such-program-here]' run.dir=e3
# Without the backend the error names the option, with it but without a driver the driver.
if "$trireme" --version | grep -q cuda=no; then
  expect_error cuda_not_built 1 8 "--with-cuda" job.yaml device=cuda run.dir=e4
elif [ ! -e /dev/nvidiactl ]; then
  expect_error no_nvidia_driver 2 8 "no NVIDIA driver" job.yaml device=cuda run.dir=e4
fi
expect_error other_rank_count 2 3 "nearest layouts of 2 ranks: data 2, or pipeline 2" job.yaml run.dir=e6 parallel.data=3
expect_error more_stages_than_blocks 1 3 "pipeline" job.yaml run.dir=e6 parallel.pipeline=5
expect_error chunks_of_1f1b 2 3 "1f1b" job.yaml run.dir=e6 parallel.pipeline=2 parallel.virtual_stages=2
expect_error too_large_a_model 2 6 "bytes" job.yaml run.dir=e7 model.width=65536 model.heads=64 model.layers=200

train 1 out job.yaml run.dir=good train.steps=2
expect_error small_vocabulary 2 3 "model.vocab_size" job.yaml run.dir=e8 model.vocab_size=100
head -c 30000 corpus.h5 >short.h5
expect_error truncated_corpus 2 5 "short.h5" job.yaml run.dir=e9 data.corpus=short.h5
echo "no corpus at all" >text.h5
expect_error not_a_corpus 1 5 "text.h5" job.yaml run.dir=e10 data.corpus=text.h5
touch file
expect_error unwritable_folder 2 4 "file" job.yaml run.dir=file/run
expect_error context_too_long 1 3 "sample" job.yaml run.dir=e11 model.context=200000 train.context=190000 model.width=2 model.heads=1

# A limit on the size of files (ulimit -f, in blocks of 512 bytes) is an error like a full disk, not the end by a signal. The
# launcher, and shared memory between ranks, live in files too: they stay outside of the limit.
limited() { # name, blocks, text wanted, arguments …
  name=$1 blocks=$2 text=$3
  shift 3
  mpirun -n 2 --mca btl self,tcp sh -c 'ulimit -f "$0" && exec "$@"' "$blocks" "$trireme" run "$@" >out 2>&1
  code=$?
  if [ $code -eq 4 ] && grep -qF "$text" out && grep -qF "File too large" out; then ok "$name"; else
    bad "$name" "exit code $code:"
    cat out
  fi
}
limited file_limit_at_a_checkpoint 100 l1/checkpoints/ job.yaml run.dir=l1 train.steps=2
[ -z "$(ls -A l1/checkpoints)" ] && ok nothing_left_at_the_limit || bad nothing_left_at_the_limit "$(ls -A l1/checkpoints)"
limited file_limit_in_the_metrics 40 l2/metrics.jsonl: job.yaml run.dir=l2 train.steps=1000 train.validate_every=0 \
  train.global_batch=4 model.layers=1 model.heads=1 model.width=4 model.context=8

# A full disk while a checkpoint is written: the earlier one stays, and the run goes on from it when there is room.
if mkdir small && mount -t tmpfs -o size=700k tmpfs small 2>/dev/null; then
  trap 'umount small; rm -rf "$TRI_SCRATCH"' EXIT
  train 1 out job.yaml run.dir=small/run train.steps=2 checkpoint.keep=0
  code=$?
  expect_error full_disk 2 4 "No space left on device" job.yaml run.dir=small/run train.steps=40 checkpoint.every=1 checkpoint.keep=0
  half=$(ls -A small/run/checkpoints | grep -vc '^step-[0-9]*$')
  [ "$half" -eq 0 ] && ok nothing_half_written || bad nothing_half_written "$(ls -A small/run/checkpoints)"
  last=$(ls -d small/run/checkpoints/step-* | tail -n 1)
  if "$trireme" checkpoint verify "$last" >out 2>&1; then ok earlier_checkpoints_are_whole; else
    bad earlier_checkpoints_are_whole "$last"
    cat out
  fi
fi
exit $failed
