// CUDA graphs by capture of a stream.
#include "device/cuda/cuda.h"
#include "trireme/base/memory.h"
#include "trireme/device/cuda.h"

typedef struct cuda_graph {
  tri_graph base; // first
  cudaGraphExec_t executable;
} cuda_graph;

static cuda_graph *graph_of(tri_graph *graph)
{
  return (cuda_graph *)graph;
}

tri_status tri_cuda_graph_begin(tri_stream *stream)
{
  tri_cuda_stream *cuda = (tri_cuda_stream *)stream;
  TRI_CALL(tri_cuda_select(stream->device));
  // Other threads may do what a capture forbids to this one.
  TRI_CALL_CUDA(cudaStreamBeginCapture(cuda->launch.stream, cudaStreamCaptureModeThreadLocal));
  cuda->recording = true;
  return TRI_OK;
}

tri_status tri_cuda_graph_end(tri_stream *stream, tri_graph **out)
{
  tri_cuda_stream *cuda = (tri_cuda_stream *)stream;
  tri_status status = TRI_OK;
  cudaGraph_t recorded = NULL;
  cuda_graph *graph = NULL;
  cuda->recording = false;
  TRI_CALL(tri_cuda_select(stream->device));
  TRI_CALL_CUDA(cudaStreamEndCapture(cuda->launch.stream, &recorded));
  TRI_CALL_GOTO(undo_recorded, TRI_NEW(TRI_MODULE_DEVICE, 1, &graph));
  TRI_CALL_CUDA_GOTO(undo_graph, cudaGraphInstantiate(&graph->executable, recorded, 0));
  *out = &graph->base;
  goto undo_recorded; // the executable graph is a copy

undo_graph:
  TRI_FREE(&graph);
undo_recorded:
  if (cudaGraphDestroy(recorded) != cudaSuccess) (void)cudaGetLastError();
  return status;
}

tri_status tri_cuda_graph_launch(tri_graph *graph, tri_stream *stream)
{
  TRI_CALL(tri_cuda_select(stream->device));
  TRI_CALL_CUDA(cudaGraphLaunch(graph_of(graph)->executable, tri_cuda_launch(stream)->stream));
  return TRI_OK;
}

void tri_cuda_graph_destroy(tri_graph *graph)
{
  if (cudaGraphExecDestroy(graph_of(graph)->executable) != cudaSuccess) (void)cudaGetLastError();
  tri_free(graph);
}
