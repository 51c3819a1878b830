#!/bin/sh
# Deliberate faults in the GPU backend, and the test that catches each: mutations.sh BUILD [NAME …]
#
# By hand, since it builds much: BUILD is a tree configured --with-cuda. The sources are copied, the copy is built, and for
# each fault one line is changed, what depends on it is built again, and the test named beside it must fail.
src=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd) || { echo "usage: mutations.sh BUILD [NAME …]"; exit 2; }
shift
wanted=" $* "
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-mutations.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
mkdir "$work/src" "$work/build"
tar -C "$src" --exclude=./.git --exclude=./build -cf - . | tar -C "$work/src" -xf - || exit 2
cd "$work/build" || exit 2
if ! { eval "\"$work/src/configure\" $("$build/config.status" --config)" &&
  make -j"$(nproc)" libtrireme_kernels.a tests/cuda/backend_test tests/cuda/trireme_on_doubles; } >"$work/log" 2>&1; then
  tail -n 20 "$work/log"
  exit 2
fi
export TRI_SRCDIR="$work/src" TRI_BUILDDIR="$work/build"
TRI_CUDA_DIR=$(sed -n 's/^TRI_CUDA_DIR = //p' Makefile)
export TRI_CUDA_DIR
failed=0

# name, file, what sed does to it, programs to build, test, further environment
mutation() {
  name=$1 file=$2 edit=$3 programs=$4 test=$5
  shift 5
  case $wanted in "  " | *" $name "*) ;; *) return ;; esac
  cp "$work/src/$file" "$work/kept"
  sed -i "$edit" "$work/src/$file"
  if cmp -s "$work/kept" "$work/src/$file"; then
    echo "not ok $name: the edit of $file changes nothing"
    failed=1
    return
  fi
  # shellcheck disable=SC2086
  if [ -n "$programs" ] && ! make -j"$(nproc)" $programs >"$work/log" 2>&1; then
    # Refused by the emulation's own check, or a mistake in this script.
    refusal=$(grep -m 1 'static assertion failed' "$work/log" | sed 's/.*static assertion failed: //')
    if [ -n "$refusal" ]; then echo "ok $name: does not compile: $refusal"; else
      echo "not ok $name: does not build"
      tail -n 5 "$work/log"
      failed=1
    fi
  elif env "$@" sh "$work/src/tests/run-test" "$test" >"$work/log" 2>&1; then
    echo "not ok $name: $test did not see it"
    failed=1
  else
    evidence=$(grep -m 1 -E '^not ok|CUDA double|NCCL double|emulation:|data race|Sanitizer: ' "$work/log" | cut -c1-200)
    if [ -n "$evidence" ]; then echo "ok $name: $test: $evidence"; else
      echo "not ok $name: $test failed without a word of it:"
      tail -n 5 "$work/log"
      failed=1
    fi
  fi
  cp "$work/kept" "$work/src/$file"
  touch "$work/src/$file"
}
train="$work/src/tests/cuda/train.sh"
program=tests/cuda/trireme_on_doubles
backend=tests/cuda/backend_test

# The second one of the file.
mutation dropped_barrier kernels/product.cu '/__syncthreads/ { x; s/^/x/; /^xx$/ { x; s/.*//; b; }; x; }' \
  "" "$work/src/tests/cuda/launchers_threads.sh"
mutation wrong_fragment_index kernels/attention_mma.cuh 's/rows + 16 \* m \* DP + (lane_piece<DP>() ^ 16 \* k)/rows + 16 * m * DP + (lane_piece<DP>() ^ 8 * k)/' \
  "$backend" "$backend"
mutation missing_event_wait src/job/train_batch.c '/tri_event_wait(slot->copied, train->stream)/d' "$program" "$train"
mutation off_by_one_guard kernels/linear.cu 's/if (c >= OC) return;/if (c > OC) return;/' "$backend" "$backend"
mutation host_pointer src/job/train_step.c 's/NULL : slot->tokens/NULL : slot->host_tokens/' "$program" "$train"
mutation unguarded_tail kernels/element.cuh 's/if (i + W <= n) {/if (i < n) {/' "$backend" "$backend"
mutation float_atomic kernels/product.cu 's/out\[row \* columns + column\] = from_float<R>(before + (sum\[r\] + shift));/atomicAdd((float *)out + row * columns + column, sum[r]);/' \
  "$backend" "$backend"
mutation leaked_buffer src/device/cuda/operations.c '/cuda_free(stream->device, stream_of(stream)->launch.workspace);/d' "$backend" "$backend"
mutation wrong_leading_dimension src/device/cuda/linear.c 's/cublasLtMatrixLayoutCreate(&p->a, in, IC, a_columns, s->IC)/cublasLtMatrixLayoutCreate(\&p->a, in, IC, a_columns, s->IC + 8)/' \
  "$backend" "$backend"
mutation wrong_communicator src/comm/nccl.c 's/ncclCommSplit(parent->nccl, color,/ncclCommSplit(parent->nccl, 0,/' \
  tests/cuda/transport_test "$work/src/tests/cuda/transport.sh"
exit $failed
