#!/bin/sh
# timeout: 900
# Every kernel at every size of launchers.sh, looked at for overruns to the byte and misaligned vectors, by AddressSanitizer and UndefinedBehaviorSanitizer.
launchers_variant=address
. "$TRI_SRCDIR/tests/cuda/launchers.sh"
