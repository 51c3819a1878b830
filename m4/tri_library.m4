# TRI_LIBRARY(NAME, option, pkg-config modules, header, link body, -l flags, what it is for[, action if not found])
#
# Finds one library: --with-<option>=DIR wins, then NAME_CFLAGS and NAME_LIBS from the user, then pkg-config (the first
# module that is there), then the plain -l flags. A real program is compiled and linked; when that fails, configure stops
# with one sentence that names the library, its purpose, the Debian package and the option, or takes the action instead and
# leaves the library out.
AC_DEFUN([TRI_LIBRARY], [
  AC_ARG_WITH([$2], [AS_HELP_STRING([--with-$2=DIR], [$7; installed under DIR])], [], [with_$2=])
  AC_ARG_VAR([$1_CFLAGS], [compiler flags for $2])
  AC_ARG_VAR([$1_LIBS], [linker flags for $2])
  AC_MSG_CHECKING([for $2])
  AS_IF([test -n "$with_$2" && test "$with_$2" != yes],
    [$1_CFLAGS="-I$with_$2/include"
     $1_LIBS="-L$with_$2/lib -Wl,-rpath,$with_$2/lib $6"],
    [test -z "$$1_LIBS"],
    [for tri_module in $3; do
       AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$tri_module"],
         [$1_CFLAGS=`$PKG_CONFIG --cflags "$tri_module"`
          $1_LIBS=`$PKG_CONFIG --libs "$tri_module"`
          break])
     done
     AS_IF([test -z "$$1_LIBS"], [$1_LIBS="$6"])])
  tri_saved_CFLAGS=$CFLAGS
  tri_saved_LIBS=$LIBS
  CFLAGS="$CFLAGS $$1_CFLAGS"
  LIBS="$$1_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[$4]], [[$5]])],
    [AC_MSG_RESULT([yes ($$1_LIBS)])
     TRI_CFLAGS="$TRI_CFLAGS $$1_CFLAGS"
     TRI_LIBS="$TRI_LIBS $$1_LIBS"],
    [AC_MSG_RESULT([no])
     m4_default([$8],
       [AC_MSG_ERROR([$2 ($7) was not found: install it (see build-aux/debian-packages) or name its folder by --with-$2=DIR])])])
  CFLAGS=$tri_saved_CFLAGS
  LIBS=$tri_saved_LIBS
])
