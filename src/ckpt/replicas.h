// The check that the replicas of every box number 0 to n_replicas - 1, each on one rank: without
// it a box could be left out, or an array, when the ranks count wrong.
#pragma once

#include <stdint.h>

#include "trireme/base/status.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/comm/comm.h"

// A number whose sum over all ranks, modulo 2^64, is 0 when the replicas are right, and by chance
// alone when they are not. Local.
uint64_t tri_ckpt_replica_sum(const tri_ckpt_state *state);

// For when the sum is not 0: TRI_ERR_ARGUMENT names an array, a box and the replica that is missing
// or there twice. Collective, errors agree.
TRI_MUST_CHECK tri_status tri_ckpt_find_replica_error(tri_comm *comm, const tri_ckpt_state *state);
