// The device of a rank: what is there, who takes which.
#include <stdio.h>
#include <string.h>

#include "runtime/device_share.h"
#include "runtime/runtime_private.h"
#include "trireme/base/digest.h"
#include "trireme/base/memory.h"

// What a rank tells the others. Sent as bytes between ranks of one program.
typedef struct announcement {
  char host[64];
  tri_device_wish wish;
} announcement;

static uint64_t id_of(const tri_device_place *place)
{
  tri_digest digest;
  tri_digest_state state;
  uint64_t id = 0;
  tri_digest_begin(&state);
  tri_digest_add(&state, place->bus_id, sizeof place->bus_id);
  tri_digest_add(&state, place->uuid, sizeof place->uuid);
  tri_digest_end(&state, &digest);
  memcpy(&id, digest.bytes, sizeof id);
  return id;
}

static tri_status announce(const tri_runtime *runtime, const char *kind,
                           tri_device_place places[TRI_DEVICE_MAX_PLACES], announcement *out)
{
  memset(out, 0, sizeof *out); // padding travels too
  memcpy(out->host, runtime->binding.host, sizeof out->host);
  TRI_CALL(tri_device_list(kind, places, &out->wish.n));
  for (int d = 0; d < out->wish.n; d++)
    out->wish.ids[d] = id_of(&places[d]);
  TRI_CALL(tri_binding_near(places, out->wish.n, &out->wish.near));
  return TRI_OK;
}

// The wishes of this host's ranks, in rank order, and this rank's place among them.
static int same_host(const announcement *all, int size, int rank, tri_device_wish *wishes,
                     int *ranks, int *local)
{
  int n = 0;
  for (int r = 0; r < size; r++) {
    if (strcmp(all[r].host, all[rank].host) != 0) continue;
    if (r == rank) *local = n;
    wishes[n] = all[r].wish;
    ranks[n++] = r;
  }
  return n;
}

static tri_status choose(const tri_runtime *runtime, const char *kind, bool share,
                         const announcement *all, int *number)
{
  const int rank = tri_comm_rank(runtime->world), size = tri_comm_size(runtime->world);
  tri_device_wish *wishes = NULL;
  int *ranks = NULL, *taken = NULL, local = 0;
  tri_status status;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_RUNTIME, size, &wishes));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_RUNTIME, size, &ranks));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_RUNTIME, size, &taken));
  const int n = same_host(all, size, rank, wishes, ranks, &local);
  const int left_out = tri_device_share(wishes, n, share, taken);
  TRI_CHECK_GOTO(
      done, left_out < 0, TRI_ERR_CONFIG,
      "%s: rank %d sees %d %s device%s, and other ranks of the host take them: start "
      "fewer ranks a host, ask for more devices, or let ranks share one by %s.share=true",
      runtime->binding.host, ranks[left_out], wishes[left_out].n, kind,
      wishes[left_out].n == 1 ? "" : "s", kind);
  *number = taken[local];

done:
  TRI_FREE(&taken);
  TRI_FREE(&ranks);
  TRI_FREE(&wishes);
  return status;
}

tri_status tri_runtime_device(tri_runtime *runtime, const char *kind, bool share, char *name,
                              size_t size_bytes)
{
  tri_device_place places[TRI_DEVICE_MAX_PLACES];
  announcement own, *all = NULL;
  int number = 0;
  tri_status status = announce(runtime, kind, places, &own);
  TRI_CALL(tri_comm_agree(runtime->world, "devices", status));
  if (own.wish.n == 0) {
    snprintf(name, size_bytes, "%s", kind);
    return TRI_OK;
  }
  TRI_CALL(TRI_NEW(TRI_MODULE_RUNTIME, tri_comm_size(runtime->world), &all));
  status = tri_comm_all_gather(runtime->world, "devices", &own, sizeof own, all);
  if (status == TRI_OK)
    status = tri_comm_agree(runtime->world, "choice of devices",
                            choose(runtime, kind, share, all, &number));
  TRI_FREE(&all);
  TRI_CALL(status);
  status = tri_binding_follow(&runtime->binding, &places[number]);
  TRI_CALL(tri_comm_agree(runtime->world, "binding", status));
  TRI_CALL(tri_runtime_count_sharing(runtime));
  snprintf(name, size_bytes, "%s:%d", kind, number);
  return TRI_OK;
}
