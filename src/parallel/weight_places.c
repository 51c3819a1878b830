#include "parallel/weight_places.h"

#include "trireme/parallel/block_weights.h"

void tri_weight_places_clear(tri_weight_places *places, int n_blocks, int tied)
{
  *places = (tri_weight_places){n_blocks, tied, {-1, -1, -1, -1}, 0};
}

bool tri_weight_places_in_ring(const tri_weight_places *places, int block)
{
  return block != places->tied && block + 1 != places->n_blocks;
}

int tri_weight_places_find(tri_weight_places *places, int block, bool *missing)
{
  *missing = false;
  for (int p = 0; p < WEIGHT_PLACES; p++) {
    if (places->block[p] == block) return p;
  }
  int place = (places->current + 1) % WEIGHT_RING;
  if (!tri_weight_places_in_ring(places, block))
    place = block == places->tied ? WEIGHT_RING : WEIGHT_RING + 1;
  places->block[place] = block;
  *missing = true;
  return place;
}

void tri_weight_places_use(tri_weight_places *places, int block)
{
  for (int p = 0; p < WEIGHT_RING; p++) {
    if (places->block[p] == block) places->current = p;
  }
}

static void find_and_count(tri_weight_places *places, int block, int *gathers)
{
  bool missing;
  (void)tri_weight_places_find(places, block, &missing);
  gathers[block] += missing;
}

void tri_block_weights_count(int n_blocks, int tied, const int *takes, int n_takes, int *gathers)
{
  tri_weight_places places;
  tri_weight_places_clear(&places, n_blocks, tied);
  for (int i = 0; i < n_takes; i++) {
    find_and_count(&places, takes[i], gathers);
    tri_weight_places_use(&places, takes[i]);
    if (takes[i] + 1 == n_blocks && tied >= 0) find_and_count(&places, tied, gathers);
  }
}
