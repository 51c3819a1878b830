#include "parallel/pipeline_channel.h"

tri_status tri_channel_open(tri_comm *parent, tri_device *device, const char *transport,
                            const char *what, const tri_channel_place *place, tri_channel *out)
{
  *out = (tri_channel){.what = what, .sends = place->sends};
  TRI_CALL(tri_comm_split(parent, what, place->color, tri_comm_rank(parent), &out->comm));
  if (!place->member) {
    tri_comm_destroy(&out->comm);
    return TRI_OK;
  }
  TRI_CALL(tri_transport_create(out->comm, device, transport, NULL, &out->transport));
  TRI_CALL(tri_stream_create(device, &out->stream));
  return tri_event_create(device, &out->handed_over);
}

tri_status tri_channel_reserve(tri_channel *channel, int depth, size_t size_bytes)
{
  if (channel->transport == NULL) return TRI_OK;
  tri_device *device = tri_transport_device(channel->transport);
  TRI_ASSERT(depth <= TRI_CHANNEL_MOST_DEPTH);
  channel->depth = depth;
  for (int i = 0; i < depth; i++)
    TRI_CALL(tri_event_create(device, &channel->messages[i].passed));
  return tri_transport_reserve(channel->transport, depth, 1, channel->sends ? size_bytes : 0,
                               channel->sends ? 0 : size_bytes);
}

tri_status tri_channel_finish(tri_channel *channel)
{
  if (channel->transport == NULL) return TRI_OK;
  return tri_transport_finish(channel->transport);
}

void tri_channel_close(tri_channel *channel)
{
  tri_transport_destroy(&channel->transport);
  for (int i = 0; i < channel->depth; i++)
    tri_event_destroy(&channel->messages[i].passed);
  tri_event_destroy(&channel->handed_over);
  tri_stream_destroy(&channel->stream);
}

void tri_channel_release(tri_channel *channel)
{
  tri_comm_destroy(&channel->comm);
}

static tri_channel_message *message_at(tri_channel *channel, int i)
{
  return &channel->messages[(channel->first + i) % channel->depth];
}

tri_status tri_channel_start(tri_channel *channel, tri_stream *compute, void *buffer,
                             size_t size_bytes)
{
  TRI_ASSERT(channel->n < channel->depth);
  tri_channel_message *slot = message_at(channel, channel->n);
  const tri_message message = {buffer, size_bytes, 1 - tri_comm_rank(channel->comm), 0};
  TRI_CALL(tri_event_record(channel->handed_over, compute));
  TRI_CALL(tri_event_wait(channel->handed_over, channel->stream));
  TRI_CALL(tri_transport_start(channel->transport, channel->what, channel->stream, &message,
                               channel->sends, &message, !channel->sends, &slot->transfer));
  // Of a group that is under way still, this marks its copy to the host.
  TRI_CALL(tri_event_record(slot->passed, channel->stream));
  slot->buffer = buffer;
  channel->n++;
  return TRI_OK;
}

tri_status tri_channel_progress(tri_channel *channel)
{
  for (int i = 0; i < channel->n; i++) {
    tri_channel_message *message = message_at(channel, i);
    bool done = false;
    if (message->transfer != NULL) TRI_CALL(tri_transport_test(&message->transfer, &done));
  }
  return TRI_OK;
}

bool tri_channel_oldest_done(const tri_channel *channel)
{
  TRI_ASSERT(channel->n > 0);
  return channel->messages[channel->first].transfer == NULL;
}

tri_status tri_channel_wait_oldest(tri_channel *channel)
{
  if (tri_channel_oldest_done(channel)) return TRI_OK;
  return tri_transport_wait(&channel->messages[channel->first].transfer);
}

tri_status tri_channel_take(tri_channel *channel, tri_stream *compute, void **out)
{
  tri_channel_message *message = message_at(channel, 0);
  TRI_ASSERT(tri_channel_oldest_done(channel));
  // What was sent may be overwritten when its own send is passed; what came is there when
  // everything is that has been queued so far, and one receive at a time is under way.
  if (!channel->sends) TRI_CALL(tri_event_record(message->passed, channel->stream));
  TRI_CALL(tri_event_wait(message->passed, compute));
  *out = message->buffer;
  channel->first = (channel->first + 1) % channel->depth;
  channel->n--;
  return TRI_OK;
}
