#!/bin/sh
# Layouts at their edges end with the bits of one rank: data ranks without a micro-batch, alone and in pipelines; one
# micro-batch; more stages than micro-batches; blocks and a vocabulary that divide by nothing.
# timeout: 240
. "$TRI_SRCDIR/tests/job/train_test_lib.sh"
set_steps="train.steps=4 train.validate_every=2"
chunks="parallel.schedule=interleaved parallel.virtual_stages=2"

# Five micro-batches for six and seven data ranks; three, for four.
train 1 out job.yaml run.dir=r1 $set_steps
five=$(digest_of out)
expect_digest data_6 6 "$five" job.yaml run.dir=d1 $set_steps
grep -q '1 of 6 data ranks have no micro-batch: a step has 5 sum groups$' out && ok idle_ranks_are_told ||
  bad idle_ranks_are_told "$(cat out)"
expect_digest data_7_zero 7 "$five" job.yaml run.dir=d2 $set_steps parallel.zero=1
expect_digest data_7_staged 7 "$five" job.yaml run.dir=d3 $set_steps parallel.transport=staged parallel.overlap=false
few="$set_steps train.global_batch=6"
train 1 out job.yaml run.dir=r2 $few
three=$(digest_of out)
for schedule in gpipe 1f1b zb-h1; do
  expect_digest "data_4_stages_2_$schedule" 8 "$three" job.yaml run.dir="p-$schedule" $few parallel.pipeline=2 \
    parallel.schedule=$schedule
done
expect_digest data_4_chunks_2 8 "$three" job.yaml run.dir=p4 $few parallel.pipeline=2 $chunks parallel.zero=1
expect_digest data_4_chunks_of_one_rank 4 "$three" job.yaml run.dir=p5 $few $chunks
train 2 out job.yaml run.dir=r3 $few parallel.tensor=2
expect_digest data_4_tensor_2 8 "$(digest_of out)" job.yaml run.dir=p6 $few parallel.tensor=2
train 1 out job.yaml run.dir=r4 $set_steps train.sum_group=2
expect_digest data_4_for_3_groups_of_2 8 "$(digest_of out)" job.yaml run.dir=p7 $set_steps train.sum_group=2 parallel.pipeline=2

# A checkpoint that a rank without data had part in, on fewer ranks, and the other way round.
train 4 out job.yaml run.dir=c1 $few checkpoint.every=2 checkpoint.keep=0 parallel.zero=1
expect_digest from_ranks_without_data 1 "$three" job.yaml run.dir=c2 $few checkpoint.resume=c1/checkpoints/step-00000002
expect_digest to_ranks_without_data 5 "$three" job.yaml run.dir=c3 $few checkpoint.resume=c1/checkpoints/step-00000002

# One micro-batch: of four stages, and of three data ranks, two without.
one="$set_steps train.global_batch=2"
train 1 out job.yaml run.dir=r5 $one
single=$(digest_of out)
expect_digest one_microbatch_data_3 3 "$single" job.yaml run.dir=o1 $one
for schedule in gpipe 1f1b zb-h1; do
  expect_digest "one_microbatch_stages_4_$schedule" 4 "$single" job.yaml run.dir="o-$schedule" $one parallel.pipeline=4 \
    parallel.schedule=$schedule
done
expect_digest one_microbatch_chunks 2 "$single" job.yaml run.dir=o2 $one parallel.pipeline=2 $chunks
expect_digest one_microbatch_data_2_stages_2 4 "$single" job.yaml run.dir=o3 $one parallel.pipeline=2 parallel.zero=1

# Two micro-batches for three and four stages.
two="$set_steps train.global_batch=4"
train 1 out job.yaml run.dir=r6 $two
expect_digest stages_4_microbatches_2 4 "$(digest_of out)" job.yaml run.dir=s1 $two parallel.pipeline=4
deep="$two model.layers=5" # seven blocks for three stages of two chunks
train 1 out job.yaml run.dir=r7 $deep
deeper=$(digest_of out)
expect_digest chunks_3_microbatches_2 3 "$deeper" job.yaml run.dir=s2 $deep parallel.pipeline=3 $chunks
expect_digest chunks_3_data_2 6 "$deeper" job.yaml run.dir=s3 $deep parallel.pipeline=3 $chunks
for stages in 2 3 4 5 6 7; do
  expect_digest "blocks_7_stages_$stages" $stages "$deeper" job.yaml run.dir="b-$stages" $deep parallel.pipeline=$stages
done

# A vocabulary that 2 and 4 ranks do not share evenly (tests/layouts compares with one rank).
for vocabulary in 259 261; do
  odd="$set_steps model.heads=4 model.vocab_size=$vocabulary model.vocab_multiple=1"
  for n in 2 4; do
    train $n out job.yaml run.dir="v-$vocabulary-$n" $odd parallel.tensor=$n
    expect_digest "vocabulary_${vocabulary}_tensor_${n}_stages_2" $((2 * n)) "$(digest_of out)" job.yaml \
      run.dir="w-$vocabulary-$n" $odd parallel.tensor=$n parallel.pipeline=2
  done
done
exit $failed
