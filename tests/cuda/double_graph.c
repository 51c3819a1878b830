// Double of CUDA graphs: what a capture of one stream recorded, queued again at each launch.
//
// A capture forks to no other stream. Nodes are shared by a graph and the executables made of it,
// and go with the last of them. An executable is destroyed when its launches are done.
#include "doubles.h"

#include <stdlib.h>

typedef struct node {
  double_work work;
  cudaEvent_t event; // or NULL
} node;

struct double_graph {
  node *nodes;
  int n, n_references;
  bool spoiled;
  int device;
};

// The runtime's handles are other names of one structure.
static double_graph *graph_of(cudaGraph_t graph)
{
  return (double_graph *)(void *)graph;
}

static double_graph *executable_of(cudaGraphExec_t executable)
{
  return (double_graph *)(void *)executable;
}

void double_graph_add(double_graph *graph, double_work work, cudaEvent_t event)
{
  graph->nodes = realloc(graph->nodes, (size_t)(graph->n + 1) * sizeof *graph->nodes);
  if (graph->nodes == NULL) double_die("out of host memory");
  graph->nodes[graph->n++] = (node){work, event};
}

void double_graph_spoil(double_graph *graph)
{
  graph->spoiled = true;
}

static void let_go(double_graph *graph)
{
  if (--graph->n_references > 0) return;
  for (int i = 0; i < graph->n; i++)
    if (graph->nodes[i].work.release != NULL)
      graph->nodes[i].work.release(graph->nodes[i].work.body);
  free(graph->nodes);
  free(graph);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
  DOUBLE_ENTER(double_set_error(cudaErrorStreamCaptureUnsupported));
  (void)mode;
  if (stream == NULL || stream == cudaStreamLegacy)
    return double_set_error(cudaErrorStreamCaptureUnsupported);
  double_graph **capture = double_stream_capture(stream);
  if (*capture != NULL) return double_set_error(cudaErrorIllegalState);
  double_graph *graph = calloc(1, sizeof *graph);
  if (graph == NULL) return double_set_error(cudaErrorMemoryAllocation);
  graph->n_references = 1;
  graph->device = double_stream_device(stream);
  *capture = graph;
  return double_set_error(double_sticky_error());
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
  DOUBLE_ENTER(double_set_error(cudaErrorStreamCaptureInvalidated));
  double_graph **capture = double_stream_capture(stream);
  double_graph *graph = *capture;
  *capture = NULL;
  *out = NULL;
  if (graph == NULL) return double_set_error(cudaErrorIllegalState);
  if (graph->spoiled) {
    let_go(graph);
    return double_set_error(cudaErrorStreamCaptureInvalidated);
  }
  double_own(DOUBLE_GRAPH, 1);
  *out = (cudaGraph_t)(void *)graph;
  return double_set_error(double_sticky_error());
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
  DOUBLE_ENTER(double_set_error(cudaErrorMemoryAllocation));
  if (graph == NULL || flags != 0) return double_set_error(cudaErrorInvalidValue);
  graph_of(graph)->n_references++;
  double_own(DOUBLE_GRAPH, 1);
  *out = (cudaGraphExec_t)(void *)graph;
  return double_set_error(double_sticky_error());
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  if (graph == NULL) return double_set_error(cudaErrorInvalidValue);
  double_own(DOUBLE_GRAPH, -1);
  let_go(graph_of(graph));
  return double_set_error(double_sticky_error());
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
  DOUBLE_ENTER(double_set_error(cudaErrorInvalidValue));
  if (executable == NULL) return double_set_error(cudaErrorInvalidValue);
  double_own(DOUBLE_GRAPH, -1);
  double_drain_device(executable_of(executable)->device);
  let_go(executable_of(executable));
  return double_set_error(double_sticky_error());
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
  DOUBLE_ENTER(double_set_error(cudaErrorLaunchFailure));
  if (executable == NULL) return double_set_error(cudaErrorInvalidValue);
  double_graph *graph = executable_of(executable);
  if (graph->device != double_stream_device(stream))
    double_die("cudaGraphLaunch: graph and stream on two devices");
  if (*double_stream_capture(stream) != NULL) double_die("a graph in a capture is not modelled");
  for (int i = 0; i < graph->n; i++) {
    if (graph->nodes[i].event != NULL) {
      double_mark(graph->nodes[i].event, stream);
      continue;
    }
    double_work work = graph->nodes[i].work;
    work.release = NULL; // the next launch needs it again
    double_enqueue(stream, work);
  }
  double_count.graph_launches++;
  return double_set_error(double_sticky_error());
}
