// Start and end of the program on every rank, and the binding of ranks to hardware. The one place
// that aborts.
#pragma once

#include <stdbool.h>

#include "trireme/base/status.h"
#include "trireme/comm/comm.h"

typedef struct tri_runtime tri_runtime;

// Where a rank runs, by hwloc.
typedef struct tri_binding {
  char host[64];
  int n_processing_units; // that this rank may run on
  char units[128];        // as a list, "0-1"
  char cpu[96];           // processor model
  bool bound;             // narrower than the machine
  char network[32];       // card on the same part of the machine as the rank's device, "" if none
} tri_binding;

// Starts MPI, the log (rank), and reads the binding. Collective on the job. *out owned:
// tri_runtime_finish.
TRI_MUST_CHECK tri_status tri_runtime_start(double limit_seconds, tri_runtime **out);

// Ends everything in order. Collective. `status` is what this rank ends with. An error is printed
// once, by the rank where it began (rank, host, message; its trace in debug builds or when
// TRIREME_DEBUG is in the environment); of ranks that miss another one, the lowest speaks. When all
// ranks come here and nothing is unfinished, MPI is ended; else the job is aborted. Either way the
// exit code, on all ranks, is that of the lowest rank with an error of its own. Returns the exit
// code, or does not return. With *runtime NULL (start failed) it prints the error and aborts.
int tri_runtime_finish(tri_runtime **runtime, tri_status status);

tri_comm *tri_runtime_world(tri_runtime *runtime);
const tri_binding *tri_runtime_binding(const tri_runtime *runtime);

// Kernel threads for this rank when the job asks for `wanted` (0: the processing units it is bound
// to, shared evenly among the ranks of the host when they are not bound), at least 1.
int tri_runtime_threads(const tri_runtime *runtime, int wanted);

// The device of this rank as a name for tri_device_open: "cpu", or "cuda:N". Each rank of a host
// gets a device of its own, told apart by bus id and UUID, so that it holds whatever part of them
// CUDA_VISIBLE_DEVICES shows to which rank; a near one is taken first. With `share`, ranks may get
// the same when there are too few; without, that is TRI_ERR_CONFIG. A rank that its launcher has
// not bound is then bound to the part of the machine that its device hangs on. Makes no device
// ready. Collective on the job, errors agree.
TRI_MUST_CHECK tri_status tri_runtime_device(tri_runtime *runtime, const char *kind, bool share,
                                             char *name, size_t size_bytes);

// Installs handlers of SIGTERM, SIGINT, SIGUSR1 that only set a flag. Local.
TRI_MUST_CHECK tri_status tri_runtime_catch_signals(void);
// The first such signal since, 0 for none. A second SIGINT or SIGTERM ends the process at once.
int tri_runtime_signal(void);
