// Which device each rank of a host takes: pure, so that it is tested for hosts that nobody has.
#include <string.h>

#include "runtime/device_share.h"

static int claims_of(uint64_t id, const tri_device_wish *wishes, const int *taken, int n_taken)
{
  int n = 0;
  for (int r = 0; r < n_taken; r++)
    n += wishes[r].ids[taken[r]] == id;
  return n;
}

// The least claimed device that this rank sees, one near it first, the lowest number first.
static int choose(const tri_device_wish *wishes, const int *taken, int rank, int *n_claims)
{
  const tri_device_wish *mine = &wishes[rank];
  int best = 0, best_claims = 0;
  bool best_near = false;
  for (int d = 0; d < mine->n; d++) {
    const int claims = claims_of(mine->ids[d], wishes, taken, rank);
    const bool near = (mine->near >> d & 1) != 0;
    const bool better =
        d == 0 || claims < best_claims || (claims == best_claims && near && !best_near);
    if (!better) continue;
    best = d;
    best_claims = claims;
    best_near = near;
  }
  *n_claims = best_claims;
  return best;
}

int tri_device_share(const tri_device_wish *wishes, int n_ranks, bool share, int *out)
{
  for (int rank = 0; rank < n_ranks; rank++) {
    int n_claims = 0;
    if (wishes[rank].n == 0) return rank;
    out[rank] = choose(wishes, out, rank, &n_claims);
    if (n_claims > 0 && !share) return rank;
  }
  return -1;
}
