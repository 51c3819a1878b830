// Cuts a chain of blocks into contiguous parts that cost alike: the virtual stages of a pipeline.
//
// Local, pure, in whole numbers: whoever has the same chain gets the same cut. Costs that were
// measured differ between ranks, so one rank's must reach all before they cut.
//
// What a cost is, the caller says: 1 (a cut by number), flops, nanoseconds. The embedding and the
// head are blocks like others, with costs and bytes of their own. Part k is virtual stage k, which
// is chunk k / n_stages of stage k % n_stages (pipeline_schedule.h): with chunks, it is the largest
// chunk that is made small, which is the pace of a full pipeline.
#pragma once

#include <stdint.h>

#include "trireme/base/status.h"

typedef struct tri_partition_chain {
  int n_blocks;         // >= 1
  const int64_t *costs; // (n_blocks), each >= 0, their sum < 2^63; NULL: each costs 1
  const int64_t *bytes; // (n_blocks), likewise: memory that a block needs; NULL: it does not matter
} tri_partition_chain;

// Of all cuts into n_parts parts, none of them empty, finds the one
//   whose most costly part costs least,
//   of these, whose largest part has the fewest bytes,
//   of these, whose least costly part costs most, so that parts are as even as they can be,
//   of these, whose first part has the fewest blocks, then the second, and so on, because 1F1B
//     keeps the most activations on the first stages.
// Exact. Time n_blocks * n_parts * log(sum of costs), memory n_blocks * n_parts bytes.
//   first    (n_parts + 1): part k is blocks [first[k], first[k + 1]); untouched on error
// TRI_ERR_ARGUMENT when there are fewer blocks than parts, or a number is not in its range.
TRI_MUST_CHECK tri_status tri_partition_cut(const tri_partition_chain *chain, int n_parts,
                                            int *first);
