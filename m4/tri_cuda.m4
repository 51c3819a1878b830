# TRI_OPT_CUDA: the GPU backend. Not in this version: asking for it is an error, not a silent no.
AC_DEFUN([TRI_OPT_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [build the GPU backend with the CUDA toolkit in DIR])],
    [], [with_cuda=no])
  AS_IF([test "$with_cuda" != no],
    [AC_MSG_ERROR([--with-cuda: the GPU backend is not part of this version; build without the option])])
])
