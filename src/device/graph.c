#include "trireme/device/graph.h"

#include "device/device_operations.h"

bool tri_graph_supported(const tri_device *device)
{
  return device->operations->graph_begin != NULL;
}

tri_status tri_graph_begin(tri_stream *stream)
{
  tri_device_facts facts;
  tri_device_get_facts(stream->device, &facts);
  TRI_CHECK(tri_graph_supported(stream->device), TRI_ERR_UNSUPPORTED,
            "device %s does not record graphs: run without", facts.name);
  TRI_CALL(stream->device->operations->graph_begin(stream));
  return TRI_OK;
}

tri_status tri_graph_end(tri_stream *stream, tri_graph **out)
{
  TRI_CALL(stream->device->operations->graph_end(stream, out));
  (*out)->device = stream->device;
  return TRI_OK;
}

tri_status tri_graph_launch(tri_graph *graph, tri_stream *stream)
{
  TRI_CHECK(graph->device == stream->device, TRI_ERR_ARGUMENT,
            "the graph and the stream are of different devices");
  TRI_CALL(graph->device->operations->graph_launch(graph, stream));
  return TRI_OK;
}

void tri_graph_destroy(tri_graph **graph)
{
  if (*graph != NULL) (*graph)->device->operations->graph_destroy(*graph);
  *graph = NULL;
}
