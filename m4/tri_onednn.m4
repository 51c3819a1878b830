# TRI_DEP_ONEDNN: matrix products with cpu.kernels=onednn, through the interface of version 2 (dnnl_matmul_desc_init, which
# version 3 has not).
AC_DEFUN([TRI_DEP_ONEDNN], [
  TRI_LIBRARY([ONEDNN], [onednn], [dnnl], [#include <oneapi/dnnl/dnnl.h>],
    [dnnl_matmul_desc_t d; return dnnl_matmul_desc_init(&d, 0, 0, 0, 0) == dnnl_success;], [-ldnnl],
    [oneDNN 2.6 or later 2.x, whose matrix products cpu.kernels=onednn takes])
])
