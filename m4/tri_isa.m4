# TRI_ISA: on x86-64 the tuned kernels are compiled once per instruction set and chosen when the program starts.
AC_DEFUN([TRI_ISA], [
  AC_MSG_CHECKING([for x86-64])
  AS_CASE([$host_cpu], [x86_64], [tri_x86=yes], [tri_x86=no])
  AC_MSG_RESULT([$tri_x86])
  TRI_BASELINE_CFLAGS=
  AS_IF([test $tri_x86 = yes],
    [TRI_BASELINE_CFLAGS="-march=x86-64-v2 -mtune=generic"
     AC_DEFINE([TRI_HAVE_X86], [1], [x86-64 instruction sets are compiled in])])
  AC_SUBST([TRI_BASELINE_CFLAGS])
  AM_CONDITIONAL([TRI_X86], [test $tri_x86 = yes])
])
