# For the test scripts of this folder: builds the emulation and a program of C++ and CUDA files on it.
#
# TRI_CUDA_DIR is the toolkit whose headers are used; where it is not set nothing is tested.
: "${TRI_SRCDIR:?}" "${TRI_SCRATCH:?}"
[ -n "$TRI_CUDA_DIR" ] || { echo "skipped: TRI_CUDA_DIR is not set"; exit 77; }
emulation_include="-I$TRI_SRCDIR/include -I$TRI_SRCDIR/tests -I$TRI_SRCDIR/kernels -isystem $TRI_CUDA_DIR/include"
emulation_flags="-std=c++17 -g -Wno-unknown-pragmas -fno-strict-aliasing -ffp-contract=off $emulation_include"

# The emulation's files, emulation_PART.cpp.
emulation_parts="barrier fibers grid order shared tensor warp"

# Objects and libraries to link besides.
emulation_link=

# build_emulated PROGRAM COMPILER "FLAGS OF THE EMULATION" "FLAGS OF THE REST AND THE LINK" SOURCE …
build_emulated() {
  program=$1 compiler=$2 own_flags=$3 rest_flags=$4
  shift 4
  objects=
  # The flags are lists of words.
  # shellcheck disable=SC2086
  for part in $emulation_parts; do
    object=$program.$part.o
    "$compiler" $emulation_flags $own_flags -c "$TRI_SRCDIR/tests/cuda/emulation_$part.cpp" \
      -o "$object" || return 1
    objects="$objects $object"
  done
  # shellcheck disable=SC2086
  for source; do
    object=$program.$(basename "$source").o
    "$compiler" $emulation_flags $rest_flags -x c++ -c "$TRI_SRCDIR/$source" -o "$object" ||
      return 1
    objects="$objects $object"
  done
  # shellcheck disable=SC2086
  "$compiler" $rest_flags $objects $emulation_link -o "$program"
}
