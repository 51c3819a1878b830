# TRI_DEP_MPI: an MPI-3 library, used through the compiler wrapper in CC (mpicc unless CC is given).
AC_DEFUN([TRI_DEP_MPI], [
  AC_MSG_CHECKING([for MPI-3])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#if MPI_VERSION < 3
#error MPI 3 or later is needed
#endif]], [[MPI_Request r; MPI_Init(0, 0); MPI_Ibarrier(MPI_COMM_WORLD, &r);]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([an MPI-3 program cannot be linked with CC=$CC: install Open MPI (openmpi-bin, libopenmpi-dev) or give CC=/path/to/mpicc])])
])
