#!/bin/sh
# Generation from a run and from a checkpoint: repeatable, of the wanted length past a full context,
# and errors that say what is missing.
# timeout: 100
trireme=$TRI_BUILDDIR/trireme
cd "$TRI_SCRATCH" || exit 99
failed=0

ok() { # name, then a command that must succeed
  name=$1
  shift
  if "$@"; then echo "ok $name"; else echo "not ok $name"; failed=1; fi
}

fails() { # name, exit code, part of the message, arguments of generate
  name=$1 code=$2 part=$3
  shift 3
  "$trireme" generate "$@" >out 2>err
  got=$?
  if [ $got -eq "$code" ] && grep -qF -- "$part" err; then
    echo "ok $name"
  else
    echo "not ok $name: exit code $got, wanted $code with '$part': $(cat err)"
    failed=1
  fi
}

i=0
while [ $i -lt 300 ]; do
  echo "line $i of a text that repeats itself, with numbers: $((i * i))"
  i=$((i + 1))
done >text
cat >job.yaml <<END
kind: train
name: small
model: {name: gpt, layers: 2, heads: 2, width: 16, context: 16}
data: {corpus: text.h5, text: [text]}
train: {steps: 4, global_batch: 2, microbatch: 2, validate_samples: 2}
checkpoint: {every: 2}
log: {peak_gflops: 1}
END
"$trireme" run job.yaml >log 2>&1 || { cat log; echo "not ok a run to generate from"; exit 1; }
run=runs/small

# Bytes are tokens, so the lengths are known; 100 tokens are six contexts of 16.
"$trireme" generate $run --prompt 'line 7' --tokens 100 --temperature 0 >first || failed=1
"$trireme" generate $run --prompt='line 7' -n 100 --temperature 0 --seed 9 >second || failed=1
ok the_largest_token_needs_no_seed cmp first second
ok prompt_and_tokens_are_printed [ "$(wc -c <first)" -eq $((6 + 100 + 1)) ]
ok the_prompt_comes_first [ "$(head -c 6 first)" = 'line 7' ]

"$trireme" generate $run -p 'line 7' --tokens 60 --seed 1 >first || failed=1
"$trireme" generate $run -p 'line 7' --tokens 60 --seed 1 >second || failed=1
"$trireme" generate $run -p 'line 7' --tokens 60 --seed 2 >third || failed=1
ok the_same_seed_is_the_same_text cmp first second
ok another_seed_is_another_text sh -c '! cmp -s first third'

"$trireme" generate $run/checkpoints/step-00000004 -p 'line 7' --tokens 60 --seed 1 >second || failed=1
ok the_newest_checkpoint_is_taken cmp first second
"$trireme" generate $run/checkpoints/step-00000002/ -p 'line 7' --tokens 60 --top-k 3 >third || failed=1
ok an_older_checkpoint_is_taken [ "$(wc -c <third)" -eq 67 ]
"$trireme" generate $run -p 'line 7' --tokens 0 >third || failed=1
ok no_tokens_is_the_prompt_alone [ "$(cat third)" = 'line 7' ]
"$trireme" generate $run -p 'a prompt that is longer than the context of this model' -n 5 >third || failed=1
ok a_prompt_may_be_longer_than_the_context [ "$(wc -c <third)" -eq 60 ]

# The 17th token finds a full context of 16, and then has the 8 before it.
"$trireme" generate $run -p '12345678abcdefghi' -n 7 --seed 3 | tail -c 8 >first || failed=1
"$trireme" generate $run -p 'abcdefghi' -n 7 --seed 3 | tail -c 8 >second || failed=1
ok a_full_context_goes_on_from_its_last_half cmp first second

"$trireme" generate $run -p 'line 7' --tokens 60 --seed 1 >first || failed=1
mv runs moved
"$trireme" generate moved/small -p 'line 7' --tokens 60 --seed 1 >second || failed=1
ok a_run_may_be_moved cmp first second
mv moved runs

# A damaged newest checkpoint is passed over with a warning, and a command that only reads leaves it.
cp -r $run damaged
newest=damaged/checkpoints/step-00000004
size=$(wc -c <$newest/rank-00000.h5)
printf '\377' | dd of=$newest/rank-00000.h5 bs=1 seek=$((size - 9)) conv=notrunc 2>dd.log
"$trireme" generate $run/checkpoints/step-00000002 -p 'line 7' --tokens 60 --seed 1 >first || failed=1
"$trireme" generate damaged -p 'line 7' --tokens 60 --seed 1 >second 2>err || failed=1
ok a_damaged_checkpoint_is_passed_over cmp first second
ok and_named grep -q 'checkpoint of step 4 is passed over' err
ok and_left_as_it_is [ -d $newest ]

fails no_prompt 2 'at least one character' $run
fails no_folder 2 'takes one folder, 0 were given' --prompt x
fails two_folders 2 'takes one folder, 2 were given' $run $run --prompt x
fails unknown_option 2 'did you mean --prompt' $run --promt x
fails bad_top_k 2 '--top-k' $run --prompt x --top-k -1
fails bad_temperature 2 '--temperature' $run --prompt x --temperature hot
fails missing_folder 4 'runs/none' runs/none --prompt x
mkdir empty
fails not_a_run 3 'neither job.yaml' empty --prompt x
cp $run/job.yaml $run/tokenizer.json empty
sed -i 's|dir: .*checkpoints|dir: nowhere|' empty/job.yaml
fails no_checkpoint 3 'has not saved one yet' empty --prompt x
mkdir -p far/away && cp -r $run/checkpoints/step-00000004 far/away
fails lonely_checkpoint 3 'give the run folder instead' far/away/step-00000004 --prompt x
exit $failed
