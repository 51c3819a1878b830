#!/bin/sh
# timeout: 900
# Builds launchers_test.c, the kernels and the emulation of CUDA into one program, and runs it.
. "$TRI_SRCDIR/tests/cuda/emulation_build.sh"
compiler=${CXX:-g++}

# What a test program of this build links.
cat > "$TRI_SCRATCH/link.mk" <<'END'
include Makefile
print-link:
	@echo $(LDADD) $(LIBS)
END
cd "$TRI_BUILDDIR" || exit 1
link=$(MAKEFLAGS='' make -s -f "$TRI_SCRATCH/link.mk" print-link | tail -n 1) || exit 1

objects=
for source in cuda/launchers_test device/kernel_arrays device/kernel_cases device/kernel_cases_norm \
  device/kernel_cases_matrix; do
  object=$TRI_SCRATCH/$(basename $source).o
  mpicc -std=gnu11 -fopenmp -O2 -Wall -Wextra -Werror -I"$TRI_SRCDIR" -I"$TRI_SRCDIR/include" \
    -I"$TRI_SRCDIR/src" -I"$TRI_SRCDIR/tests" -isystem "$TRI_CUDA_DIR/include" \
    -c "$TRI_SRCDIR/tests/$source.c" -o "$object" || exit 1
  objects="$objects $object"
done
emulation_link="$objects -fopenmp $link"
# shellcheck disable=SC2046
build_emulated "$TRI_SCRATCH/launchers" "$compiler" "-O2" "-O2 -Wall -Wextra -Werror" \
  tests/cuda/launchers_direct.cpp $(cd "$TRI_SRCDIR" && echo kernels/*.cu) || exit 1
"$TRI_SCRATCH/launchers"
