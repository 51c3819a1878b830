#include "ckpt/agree.h"

#include <string.h>

#include "ckpt/manifest.h"
#include "ckpt/pieces.h"
#include "ckpt/replicas.h"
#include "trireme/base/digest.h"
#include "trireme/base/memory.h"

static tri_status check_local(const tri_ckpt_state *state, const char *attributes, char **text)
{
  TRI_CALL(tri_ckpt_check_state(state));
  return tri_manifest_attributes(attributes, text);
}

// What every rank tells all others of its state.
typedef struct told {
  tri_digest attributes;
  uint64_t replicas;
} told;

static tri_status compare_attributes(int rank, int n_ranks, const told *all)
{
  for (int i = 1; i < n_ranks; i++)
    TRI_CHECK(memcmp(&all[i].attributes, &all[0].attributes, sizeof all[0].attributes) == 0,
              TRI_ERR_ARGUMENT, "rank %d: the attributes given by rank %d are not those of rank 0",
              rank, i);
  return TRI_OK;
}

// All ranks come to the same result.
static bool replicas_are_right(int n_ranks, const told *all)
{
  uint64_t sum = 0;
  for (int i = 0; i < n_ranks; i++)
    sum += all[i].replicas;
  return sum == 0;
}

tri_status tri_ckpt_agree_on_state(tri_comm *comm, const tri_ckpt_state *state,
                                   const char *attributes, char **text)
{
  tri_status status = TRI_OK;
  char *own = NULL;
  told *all = NULL;
  TRI_CALL_GOTO(done,
                tri_comm_agree(comm, "checkpoint arguments", check_local(state, attributes, &own)));
  const int n_ranks = tri_comm_size(comm);
  const tri_status room = TRI_NEW(TRI_MODULE_CKPT, n_ranks, &all);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint memory", room));
  told mine = {.replicas = tri_ckpt_replica_sum(state)};
  tri_digest_of(own, strlen(own), &mine.attributes);
  TRI_CALL_GOTO(done, tri_comm_all_gather(comm, "checkpoint state", &mine, sizeof mine, all));
  TRI_CALL_GOTO(done, compare_attributes(tri_comm_rank(comm), n_ranks, all));
  if (!replicas_are_right(n_ranks, all))
    TRI_CALL_GOTO(done, tri_ckpt_find_replica_error(comm, state));

done:
  tri_free(all);
  if (status != TRI_OK) {
    tri_free(own);
    return status;
  }
  *text = own;
  return TRI_OK;
}
