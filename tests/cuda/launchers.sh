#!/bin/sh
# timeout: 900
# Builds launchers_test.c, the kernels and the emulation of CUDA into one program, and runs it: plainly, in several orders of
# threads; for launchers_address.sh and launchers_threads.sh under a sanitizer, in one order.
. "$TRI_SRCDIR/tests/cuda/emulation_build.sh"
case ${launchers_variant:-plain} in
plain) compiler=${CXX:-g++} own="-O2" rest="-O2 -Wall -Wextra -Werror" orders=several fixed= ;;
address)
  compiler=${CXX:-g++} own="-O1 -fsanitize=address" orders=one fixed=
  rest="-O1 -fsanitize=address,alignment,bounds,shift -fno-sanitize-recover=alignment,bounds,shift"
  ;;
threads)
  compiler=$(command -v clang++-14 || command -v clang++) || { echo "skipped: no clang++"; exit 77; }
  own="-O2 -DTRI_EMU_TSAN" rest="-O1 -Wno-pass-failed -fsanitize=thread" orders=one fixed=
  # Fixed addresses, where it can be asked for: ThreadSanitizer of clang 14 knows fewer than a kernel gives.
  setarch "$(uname -m)" -R true 2>/dev/null && fixed="setarch $(uname -m) -R"
  ;;
esac

# What a test program of this build links.
cat > "$TRI_SCRATCH/link.mk" <<'END'
include Makefile
print-link:
	@echo $(LDADD) $(LIBS)
END
cd "$TRI_BUILDDIR" || exit 1
link=$(MAKEFLAGS='' make -s -f "$TRI_SCRATCH/link.mk" print-link | tail -n 1) || exit 1

objects=
for source in cuda/launchers_test device/kernel_arrays device/kernel_cases device/kernel_cases_classifier \
  device/kernel_cases_embedding device/kernel_cases_norm device/kernel_cases_matrix; do
  object=$TRI_SCRATCH/$(basename $source).o
  mpicc -std=gnu11 -fopenmp -O2 -Wall -Wextra -Werror -I"$TRI_SRCDIR" -I"$TRI_SRCDIR/include" \
    -I"$TRI_SRCDIR/src" -I"$TRI_SRCDIR/tests" -isystem "$TRI_CUDA_DIR/include" \
    -c "$TRI_SRCDIR/tests/$source.c" -o "$object" || exit 1
  objects="$objects $object"
done
emulation_link="$objects $link -lgomp"
# shellcheck disable=SC2046
build_emulated "$TRI_SCRATCH/launchers" "$compiler" "$own" "$rest" \
  tests/cuda/launchers_direct.cpp $(cd "$TRI_SRCDIR" && echo kernels/*.cu) || exit 1
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=exitcode=66:halt_on_error=1
# shellcheck disable=SC2086
$fixed "$TRI_SCRATCH/launchers" $orders
