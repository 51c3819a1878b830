// Which block's weights are where: the rule of block_weights.h, apart from all that moves bytes.
// Private to src/parallel. Local, pure.
#pragma once

#include <stdbool.h>

enum { WEIGHT_RING = 2, WEIGHT_PLACES = WEIGHT_RING + 2 };

// Places 0 and 1 are a ring, then come that of the tied array's block and that of the last block.
typedef struct tri_weight_places {
  int n_blocks, tied;
  int block[WEIGHT_PLACES]; // what lies there, -1: nothing
  int current;              // of the ring, the one that is in use
} tri_weight_places;

void tri_weight_places_clear(tri_weight_places *places, int n_blocks, int tied);
// Where the block is, or is to be; *missing: it is to be brought there. It becomes the one in use
// only by tri_weight_places_use.
int tri_weight_places_find(tri_weight_places *places, int block, bool *missing);
void tri_weight_places_use(tri_weight_places *places, int block);
// Whether the block may take turns in the ring.
bool tri_weight_places_in_ring(const tri_weight_places *places, int block);
