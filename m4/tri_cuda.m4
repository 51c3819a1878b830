# TRI_OPT_CUDA: the GPU backend. Not in this version: asking for it is an error, not a silent no.
#
# The CUDA kernels are tested without it, on an emulation that needs a toolkit's headers and its
# nvcc: TRI_CUDA_DIR is the toolkit that was found, empty when there is none, and then those tests
# say that they are skipped. They build what they test themselves, in each of its variants, so a
# build with sanitizers does not repeat them.
AC_DEFUN([TRI_OPT_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [build the GPU backend with the CUDA toolkit in DIR])],
    [], [with_cuda=no])
  AS_IF([test "$with_cuda" != no],
    [AC_MSG_ERROR([--with-cuda: the GPU backend is not part of this version; build without the option])])

  AC_ARG_WITH([cuda-tests], [AS_HELP_STRING([--with-cuda-tests@<:@=DIR@:>@],
    [test the CUDA kernels on their emulation with the toolkit in DIR; default: that of the nvcc on PATH, if any])],
    [], [with_cuda_tests=auto])
  AC_MSG_CHECKING([for a CUDA toolkit to test the kernels with])
  TRI_CUDA_DIR=
  AS_CASE([$with_cuda_tests],
    [no], [],
    [auto | yes], [tri_nvcc=$(command -v nvcc) && TRI_CUDA_DIR=$(dirname "$(dirname "$(readlink -f "$tri_nvcc")")")],
    [TRI_CUDA_DIR=$with_cuda_tests])
  AS_IF([test -n "$TRI_CUDA_DIR" && test ! -f "$TRI_CUDA_DIR/include/cuda_runtime.h"],
    [AS_IF([test "$with_cuda_tests" = auto], [TRI_CUDA_DIR=],
      [AC_MSG_ERROR([--with-cuda-tests: there is no include/cuda_runtime.h in $TRI_CUDA_DIR])])])
  AS_IF([test -z "$TRI_CUDA_DIR" && test "$with_cuda_tests" = yes],
    [AC_MSG_ERROR([--with-cuda-tests: no nvcc on PATH; give the toolkit's folder, --with-cuda-tests=DIR])])
  AS_IF([test "$enable_sanitizers" = yes], [TRI_CUDA_DIR=])
  AC_MSG_RESULT([${TRI_CUDA_DIR:-no}])
  AC_SUBST([TRI_CUDA_DIR])
])
