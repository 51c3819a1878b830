# For the test scripts of this folder: builds the doubles, the emulation and a program of C and CUDA files on them.
#
# TRI_CUDA_DIR is the toolkit whose headers are used; where it is not set nothing is tested.
: "${TRI_SRCDIR:?}" "${TRI_SCRATCH:?}"
[ -n "$TRI_CUDA_DIR" ] || { echo "skipped: TRI_CUDA_DIR is not set"; exit 77; }

# build_on_doubles PROGRAM "FLAGS" SOURCE …
build_on_doubles() {
  program=$1 flags=$2
  shift 2
  includes="-I$TRI_SRCDIR/include -I$TRI_SRCDIR/tests -I$TRI_SRCDIR/tests/cuda -I$TRI_SRCDIR/kernels \
    -isystem $TRI_CUDA_DIR/include"
  c_flags="-std=gnu11 -g $flags $includes"
  cxx_flags="-std=c++17 -g $flags -Wno-unknown-pragmas -fno-strict-aliasing -ffp-contract=off $includes"
  objects=
  for source in tests/cuda/double_*.c tests/cuda/double_*.cpp tests/cuda/emulation_[bfgostw]*.cpp "$@"; do
    for file in "$TRI_SRCDIR"/$source; do
      case $file in */emulation_test.cpp) continue ;; esac
      object=$program.$(basename "$file").o
      # The flags are lists of words.
      # shellcheck disable=SC2086
      case $file in
      *.c) "${CC:-mpicc}" $c_flags -c "$file" -o "$object" || return 1 ;;
      *) "${CXX:-g++}" $cxx_flags -x c++ -c "$file" -o "$object" || return 1 ;;
      esac
      objects="$objects $object"
    done
  done
  # shellcheck disable=SC2086
  "${CC:-mpicc}" $flags $objects -o "$program" -lfftw3 -lfftw3f -lstdc++ -lm -lpthread
}
