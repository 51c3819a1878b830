// Chunks of the state digest whose elements are spread over several boxes.
#pragma once

#include "ckpt/chunk.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/comm/comm.h"

// Puts every chunk that no single box holds together on one rank (in turn) and digests it there:
// the chunks that fell to this rank are added to `list`. Checks that the boxes of every array cover
// it exactly once, and names ranks when they do not. Bounded memory: the ranks together have at
// most about 64 MiB in flight. Collective, errors agree.
TRI_MUST_CHECK tri_status tri_split_chunks_digest(tri_comm *comm, const tri_ckpt_state *state,
                                                  tri_chunk_list *list);
