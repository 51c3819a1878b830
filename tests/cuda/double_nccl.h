// What double_nccl.c (calls) and double_nccl_exchange.c (messages) share.
#pragma once

#include <nccl.h>

#include "doubles.h"

enum double_nccl_kind {
  NCCL_ALL_REDUCE,
  NCCL_BROADCAST,
  NCCL_REDUCE,
  NCCL_ALL_GATHER,
  NCCL_REDUCE_SCATTER,
  NCCL_SEND,
  NCCL_RECV
};

struct ncclComm {
  int n, rank, device;
  int *world_ranks; // of each rank
  uint64_t id, n_splits, sequence;
  int tag; // even; tag + 1 is for sends and receives
  bool live, aborted, failed;
  bool blocking;
  int in_progress;        // looks at a non-blocking one until the last call is done
  double_operation *last; // operations of a communicator run in the order of their calls
};

typedef struct double_nccl_task {
  int kind, root, peer, type, op;
  size_t count;
  const void *from;
  void *to;
  ncclComm_t comm;
  cudaStream_t stream;
  uint64_t sequence;
} double_nccl_task;

const char *double_nccl_name(int kind);
size_t double_nccl_type_size(int type);
// One operation that does all tasks (copied).
double_work double_nccl_work(const double_nccl_task *tasks, int n);
