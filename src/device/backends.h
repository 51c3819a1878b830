// The backends that are compiled in: private to src/device.
#pragma once

#include "trireme/device/device.h"

typedef struct tri_backend {
  const char *kind; // what a device name begins with
  // `number` is what follows the colon of the name, NULL when there is none.
  tri_status (*open)(const char *number, const tri_device_options *options, tri_device **out);
  // As tri_device_list; NULL: devices of this kind have no number.
  tri_status (*list)(tri_device_place *places, int *n);
} tri_backend;

// Ends with an entry whose kind is NULL.
extern const tri_backend tri_backends[];
