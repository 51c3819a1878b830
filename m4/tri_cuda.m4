# TRI_OPT_CUDA: the GPU backend, --with-cuda[=DIR], and the toolkit that the tests of its kernels use.
#
# With --with-cuda the program has device cuda: TRI_HAVE_CUDA is defined, nvcc builds kernels/, the CUDA runtime, cuBLASLt,
# cuFFT and NCCL are linked (never libcuda, the driver's own library, so the program starts on machines without one).
#
# The CUDA kernels are tested with or without it, on an emulation that needs a toolkit's headers and its nvcc: TRI_CUDA_DIR
# is the toolkit that was found, empty when there is none, and then those tests say that they are skipped. They build what
# they test themselves, in each of its variants, so a build with sanitizers does not repeat them.

# TRI_CUDA_FIND(VARIABLE, option, value): the toolkit's folder, "" when value is auto and there is none.
AC_DEFUN([TRI_CUDA_FIND], [
  $1=
  AS_CASE([$3],
    [no], [],
    [auto | yes], [tri_nvcc=$(command -v nvcc) && $1=$(dirname "$(dirname "$(readlink -f "$tri_nvcc")")")],
    [$1=$3])
  AS_IF([test -n "$$1" && test ! -f "$$1/include/cuda_runtime.h"],
    [AS_IF([test "$3" = auto], [$1=],
      [AC_MSG_ERROR([$2: there is no include/cuda_runtime.h in $$1])])])
  AS_IF([test -z "$$1" && test "$3" = yes],
    [AC_MSG_ERROR([$2: no nvcc on PATH; give the toolkit's folder, $2=DIR])])
])

# Machine code for every architecture from sm_70 up that the nvcc knows (or those of --with-cuda-arch), one front-end run for
# each family, and PTX of the newest for what comes later.
AC_DEFUN([TRI_CUDA_ARCHITECTURES], [
  AC_MSG_CHECKING([for the architectures that kernels are built for])
  AS_IF([test "$with_cuda_arch" = all],
    [tri_architectures=$("$TRI_NVCC" --list-gpu-code 2>/dev/null | sed -n 's/^sm_\([[0-9]]*\)$/\1/p' | sort -n | uniq)],
    [tri_architectures=$(echo "$with_cuda_arch" | tr ', ' '\n\n' | sed 's/^sm_//' | sort -n | uniq)])
  TRI_NVCC_ARCH=
  tri_newest=
  tri_family=
  tri_family_first=
  for tri_architecture in $tri_architectures; do
    AS_CASE([$tri_architecture], [*[[!0-9]]*],
      [AC_MSG_ERROR([--with-cuda-arch: '$tri_architecture' is no architecture; give numbers as in --with-cuda-arch="80 90"])])
    AS_IF([test "$tri_architecture" -lt 70], [continue])
    AS_IF([test "$tri_architecture" -ge 80 && test "$((tri_architecture / 10))" = "$tri_family"], [],
      [tri_family_first=$tri_architecture])
    tri_family=$((tri_architecture / 10))
    TRI_NVCC_ARCH="$TRI_NVCC_ARCH -gencode arch=compute_$tri_family_first,code=sm_$tri_architecture"
    tri_newest=$tri_architecture
  done
  AS_IF([test -z "$tri_newest"],
    [AC_MSG_ERROR([--with-cuda-arch: none of '$with_cuda_arch' is sm_70 or newer, or nvcc tells none])])
  TRI_NVCC_ARCH="$TRI_NVCC_ARCH -gencode arch=compute_$tri_newest,code=compute_$tri_newest"
  AC_MSG_RESULT([$(echo $tri_architectures)])
  AC_SUBST([TRI_NVCC_ARCH])
])

AC_DEFUN([TRI_OPT_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
    [build the GPU backend with the CUDA toolkit (12 or 13) in DIR; default DIR: that of the nvcc on PATH])],
    [], [with_cuda=no])
  AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST],
    [architectures to build kernels for, as in "80 90"; default: all that the nvcc knows from sm_70 up])],
    [], [with_cuda_arch=all])
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=DIR], [NCCL, when it is not in the toolkit's folder])], [], [with_nccl=])
  AC_ARG_WITH([cuda-tests], [AS_HELP_STRING([--with-cuda-tests@<:@=DIR@:>@],
    [test the CUDA kernels on their emulation with the toolkit in DIR; default: that of --with-cuda, or of the nvcc on PATH, if any])],
    [], [with_cuda_tests=auto])

  AC_MSG_CHECKING([for a CUDA toolkit])
  TRI_CUDA_FIND([tri_cuda], [--with-cuda], [$with_cuda])
  AC_MSG_RESULT([${tri_cuda:-not asked for}])
  AC_ARG_VAR([NVCC], [the CUDA compiler])
  TRI_NVCC=${NVCC:-$tri_cuda/bin/nvcc}
  CUDA_CFLAGS=
  CUDA_LIBS=
  AS_IF([test -n "$tri_cuda"], [
    AS_IF([test ! -x "$TRI_NVCC"], [AC_MSG_ERROR([--with-cuda: there is no bin/nvcc in $tri_cuda; name it by NVCC=…])])
    tri_nccl=${with_nccl:-$tri_cuda}
    CUDA_CFLAGS="-isystem $tri_cuda/include"
    AS_IF([test "$tri_nccl" != "$tri_cuda"], [CUDA_CFLAGS="$CUDA_CFLAGS -isystem $tri_nccl/include"])
    for tri_folder in "$tri_nccl/lib" "$tri_cuda/lib64"; do
      AS_IF([test -d "$tri_folder"], [CUDA_LIBS="$CUDA_LIBS -L$tri_folder -Wl,-rpath,$tri_folder"])
    done
    CUDA_LIBS="$CUDA_LIBS -lcublasLt -lcufft -lnccl -lcudart -lstdc++"
    AC_MSG_CHECKING([for the CUDA runtime, cuBLASLt, cuFFT and NCCL])
    tri_saved_CFLAGS=$CFLAGS
    tri_saved_LIBS=$LIBS
    CFLAGS="$CFLAGS $CUDA_CFLAGS"
    LIBS="$CUDA_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cufft.h>
#include <nccl.h>
#if CUDART_VERSION < 12000
#error CUDA 12 or newer is wanted
#endif]],
      [[int n; cublasLtHandle_t l; cufftHandle f; ncclUniqueId u;
        return cudaGetDeviceCount(&n) + (int)cublasLtCreate(&l) + (int)cufftCreate(&f) + (int)ncclGetUniqueId(&u);]])],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([--with-cuda: a program with the CUDA runtime, cuBLASLt, cuFFT and NCCL does not link with $tri_cuda (CUDA 12 or newer is wanted); name NCCL's folder by --with-nccl=DIR, see config.log])])
    CFLAGS=$tri_saved_CFLAGS
    LIBS=$tri_saved_LIBS
    AC_DEFINE([TRI_HAVE_CUDA], [1], [the GPU backend is compiled in])
    TRI_CFLAGS="$TRI_CFLAGS $CUDA_CFLAGS"
    TRI_CUDA_ARCHITECTURES
  ])
  AC_SUBST([TRI_NVCC])
  AC_SUBST([CUDA_LIBS])
  AM_CONDITIONAL([TRI_CUDA], [test -n "$tri_cuda"])

  AC_MSG_CHECKING([for a CUDA toolkit to test the kernels with])
  AS_IF([test "$with_cuda_tests" = auto && test -n "$tri_cuda"], [with_cuda_tests=$tri_cuda])
  TRI_CUDA_FIND([TRI_CUDA_DIR], [--with-cuda-tests], [$with_cuda_tests])
  AS_IF([test "$enable_sanitizers" = yes], [TRI_CUDA_DIR=])
  AC_MSG_RESULT([${TRI_CUDA_DIR:-no}])
  AC_SUBST([TRI_CUDA_DIR])
])
