#!/bin/sh
# timeout: 1200
#
# What nvcc made of the kernels, for sm_80 and sm_90: registers of each kernel, no spills and no
# local memory in any (an index that the compiler does not know, or too many registers, costs more
# than all else), tensor-core instructions in those whose names contain "mma", of which
# attention_mma*.cu have some.
nvcc=${NVCC:-$TRI_CUDA_DIR/bin/nvcc}
[ -n "$TRI_CUDA_DIR" ] || { echo "skipped: TRI_CUDA_DIR is not set"; exit 77; }
${CC:-cc} -std=c11 -O1 -o "$TRI_SCRATCH/sass_count" "$TRI_SRCDIR/tests/cuda/sass_count.c" || exit 1

failed=0
for arch in 80 90; do
  for source in "$TRI_SRCDIR"/kernels/*.cu; do
    name=$(basename "$source" .cu)
    out=$TRI_SCRATCH/$name.$arch
    "$nvcc" -std=c++17 -arch=sm_$arch -cubin -Xptxas -v -I"$TRI_SRCDIR/include" \
      -o "$out.cubin" "$source" > "$out.log" 2>&1 || { cat "$out.log"; exit 1; }
    "$TRI_SCRATCH/sass_count" "$out.cubin" > "$out.counts" || exit 1
    # The log names a kernel in "Function properties for", then its frame and spills, then its
    # registers. The name in a mangled name: _Z, perhaps L, its length, itself.
    awk -v arch=$arch '
      function plain(mangled,   digits, rest) {
        rest = mangled
        sub(/^_ZL?/, "", rest)
        digits = rest
        sub(/[^0-9].*/, "", digits)
        return digits == "" ? mangled : substr(rest, length(digits) + 1, digits)
      }
      FILENAME ~ /counts$/ { hmma[$1] = $3; ldsm[$1] = $4; local[$1] = $5 + $6; size[$1] = $2; next }
      /Function properties for/ { kernel = $NF }
      /bytes stack frame/ {
        for (i = 2; i <= NF; i++) {
          if ($i == "bytes" && $(i + 1) == "stack") frame[kernel] = $(i - 1)
          if ($i == "bytes" && $(i + 1) == "spill") spills[kernel] += $(i - 1)
        }
      }
      /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); registers[kernel] = substr($0, RSTART + 5, RLENGTH - 5) }
      END {
        bad = 0
        for (k in size) {
          if (!(k in registers)) { print "not ok " k ": ptxas reported no registers"; bad = 1; continue }
          name = plain(k)
          printf "sm_%d %3d registers %5d instructions %4d hmma %4d ldsm  %s\n", arch, registers[k], size[k],
                 hmma[k], ldsm[k], k
          if (frame[k] + spills[k] + local[k] > 0) {
            printf "not ok %s: %d bytes of frame, %d of spills, %d local accesses\n", k, frame[k], spills[k], local[k]
            bad = 1
          }
          if (name ~ /mma/ && hmma[k] == 0) { print "not ok " k ": no tensor-core instruction"; bad = 1 }
        }
        exit bad
      }' "$out.counts" "$out.log" > "$out.table" || failed=1
    sort -k8 "$out.table"
    case $name in attention_mma*)
      grep -q mma "$out.table" || { echo "not ok $name.cu for sm_$arch: no kernel is named mma"; failed=1; } ;;
    esac
  done
done
[ $failed -eq 0 ] && echo "ok nvcc report"
exit $failed
