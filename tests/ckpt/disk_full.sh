#!/bin/sh
#
# Saving on a file system of 1 MiB that is full (a tmpfs in a mount namespace of its own, which ends
# with this script). Where none can be mounted this is skipped; disk_full_test tests the same by a
# limit on file sizes.
test=$TRI_BUILDDIR/tests/ckpt/disk_full_test
small=$TRI_SCRATCH/small
mkdir "$small" || exit 1
for how in "-m" "-rm"; do
  unshare $how mount -t tmpfs -o size=1m tmpfs "$small" 2> /dev/null || continue
  for n in 1 2; do
    echo "== ($n ranks)"
    unshare $how sh -c 'mount -t tmpfs -o size=1m tmpfs "$1" && exec mpirun -n "$2" "$3" "$1"' \
      sh "$small" $n "$test" || exit 1
  done
  exit 0
done
echo "no small file system can be mounted here: skipped"
exit 77
