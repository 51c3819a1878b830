# TRI_DEP_JSON: manifests, metrics, tokenizers.
AC_DEFUN([TRI_DEP_JSON], [
  TRI_LIBRARY([JANSSON], [jansson], [jansson], [#include <jansson.h>],
    [json_t *j = json_object(); json_decref(j);], [-ljansson], [Jansson, for JSON])
])
