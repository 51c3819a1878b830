// What the files of this module share.
#pragma once

#include "trireme/device/device.h"
#include "trireme/runtime/runtime.h"

struct tri_runtime {
  tri_comm *world; // owned
  tri_binding binding;
  int *statuses; // (size) for the end: it must not fail for want of memory
  int n_sharing; // ranks of this host with the same processing units, this one included
};

// Counts the ranks of the job that share this rank's processing units. Collective.
TRI_MUST_CHECK tri_status tri_runtime_count_sharing(tri_runtime *runtime);

// Local.
TRI_MUST_CHECK tri_status tri_binding_read(tri_binding *out);

// Bit d of *out: device d hangs on the part of the machine that this rank runs on. Local.
TRI_MUST_CHECK tri_status tri_binding_near(const tri_device_place *places, int n, uint64_t *out);

// Moves a rank that nobody has bound to the part of the machine that its device hangs on, and notes
// the network card there. Local.
TRI_MUST_CHECK tri_status tri_binding_follow(tri_binding *binding, const tri_device_place *place);

// What the job ends with, from what its ranks end with (-1: not known): an error of some rank's own
// before a missing rank, that before an interruption; of equals the one of the lowest rank. *rank
// is that rank; -1 with TRI_OK.
tri_status tri_runtime_verdict(const int *statuses, int size, int *rank);
