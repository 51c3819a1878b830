// One direction between two neighbouring stages: messages arrive in the order in which they are
// sent. Private to src/parallel.
#pragma once

#include "trireme/comm/transport.h"

enum { TRI_CHANNEL_MOST_DEPTH = 64 };

typedef struct tri_channel_message {
  tri_transfer *transfer; // NULL: done
  void *buffer;
  tri_event *passed; // the channel's stream is done with a sent buffer
} tri_channel_message;

// All zero where this rank has no part in it.
typedef struct tri_channel {
  tri_comm *comm; // the two ranks
  tri_transport *transport;
  tri_stream *stream;
  bool sends;
  const char *what;
  tri_event *handed_over; // between the compute stream and the channel's
  tri_channel_message messages[TRI_CHANNEL_MOST_DEPTH]; // under way, oldest at `first`
  int depth, first, n;
} tri_channel;

// What of `parent` makes the channel: ranks of one colour are its two ends, or one that has no
// part.
typedef struct tri_channel_place {
  int color;
  bool member, sends;
} tri_channel_place;

// Collective on parent, errors are local. `what` is a literal that names the messages.
TRI_MUST_CHECK tri_status tri_channel_open(tri_comm *parent, tri_device *device,
                                           const char *transport, const char *what,
                                           const tri_channel_place *place, tri_channel *out);
// Room for `depth` messages of size_bytes under way. Local.
TRI_MUST_CHECK tri_status tri_channel_reserve(tri_channel *channel, int depth, size_t size_bytes);
// The orderly end. Collective on the two ranks.
TRI_MUST_CHECK tri_status tri_channel_finish(tri_channel *channel);
// The communicator goes last, with tri_channel_release, when nothing holds memory of a message.
void tri_channel_close(tri_channel *channel);
void tri_channel_release(tri_channel *channel);

// Sends or receives what is in, or goes into, `buffer`, in the order of `compute`. There must be
// room: channel->n < channel->depth.
TRI_MUST_CHECK tri_status tri_channel_start(tri_channel *channel, tri_stream *compute, void *buffer,
                                            size_t size_bytes);
// Moves every message under way forward; never waits.
TRI_MUST_CHECK tri_status tri_channel_progress(tri_channel *channel);
bool tri_channel_oldest_done(const tri_channel *channel);
// Waits for the oldest message within the limit.
TRI_MUST_CHECK tri_status tri_channel_wait_oldest(tri_channel *channel);
// Takes out the oldest message, which is done: later work of `compute` may read what came, or
// overwrite what was sent.
TRI_MUST_CHECK tri_status tri_channel_take(tri_channel *channel, tri_stream *compute, void **out);
