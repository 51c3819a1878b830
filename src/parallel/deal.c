#include "parallel/deal.h"

tri_sum_node tri_deal_leaf(const tri_deal *deal, int leaf)
{
  int first = leaf * deal->leaf_microbatches, end = first + deal->leaf_microbatches;
  if (leaf >= deal->n_leaves) first = end = deal->n_microbatches;
  return (tri_sum_node){first, end < deal->n_microbatches ? end : deal->n_microbatches};
}

static tri_sum_node leaves_of(const tri_deal *deal, int rank)
{
  return tri_sum_tree_share(deal->n_leaves, deal->size, rank);
}

int tri_deal_rounds(const tri_deal *deal)
{
  return (deal->n_leaves + deal->size - 1) / deal->size;
}

int tri_deal_round_of(const tri_deal *deal, int i)
{
  return i / deal->leaf_microbatches;
}

// Places of a round: as many as its fullest leaf, the first, has micro-batches.
static int round_width(const tri_deal *deal, int round)
{
  const tri_sum_node leaf = tri_deal_leaf(deal, round * deal->size);
  return leaf.end - leaf.first;
}

int tri_deal_count(const tri_deal *deal, int rank)
{
  if (deal->by_rounds) {
    const int last = tri_deal_rounds(deal) - 1;
    return last * deal->leaf_microbatches + round_width(deal, last);
  }
  const tri_sum_node leaves = leaves_of(deal, rank);
  return tri_deal_leaf(deal, leaves.end).first - tri_deal_leaf(deal, leaves.first).first;
}

int tri_deal_leaf_of(const tri_deal *deal, int rank, int i)
{
  const int k = i / deal->leaf_microbatches;
  return deal->by_rounds ? k * deal->size + rank : leaves_of(deal, rank).first + k;
}

int tri_deal_microbatch(const tri_deal *deal, int rank, int i)
{
  const tri_sum_node leaf = tri_deal_leaf(deal, tri_deal_leaf_of(deal, rank, i));
  const int place = i % deal->leaf_microbatches;
  if (!deal->by_rounds) return leaf.first + place;
  const int empty = round_width(deal, tri_deal_round_of(deal, i)) - (leaf.end - leaf.first);
  return place < empty ? -1 : leaf.first + place - empty;
}

// Places without a micro-batch begin with the round, too, so that what they add to is defined.
bool tri_deal_begins_leaf(const tri_deal *deal, int rank, int i)
{
  const int microbatch = tri_deal_microbatch(deal, rank, i);
  if (microbatch < 0) return i % deal->leaf_microbatches == 0;
  return microbatch == tri_deal_leaf(deal, tri_deal_leaf_of(deal, rank, i)).first;
}

bool tri_deal_ends_leaf(const tri_deal *deal, int rank, int i)
{
  const int place = i % deal->leaf_microbatches;
  if (deal->by_rounds) return place + 1 == round_width(deal, tri_deal_round_of(deal, i));
  const tri_sum_node leaf = tri_deal_leaf(deal, tri_deal_leaf_of(deal, rank, i));
  return leaf.first + place + 1 == leaf.end;
}
