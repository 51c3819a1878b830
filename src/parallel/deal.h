// How the micro-batches of a global batch are dealt to the ranks that hold the same parameters.
// Private to src/parallel. Local, pure.
//
// In order: each rank gets leaves (sum groups) that follow one another, so that it can sum most of
// them alone. By rounds: in round k the ranks have the leaves k * size, k * size + 1, …, so that
// sums can be merged at once wherever they are collected. Then all ranks have as many places for
// micro-batches, and a rank with fewer has places without one, of a round the first.
#pragma once

#include <stdbool.h>

#include "trireme/parallel/sum_tree.h"

typedef struct tri_deal {
  int n_leaves;          // >= 1
  int leaf_microbatches; // in one leaf; the last may hold fewer
  int n_microbatches;    // of a global batch
  int size;              // ranks
  bool by_rounds;
} tri_deal;

// The micro-batches of a leaf, as numbers in the global batch.
tri_sum_node tri_deal_leaf(const tri_deal *deal, int leaf);

// Places of a rank, in the order in which it computes them.
int tri_deal_count(const tri_deal *deal, int rank);
// The micro-batch in place 0 <= i < count; -1: none.
int tri_deal_microbatch(const tri_deal *deal, int rank, int i);
// Whether the gradient of a leaf begins, or of a round ends, in this place.
bool tri_deal_begins_leaf(const tri_deal *deal, int rank, int i);
bool tri_deal_ends_leaf(const tri_deal *deal, int rank, int i);
// The leaf of a place. By rounds it may be >= n_leaves: there is none.
int tri_deal_leaf_of(const tri_deal *deal, int rank, int i);

// By rounds.
int tri_deal_rounds(const tri_deal *deal);
int tri_deal_round_of(const tri_deal *deal, int i);
