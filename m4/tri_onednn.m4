# TRI_DEP_ONEDNN: no kernel calls it (docs/dependencies.md says why); `trireme --version` names its version, by a call that
# versions 2 and 3 have in common.
AC_DEFUN([TRI_DEP_ONEDNN], [
  TRI_LIBRARY([ONEDNN], [onednn], [dnnl], [#include <oneapi/dnnl/dnnl.h>],
    [return dnnl_version() == 0;], [-ldnnl], [oneDNN 2.6 or later, whose version trireme --version names])
])
