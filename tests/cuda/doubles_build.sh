# For the test scripts of this folder: builds the doubles, the emulation and a program of C and CUDA files on them.
. "$TRI_SRCDIR/tests/cuda/emulation_build.sh"

# build_on_doubles PROGRAM "FLAGS" SOURCE …
build_on_doubles() {
  program=$1 flags=$2
  shift 2
  doubles_include="-I$TRI_SRCDIR/tests/cuda"
  c_flags="-std=gnu11 -g $flags $doubles_include $emulation_include"
  objects=
  for part in $emulation_parts; do
    set -- "tests/cuda/emulation_$part.cpp" "$@"
  done
  for file in "$TRI_SRCDIR"/tests/cuda/double_*.c "$TRI_SRCDIR"/tests/cuda/double_*.cpp; do
    set -- "${file#"$TRI_SRCDIR"/}" "$@"
  done
  for source; do
    file=$TRI_SRCDIR/$source
    object=$program.$(basename "$file").o
    # The flags are lists of words.
    # shellcheck disable=SC2086
    case $file in
    *.c) "${CC:-mpicc}" $c_flags -c "$file" -o "$object" || return 1 ;;
    *) "${CXX:-g++}" $emulation_flags $flags $doubles_include -x c++ -c "$file" -o "$object" || return 1 ;;
    esac
    objects="$objects $object"
  done
  # shellcheck disable=SC2086
  "${CC:-mpicc}" $flags $objects -o "$program" -lfftw3 -lfftw3f -lstdc++ -lm -lpthread
}
