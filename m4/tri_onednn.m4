# TRI_DEP_ONEDNN: matrix products on CPU. Versions 2 and 3 differ in their C interface; src/device/cpu/onednn.c knows
# which it is.
AC_DEFUN([TRI_DEP_ONEDNN], [
  TRI_LIBRARY([ONEDNN], [onednn], [dnnl], [#include <oneapi/dnnl/dnnl.h>],
    [return dnnl_version() == 0;], [-ldnnl], [oneDNN 2.6 or later, for matrix products on CPU])
])
