// Where a rank runs, by hwloc.
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime_private.h"

// Only what is asked for below: a full discovery takes much longer on a large machine. `io`: cards
// and networks as well, and what they hang on.
static tri_status load_topology(bool io, hwloc_topology_t *out)
{
  hwloc_topology_t topology;
  const enum hwloc_type_filter_e io_filter =
      io ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT : HWLOC_TYPE_FILTER_KEEP_NONE;
  TRI_CHECK(hwloc_topology_init(&topology) == 0, TRI_ERR_UNSUPPORTED, "hwloc does not start");
  if (hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) != 0 ||
      hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL) !=
          0 ||
      hwloc_topology_set_io_types_filter(topology, io_filter) != 0 ||
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
  TRI_CALL(load_topology(false, &topology));
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

// --- the part of the machine that a device hangs on

// NULL where the system does not tell of such a card.
static hwloc_obj_t part_of(hwloc_topology_t topology, const tri_device_place *place)
{
  const hwloc_obj_t card = hwloc_get_pcidev_by_busidstring(topology, place->bus_id);
  return card == NULL ? NULL : hwloc_get_non_io_ancestor_obj(topology, card);
}

static uint64_t near_of(hwloc_topology_t topology, hwloc_const_bitmap_t units,
                        const tri_device_place *places, int n)
{
  uint64_t near = 0;
  for (int d = 0; d < n; d++) {
    const hwloc_obj_t part = part_of(topology, &places[d]);
    if (part != NULL && hwloc_bitmap_intersects(part->cpuset, units)) near |= (uint64_t)1 << d;
  }
  return near;
}

tri_status tri_binding_near(const tri_device_place *places, int n, uint64_t *out)
{
  hwloc_topology_t topology = NULL;
  tri_binding binding;
  tri_status status;
  TRI_CALL(load_topology(true, &topology));
  hwloc_bitmap_t units = hwloc_bitmap_alloc();
  TRI_CHECK_GOTO(done, units != NULL, TRI_ERR_MEMORY, "no memory for a bitmap");
  TRI_CALL_GOTO(done, read_units(topology, units, &binding));
  *out = near_of(topology, units, places, n);

done:
  hwloc_bitmap_free(units);
  hwloc_topology_destroy(topology);
  return status;
}

// The first network card on the same part of the machine.
static void read_network(hwloc_topology_t topology, hwloc_obj_t part, tri_binding *binding)
{
  hwloc_obj_t device = NULL;
  binding->network[0] = '\0';
  while ((device = hwloc_get_next_osdev(topology, device)) != NULL) {
    const bool network = device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ||
                         device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK;
    if (!network || hwloc_get_non_io_ancestor_obj(topology, device) != part) continue;
    snprintf(binding->network, sizeof binding->network, "%s", device->name);
    if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) return;
  }
}

tri_status tri_binding_follow(tri_binding *binding, const tri_device_place *place)
{
  hwloc_topology_t topology = NULL;
  tri_status status = TRI_OK;
  TRI_CALL(load_topology(true, &topology));
  const hwloc_obj_t part = part_of(topology, place);
  hwloc_bitmap_t units = hwloc_bitmap_alloc();
  TRI_CHECK_GOTO(done, units != NULL, TRI_ERR_MEMORY, "no memory for a bitmap");
  if (part == NULL) goto done;
  read_network(topology, part, binding);
  const bool whole =
      hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(topology), part->cpuset);
  // A rank that its launcher has bound stays where it is. A system that refuses leaves the rank
  // where it was, which costs speed and nothing else.
  if (binding->bound || whole) goto done;
  (void)hwloc_set_cpubind(topology, part->cpuset, HWLOC_CPUBIND_PROCESS);
  TRI_CALL_GOTO(done, read_units(topology, units, binding));

done:
  hwloc_bitmap_free(units);
  hwloc_topology_destroy(topology);
  return status;
}
