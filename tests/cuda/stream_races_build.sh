# For the test scripts of this folder: builds a program in which ThreadSanitizer sees every stream of the doubles as a thread
# of its own. To be started by $fixed.
[ -f "$TRI_BUILDDIR/tests/cuda/libdoubles.a" ] || { echo "skipped: built without --with-cuda"; exit 77; }
. "$TRI_SRCDIR/tests/cuda/emulation_build.sh"
clang=$(command -v clang-14 || command -v clang) || { echo "skipped: no clang"; exit 77; }
clangxx=$(command -v clang++-14 || command -v clang++) || { echo "skipped: no clang++"; exit 77; }

# What touches arrays is instrumented: the test, the doubles of copies and products, the kernels in use. The bookkeeping of
# queues and threads is not, but tells of its order. All else comes from the libraries.
cat > "$TRI_SCRATCH/link.mk" <<'END'
include Makefile
print-link:
	@echo $(tests_cuda_ldadd) $(LIBS)
END
cd "$TRI_BUILDDIR" || exit 1
link=$(MAKEFLAGS='' make -s -f "$TRI_SCRATCH/link.mk" print-link | tail -n 1) || exit 1
objects=
# The flags are lists of words.
# shellcheck disable=SC2086
compile() { # source, compiler, flags …
  file=$TRI_SRCDIR/$1
  object=$TRI_SCRATCH/$(basename "$1").o
  compiler=$2
  shift 2
  "$compiler" "$@" $emulation_include -I"$TRI_SRCDIR/tests/cuda" -g -c "$file" -o "$object" || exit 1
  objects="$objects $object"
}
# build_with_logical_streams PROGRAM SOURCE: the source with what touches arrays.
build_with_logical_streams() {
  for part in $emulation_parts; do
    compile "tests/cuda/emulation_$part.cpp" "$clangxx" -std=c++17 -O2 -fno-strict-aliasing -DTRI_EMU_TSAN
  done
  for file in "$TRI_SRCDIR"/tests/cuda/double_*.c; do
    case $file in
    *double_copy.c | *double_nccl_exchange.c | *double_cublas.c | *double_cufft.c) how=-fsanitize=thread ;;
    *) how=-DDOUBLE_TSAN=1 ;;
    esac
    OMPI_CC=$clang compile "tests/cuda/$(basename "$file")" mpicc -std=gnu11 -O1 -Wall -Wextra -Werror $how
  done
  compile tests/cuda/double_launch.cpp "$clangxx" -std=c++17 -O1 -DDOUBLE_TSAN=1 -Wno-unknown-pragmas
  compile kernels/elementwise.cu "$clangxx" -std=c++17 -O1 -fsanitize=thread -Wno-unknown-pragmas -fno-strict-aliasing \
    -ffp-contract=off -x c++
  OMPI_CC=$clang compile "$2" mpicc -std=gnu11 -O1 -fsanitize=thread -DTEST_QUICK -I"$TRI_SRCDIR/src"
  # shellcheck disable=SC2086
  OMPI_CC=$clang mpicc -fsanitize=thread $objects $link -lgomp -o "$1"
}

# Fixed addresses, where it can be asked for: ThreadSanitizer of clang 14 knows fewer than a kernel gives.
fixed=
setarch "$(uname -m)" -R true 2>/dev/null && fixed="setarch $(uname -m) -R"
