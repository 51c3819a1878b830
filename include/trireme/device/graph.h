// Work that is recorded once and launched again and again, which costs the host one call instead of
// one for each kernel (CUDA graphs).
//
// All functions are local. Handles belong to one thread at a time.
#pragma once

#include "trireme/device/device.h"

typedef struct tri_graph tri_graph;

// Whether the device records at all; the CPU does not.
bool tri_graph_supported(const tri_device *device);

// From here to tri_graph_end nothing that is queued on `stream` runs: it is recorded, with its
// pointers and numbers as they are now. Only kernels, copies and records of events may be queued;
// no wait for an event, and the host waits for nothing of this stream. An event that is recorded in
// it marks, after each launch, the place in that launch. TRI_ERR_UNSUPPORTED where the device does
// not record.
TRI_MUST_CHECK tri_status tri_graph_begin(tri_stream *stream);

// Ends the recording. *out owned by the caller: tri_graph_destroy. What was recorded is borrowed by
// it: memory and events must outlive the last launch. After an error in between, call it too, and
// it fails.
TRI_MUST_CHECK tri_status tri_graph_end(tri_stream *stream, tri_graph **out);

// Queues the recorded work on a stream of the same device.
TRI_MUST_CHECK tri_status tri_graph_launch(tri_graph *graph, tri_stream *stream);

// Its launches must be done.
void tri_graph_destroy(tri_graph **graph);
