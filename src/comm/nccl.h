// The transport over NCCL: private to src/comm. Only in builds with --with-cuda.
#pragma once

#include "comm/transport_private.h"

typedef struct ncclComm *ncclComm_t;

typedef struct tri_nccl_transport {
  tri_transport base;
  ncclComm_t nccl;    // NULL: not made, or ended
  tri_operation last; // begun last: what an error is said to have happened in
} tri_nccl_transport;

extern const tri_transport_operations tri_nccl_transport_operations;
