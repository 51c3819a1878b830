# TRI_DEP_PCRE2: the pre-tokenization rule of byte-pair encodings.
AC_DEFUN([TRI_DEP_PCRE2], [
  TRI_LIBRARY([PCRE2], [pcre2], [libpcre2-8], [#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>], [return pcre2_config(PCRE2_CONFIG_VERSION, 0);], [-lpcre2-8], [PCRE2, for tokenizers])
])
