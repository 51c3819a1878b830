# TRI_DEP_CYAML: job files, and libyaml below it.
AC_DEFUN([TRI_DEP_CYAML], [
  TRI_LIBRARY([YAML], [yaml], [yaml-0.1], [#include <yaml.h>],
    [yaml_parser_t p; return yaml_parser_initialize(&p);], [-lyaml], [libyaml, for job files])
  TRI_LIBRARY([CYAML], [cyaml], [libcyaml], [#include <cyaml/cyaml.h>],
    [return cyaml_version_str == 0;], [-lcyaml -lyaml], [libcyaml, for job files])
])
