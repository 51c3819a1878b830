// Where a rank runs, by hwloc.
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime_private.h"

// Only what is asked for below: a full discovery takes much longer on a large machine.
static tri_status load_topology(hwloc_topology_t *out)
{
  hwloc_topology_t topology;
  TRI_CHECK(hwloc_topology_init(&topology) == 0, TRI_ERR_UNSUPPORTED, "hwloc does not start");
  if (hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) != 0 ||
      hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL) !=
          0 ||
      hwloc_topology_load(topology) != 0) {
    hwloc_topology_destroy(topology);
    return TRI_ERROR(TRI_ERR_UNSUPPORTED, "hwloc cannot read the topology of this machine");
  }
  *out = topology;
  return TRI_OK;
}

static void read_cpu(hwloc_topology_t topology, tri_binding *binding)
{
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char *model = package == NULL ? NULL : hwloc_obj_get_info_by_name(package, "CPUModel");
  if (model == NULL) model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "CPUModel");
  snprintf(binding->cpu, sizeof binding->cpu, "%s", model == NULL ? "unknown processor" : model);
}

static tri_status read_units(hwloc_topology_t topology, hwloc_bitmap_t units, tri_binding *binding)
{
  const hwloc_const_bitmap_t machine = hwloc_topology_get_topology_cpuset(topology);
  // Some systems cannot say; there ranks are not bound either.
  if (hwloc_get_cpubind(topology, units, HWLOC_CPUBIND_PROCESS) != 0)
    TRI_CHECK(hwloc_bitmap_copy(units, machine) == 0, TRI_ERR_MEMORY, "no memory for a bitmap");
  binding->bound = !hwloc_bitmap_isincluded(machine, units);
  binding->n_processing_units = hwloc_bitmap_weight(units);
  (void)hwloc_bitmap_list_snprintf(binding->units, sizeof binding->units, units);
  return TRI_OK;
}

tri_status tri_binding_read(tri_binding *out)
{
  hwloc_topology_t topology = NULL;
  TRI_CALL(load_topology(&topology));
  tri_status status;
  tri_binding binding = {.bound = false};
  hwloc_bitmap_t units = hwloc_bitmap_alloc();
  TRI_CHECK_GOTO(done, units != NULL, TRI_ERR_MEMORY, "no memory for a bitmap");
  TRI_CALL_GOTO(done, read_units(topology, units, &binding));
  read_cpu(topology, &binding);
  if (gethostname(binding.host, sizeof binding.host - 1) != 0)
    snprintf(binding.host, sizeof binding.host, "unknown");
  *out = binding;

done:
  hwloc_bitmap_free(units);
  hwloc_topology_destroy(topology);
  return status;
}
