// Which device each rank of a host takes. Private to src/runtime.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/device/device.h"

// What one rank of a host sees.
typedef struct tri_device_wish {
  int n;                               // devices, in the order of their numbers
  uint64_t near;                       // bit d: device d hangs on this rank's part of the machine
  uint64_t ids[TRI_DEVICE_MAX_PLACES]; // the same for the same device on all ranks of the host
} tri_device_wish;

// out[r] = number, in rank r's own count, of the device that local rank r takes: ranks choose in
// order, each the least claimed device it sees (without `share`: an unclaimed one), a near one
// first, the lowest number first. Ranks that all see the same n >= n_ranks devices get one each;
// ranks whose batch system shows each its own get that. Returns -1, or the first rank that gets
// none. Pure.
int tri_device_share(const tri_device_wish *wishes, int n_ranks, bool share, int *out);
