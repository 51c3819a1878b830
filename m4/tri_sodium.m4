# TRI_DEP_SODIUM: BLAKE2b digests.
AC_DEFUN([TRI_DEP_SODIUM], [
  TRI_LIBRARY([SODIUM], [sodium], [libsodium], [#include <sodium.h>],
    [return sodium_init();], [-lsodium], [libsodium, for digests])
])
