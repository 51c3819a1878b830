#include "ckpt/agree.h"

#include <string.h>

#include "ckpt/manifest.h"
#include "ckpt/pieces.h"
#include "trireme/base/digest.h"
#include "trireme/base/memory.h"

static tri_status check_local(const tri_ckpt_state *state, const char *attributes, char **text)
{
  TRI_CALL(tri_ckpt_check_state(state));
  return tri_manifest_attributes(attributes, text);
}

static tri_status compare_digests(int rank, int n_ranks, const tri_digest *digests)
{
  for (int i = 1; i < n_ranks; i++)
    TRI_CHECK(memcmp(&digests[i], &digests[0], sizeof digests[0]) == 0, TRI_ERR_ARGUMENT,
              "rank %d: the attributes given by rank %d are not those of rank 0", rank, i);
  return TRI_OK;
}

tri_status tri_ckpt_agree_on_state(tri_comm *comm, const tri_ckpt_state *state,
                                   const char *attributes, char **text)
{
  tri_status status = TRI_OK;
  char *own = NULL;
  tri_digest *digests = NULL;
  TRI_CALL_GOTO(done,
                tri_comm_agree(comm, "checkpoint arguments", check_local(state, attributes, &own)));
  const int n_ranks = tri_comm_size(comm);
  const tri_status room = TRI_NEW(TRI_MODULE_CKPT, n_ranks, &digests);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint memory", room));
  tri_digest digest;
  tri_digest_of(own, strlen(own), &digest);
  TRI_CALL_GOTO(
      done, tri_comm_all_gather(comm, "checkpoint attributes", &digest, sizeof digest, digests));
  TRI_CALL_GOTO(done, compare_digests(tri_comm_rank(comm), n_ranks, digests));

done:
  tri_free(digests);
  if (status != TRI_OK) {
    tri_free(own);
    return status;
  }
  *text = own;
  return TRI_OK;
}
