#!/bin/sh
# The state digest is the same on 1, 2, 3, 4 and 5 ranks, with and without overlap, for stages of a pipeline, other
# transports, bucket sizes, slots and threads; and it changes with what defines the run.
# timeout: 240
. "$TRI_SRCDIR/tests/job/train_test_lib.sh"
train 1 out job.yaml run.dir=r1
wanted=$(digest_of out)
if [ -n "$wanted" ]; then ok first_run; else
  bad first_run "no digest"
  cat out
fi
for n in 2 3 4 5; do expect_digest "ranks_$n" $n "$wanted" job.yaml run.dir=r$n; done
expect_digest no_overlap 3 "$wanted" job.yaml run.dir=s1 parallel.overlap=false
expect_digest large_buckets 2 "$wanted" job.yaml run.dir=s2 parallel.bucket_mib=8
expect_digest staged 3 "$wanted" job.yaml run.dir=s6 parallel.transport=staged
expect_digest one_slot 4 "$wanted" job.yaml run.dir=s3 parallel.in_flight=1
expect_digest two_threads 2 "$wanted" job.yaml run.dir=s4 cpu.threads=2
expect_digest three_threads 1 "$wanted" job.yaml run.dir=s5 cpu.threads=3

# Stages of a pipeline, with data parallelism, in every schedule, one that holds the embedding alone included.
expect_digest stages_2 2 "$wanted" job.yaml run.dir=p1 parallel.pipeline=2
expect_digest stages_4 4 "$wanted" job.yaml run.dir=p2 parallel.pipeline=4 parallel.schedule=gpipe
expect_digest stages_2_data_2 4 "$wanted" job.yaml run.dir=p3 parallel.pipeline=2 parallel.data=2
expect_digest stages_2_data_3 6 "$wanted" job.yaml run.dir=p4 parallel.pipeline=2 parallel.overlap=false
expect_digest stages_3_staged 3 "$wanted" job.yaml run.dir=p5 parallel.pipeline=3 parallel.transport=staged
expect_digest halves_2 2 "$wanted" job.yaml run.dir=z1 parallel.pipeline=2 parallel.schedule=zb-h1
expect_digest halves_3_data_2 6 "$wanted" job.yaml run.dir=z2 parallel.pipeline=3 parallel.schedule=zb-h1
chunks="parallel.schedule=interleaved parallel.virtual_stages=2"
expect_digest chunks_2 2 "$wanted" job.yaml run.dir=p6 parallel.pipeline=2 $chunks
expect_digest chunks_of_one_rank 1 "$wanted" job.yaml run.dir=p7 $chunks
expect_digest chunks_of_one_rank_gpipe 1 "$wanted" job.yaml run.dir=p8 parallel.schedule=gpipe parallel.virtual_stages=4

# Sum groups are part of the definition: other bits, but again the same for all layouts, ranks without work included.
train 1 out job.yaml run.dir=g1 train.sum_group=2
grouped=$(digest_of out)
if [ -n "$grouped" ] && [ "$grouped" != "$wanted" ]; then ok groups_define_the_run; else bad groups_define_the_run "digest '$grouped'"; fi
expect_digest groups_halves 2 "$grouped" job.yaml run.dir=g6 train.sum_group=2 parallel.pipeline=2 parallel.schedule=zb-h1 \
  parallel.bucket_mib=8
for n in 2 4 5; do expect_digest "groups_ranks_$n" $n "$grouped" job.yaml run.dir=g$n train.sum_group=2; done

train 1 out job.yaml run.dir=b1 train.precision=bf16
rounded=$(digest_of out)
expect_digest bf16_stages_2 2 "$rounded" job.yaml run.dir=b4 train.precision=bf16 parallel.pipeline=2
for n in 2 3; do expect_digest "bf16_ranks_$n" $n "$rounded" job.yaml run.dir=b$n train.precision=bf16; done
train 1 out job.yaml run.dir=k1 cpu.kernels=reference train.steps=3
reference=$(digest_of out)
expect_digest reference_kernels 3 "$reference" job.yaml run.dir=k3 cpu.kernels=reference train.steps=3
for change in seed=7 train.microbatch=5 train.lr=2e-3 model.dropout=0; do
  train 2 out job.yaml run.dir="c-$change" $change
  got=$(digest_of out)
  if [ -n "$got" ] && [ "$got" != "$wanted" ]; then ok "changes_with_$change"; else bad "changes_with_$change" "digest '$got'"; fi
done
exit $failed
