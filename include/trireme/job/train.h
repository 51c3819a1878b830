// The train job: from a job file to a trained model on all ranks.
#pragma once

#include "trireme/job/job.h"
#include "trireme/runtime/runtime.h"

// Runs the whole job. Collective on the runtime's world. TRI_ERR_INTERRUPTED when a signal ended it
// after a checkpoint.
TRI_MUST_CHECK tri_status tri_train_run(tri_runtime *runtime, const tri_job *job);
