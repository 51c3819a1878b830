# TRI_DEP_FFTW: Fourier transforms on CPU, in both precisions. Only FFTW's basic interface is used, so that FFTW_CFLAGS and
# FFTW_LIBS may name another library that has it. Used when found; one that was named and is not there is an error. A build
# without it, by --without-fftw or because there was none, says so in configure's summary, and planning a transform on cpu is
# an error that names the option.
AC_DEFUN([TRI_DEP_FFTW], [
  tri_fftw=yes
  AS_IF([test "x$with_fftw" = xno], [tri_fftw=no],
    [TRI_LIBRARY([FFTW], [fftw], ["fftw3 fftw3f"], [#include <fftw3.h>],
      [fftw_complex z[2]; double x[2];
       fftwf_complex zf[2]; float xf[2];
       fftw_plan p = fftw_plan_dft_r2c_1d(2, x, z, FFTW_ESTIMATE);
       fftwf_plan pf = fftwf_plan_dft_r2c_1d(2, xf, zf, FFTW_ESTIMATE);
       fftw_execute_dft_r2c(p, x, z);
       fftwf_execute_dft_r2c(pf, xf, zf);
       fftw_destroy_plan(p);
       fftwf_destroy_plan(pf);
       return 0;],
      [-lfftw3 -lfftw3f],
      [FFTW 3 or a library with its interface in float and double, for Fourier transforms on CPU; default: when found],
      [AS_IF([test -n "$with_fftw" || test "x$ac_cv_env_FFTW_LIBS_set" = xset],
         [AC_MSG_ERROR([fftw: no program links with the FFTW that was asked for (-lfftw3 and -lfftw3f are needed): see config.log])])
       tri_fftw=no tri_fftw_note=" (none found: install it, or name its folder by --with-fftw=DIR)"])])
  AM_CONDITIONAL([TRI_FFTW], [test "$tri_fftw" = yes])
])
