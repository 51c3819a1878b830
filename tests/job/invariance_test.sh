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

# The optimizer's state shared out, one rank without any of it included.
expect_digest zero_2 2 "$wanted" job.yaml run.dir=o1 parallel.zero=1
optimizer_of() { sed -n 's/^memory .* optimizer \([0-9]*\),.*/\1/p' "$1/run.log"; }
shared=$(optimizer_of o1) whole=$(optimizer_of r2)
if [ -n "$shared" ] && [ $((shared * 2)) -le $((whole + whole / 8)) ]; then ok zero_2_shares_memory; else
  bad zero_2_shares_memory "'$shared' bytes of optimizer where one rank holds '$whole'"
fi
expect_digest zero_3_staged 3 "$wanted" job.yaml run.dir=o2 parallel.zero=1 parallel.transport=staged parallel.in_flight=1
expect_digest zero_2_stages_2 4 "$wanted" job.yaml run.dir=o3 parallel.zero=1 parallel.pipeline=2
few="model.width=8 model.layers=1 train.steps=3"
train 1 out job.yaml run.dir=o4 $few
expect_digest zero_owns_nothing 5 "$(digest_of out)" job.yaml run.dir=o5 $few parallel.zero=1

# And gradients: uneven shares, ranks without a micro-batch, stages, chunks.
expect_digest zero2_2 2 "$wanted" job.yaml run.dir=q1 parallel.zero=2
expect_digest zero2_3_staged 3 "$wanted" job.yaml run.dir=q2 parallel.zero=2 parallel.transport=staged parallel.in_flight=1
expect_digest zero2_no_overlap 4 "$wanted" job.yaml run.dir=q3 parallel.zero=2 parallel.overlap=false parallel.bucket_mib=0.01
expect_digest zero2_stages_2 6 "$wanted" job.yaml run.dir=q4 parallel.zero=2 parallel.pipeline=2
expect_digest zero2_halves_2 4 "$wanted" job.yaml run.dir=q5 parallel.zero=2 parallel.pipeline=2 parallel.schedule=zb-h1
expect_digest zero2_chunks_2 6 "$wanted" job.yaml run.dir=q6 parallel.zero=2 parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2
# And weights, gathered block by block, where validation has uneven shares, too.
expect_digest zero3_2 2 "$wanted" job.yaml run.dir=w1 parallel.zero=3
expect_digest zero3_3_staged 3 "$wanted" job.yaml run.dir=w2 parallel.zero=3 parallel.transport=staged
expect_digest zero3_8 8 "$wanted" job.yaml run.dir=w3 parallel.zero=3 parallel.overlap=false
expect_digest zero3_stages_2 6 "$wanted" job.yaml run.dir=w4 parallel.zero=3 parallel.pipeline=2
expect_digest zero3_halves_2 4 "$wanted" job.yaml run.dir=w5 parallel.zero=3 parallel.pipeline=2 parallel.schedule=zb-h1

# name, run folder, run folder: the first holds at most half of the bytes of gradients of the second.
gradients_of() { sed -n 's/^memory .* gradients \([0-9]*\) .*/\1/p' "$1/run.log"; }
deep="model.layers=6 train.steps=2 train.global_batch=16"
train 4 out job.yaml run.dir=q7 $deep
expect_digest zero2_deep 4 "$(digest_of out)" job.yaml run.dir=q8 $deep parallel.zero=2
sliced=$(gradients_of q8) whole=$(gradients_of q7)
if [ -n "$sliced" ] && [ $((sliced * 2)) -le "$whole" ]; then ok zero2_halves_gradients; else
  bad zero2_halves_gradients "'$sliced' bytes of gradients where without it '$whole' are held"
fi

# Tensor parallelism has sums of another order, its own whatever the rest of the layout; from the same state its losses and
# norms are those of one rank but for rounding, and its initial state is that of one rank.
train 2 out job.yaml run.dir=t1 parallel.tensor=2
tensor=$(digest_of out)
expect_digest tensor_2_data_2 4 "$tensor" job.yaml run.dir=t2 parallel.tensor=2
expect_digest tensor_2_stages_2 4 "$tensor" job.yaml run.dir=t3 parallel.tensor=2 parallel.pipeline=2
expect_digest tensor_2_halves_2 4 "$tensor" job.yaml run.dir=t4 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb-h1
expect_digest tensor_2_zero_2 4 "$tensor" job.yaml run.dir=t8 parallel.tensor=2 parallel.zero=1
expect_digest tensor_2_zero2_3 6 "$tensor" job.yaml run.dir=t9 parallel.tensor=2 parallel.zero=2
expect_digest tensor_2_zero3_3 6 "$tensor" job.yaml run.dir=t10 parallel.tensor=2 parallel.zero=3
expect_digest tensor_2_staged 2 "$tensor" job.yaml run.dir=t5 parallel.tensor=2 parallel.transport=staged
train 4 out job.yaml run.dir=t6 parallel.tensor=4 model.heads=4
train 1 out job.yaml run.dir=t7 model.heads=4

# name, run folder, run folder: loss and norm of the first step are equal to 1e-7, those of 12 steps to 1e-5, in parts.
expect_close() {
  if paste -d' ' "$2/metrics.jsonl" "$3/metrics.jsonl" | awk '
    function number(line, key,   from) {
      from = index(line, "\"" key "\":")
      return from == 0 ? "none" : substr(line, from + length(key) + 3) + 0
    }
    function far(a, b, bound) { return a == "none" || b == "none" || (a > b ? a - b : b - a) > bound * b }
    /"step"/ {
      half = index($0, "} {")
      a = substr($0, 1, half); b = substr($0, half + 2)
      if (index(a, "\"loss\"") == 0) next
      bound = ++n == 1 ? 1e-7 : 1e-5
      if (far(number(a, "loss"), number(b, "loss"), bound) || far(number(a, "grad_norm"), number(b, "grad_norm"), bound)) { print; bad = 1 }
    }
    END { exit bad || n != 12 }'; then ok "$1"; else bad "$1" "steps differ, or there are not 12"; fi
}
expect_close tensor_2_is_close t1 r1
expect_close tensor_4_is_close t6 t7

# Sum groups are part of the definition: other bits, but again the same for all layouts, ranks without work included.
train 1 out job.yaml run.dir=g1 train.sum_group=2
grouped=$(digest_of out)
if [ -n "$grouped" ] && [ "$grouped" != "$wanted" ]; then ok groups_define_the_run; else bad groups_define_the_run "digest '$grouped'"; fi
expect_digest groups_halves 2 "$grouped" job.yaml run.dir=g6 train.sum_group=2 parallel.pipeline=2 parallel.schedule=zb-h1 \
  parallel.bucket_mib=8
for n in 2 4 5; do expect_digest "groups_ranks_$n" $n "$grouped" job.yaml run.dir=g$n train.sum_group=2; done

train 1 out job.yaml run.dir=b1 train.precision=bf16
rounded=$(digest_of out)
expect_digest bf16_zero_3 3 "$rounded" job.yaml run.dir=b5 train.precision=bf16 parallel.zero=1
expect_digest bf16_zero_2_halves_2 4 "$rounded" job.yaml run.dir=b6 train.precision=bf16 parallel.zero=1 parallel.pipeline=2 \
  parallel.schedule=zb-h1
expect_digest bf16_zero3_stages_2 6 "$rounded" job.yaml run.dir=b7 train.precision=bf16 parallel.zero=3 parallel.pipeline=2
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
