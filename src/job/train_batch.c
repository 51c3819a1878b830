// Micro-batches on their way from the loader to the device.
#include "job/train_run.h"

static size_t slot_bytes(const tri_train *train)
{
  return (size_t)train->B * (size_t)train->T * sizeof(int32_t);
}

tri_status tri_train_batch_open(tri_train *train)
{
  const size_t size_bytes = slot_bytes(train);
  tri_device *device = train->device;
  for (int s = 0; s < train->n_slots; s++) {
    tri_batch_slot *slot = &train->slots[s];
    TRI_CALL(tri_device_alloc_host(device, size_bytes, (void **)&slot->host_tokens));
    TRI_CALL(tri_device_alloc_host(device, size_bytes, (void **)&slot->host_targets));
    TRI_CALL(tri_event_create(device, &slot->copied));
    TRI_CALL(tri_event_create(device, &slot->used));
    // Fit for the first use, which waits for both.
    TRI_CALL(tri_event_record(slot->copied, train->copies));
    TRI_CALL(tri_event_record(slot->used, train->stream));
  }
  return TRI_OK;
}

void tri_train_batch_close(tri_train *train)
{
  for (int s = 0; train->slots != NULL && s < train->n_slots; s++) {
    tri_batch_slot *slot = &train->slots[s];
    tri_event_destroy(&slot->used);
    tri_event_destroy(&slot->copied);
    tri_device_free_host(train->device, (void **)&slot->host_targets);
    tri_device_free_host(train->device, (void **)&slot->host_tokens);
  }
}

tri_status tri_train_batch_take(tri_train *train, tri_loader *loader, int n, tri_batch_slot **out)
{
  const size_t size_bytes = (size_t)n * (size_t)train->T * sizeof(int32_t);
  tri_batch_slot *slot = &train->slots[train->n_batches++ % train->n_slots];
  tri_stream *copies = train->copies;
  TRI_CALL(tri_event_synchronize(slot->copied));
  TRI_CALL(tri_loader_take(loader, slot->host_tokens, slot->host_targets));
  TRI_CALL(tri_event_wait(slot->used, copies));
  TRI_CALL(tri_stream_copy_to_device(copies, slot->tokens, slot->host_tokens, size_bytes));
  TRI_CALL(tri_stream_copy_to_device(copies, slot->targets, slot->host_targets, size_bytes));
  TRI_CALL(tri_event_record(slot->copied, copies));
  TRI_CALL(tri_event_wait(slot->copied, train->stream));
  *out = slot;
  return TRI_OK;
}

tri_status tri_train_batch_done(tri_train *train, tri_batch_slot *slot)
{
  TRI_CALL(tri_event_record(slot->used, train->stream));
  return TRI_OK;
}
