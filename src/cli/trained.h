// A trained model, opened from a run folder or a checkpoint for use by a command. Private to cli.
#pragma once

#include "trireme/data/tokenizer.h"
#include "trireme/job/job.h"
#include "trireme/nn/gpt.h"
#include "trireme/runtime/runtime.h"

typedef struct tri_cli_trained {
  tri_job *job;
  tri_tokenizer *tokenizer;
  tri_device *device;
  tri_stream *stream;
  tri_model *model;
  void *weights; // flat, in the model's type, on the device
} tri_cli_trained;

// `path` is a run folder (it holds job.yaml), of which the newest checkpoint that is not damaged is
// taken: from path/checkpoints, or when there is none from the job's checkpoint.dir; or a
// checkpoint (it holds manifest.json) two levels below its run folder. TRI_ERR_CONFIG says what is
// missing where. Collective on the runtime's world. `trained` is zeroed by the caller and closed by
// tri_cli_trained_close also after an error.
TRI_MUST_CHECK tri_status tri_cli_trained_open(tri_runtime *runtime, const char *path,
                                               tri_cli_trained *trained);
void tri_cli_trained_close(tri_cli_trained *trained);
