#!/bin/sh
# timeout: 900
# Every kernel at every size of launchers.sh, looked at for data races, by ThreadSanitizer, to which every CUDA thread is a thread of its own.
launchers_variant=threads
. "$TRI_SRCDIR/tests/cuda/launchers.sh"
