// Merging one piece. Local; one work space is used by one thread at a time.
#pragma once

#include "data/bpe.h"

typedef struct tri_merge_work tri_merge_work;

// *out owned.
TRI_MUST_CHECK tri_status tri_merge_work_create(tri_merge_work **out);
void tri_merge_work_destroy(tri_merge_work **work);

// Merges the bytes of a piece: as long as two neighbours have a merge, the strongest one is done,
// the leftmost of equals first. O(n log n).
//   ids  room for size_bytes numbers
TRI_MUST_CHECK tri_status tri_bpe_merge_piece(const tri_bpe *bpe, tri_merge_work *work,
                                              const uint8_t *piece, size_t size_bytes, int32_t *ids,
                                              int64_t *n_ids);
