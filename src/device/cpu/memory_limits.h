// How much memory this process can still have, and what sets the limit: the machine, or a control
// group, which is how Slurm and containers give a job its share.
//
// Files read, all below a root folder ("" is the machine, tests give another): /proc/meminfo,
// /proc/self/cgroup, and for the group named there and all above it
// /sys/fs/cgroup/GROUP/memory.max, memory.current and memory.stat (version 2) or
// /sys/fs/cgroup/memory/GROUP/memory.limit_in_bytes, memory.usage_in_bytes and memory.stat (version
// 1). Local.
#pragma once

#include <stddef.h>

#include "trireme/base/status.h"

typedef struct tri_memory_limits {
  size_t total_bytes; // the least of the machine's memory and of all limits
  size_t free_bytes;  // the least that can be had under any of them
  char least[512];    // which one leaves the least: "MemAvailable in /proc/meminfo", "the limit of
                      // 2147483648 bytes in /sys/fs/cgroup/job_1/memory.max"
} tri_memory_limits;

// TRI_ERR_IO when /proc/meminfo does not say; a group without limits, or whose files are missing,
// is no limit.
TRI_MUST_CHECK tri_status tri_memory_limits_read(const char *root, tri_memory_limits *out);
