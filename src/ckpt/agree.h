// Small collective pieces that saving, loading and the state digest share.
#pragma once

#include "trireme/base/status.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/comm/comm.h"

// Checks the state of this rank, that the replicas of every box are complete, and brings the
// attributes into their one form, equal on all ranks (TRI_ERR_ARGUMENT names a rank whose text
// differs). Collective, errors agree. *text owned.
TRI_MUST_CHECK tri_status tri_ckpt_agree_on_state(tri_comm *comm, const tri_ckpt_state *state,
                                                  const char *attributes, char **text);
