# TRI_DEP_HWLOC: where a rank is bound.
AC_DEFUN([TRI_DEP_HWLOC], [
  TRI_LIBRARY([HWLOC], [hwloc], [hwloc], [#include <hwloc.h>],
    [hwloc_topology_t t; return hwloc_topology_init(&t);], [-lhwloc], [hwloc 2, for binding])
])
