// Wire bytes of a step by formula: what one rank sends along each axis of the grid.
//
// Local, pure, in whole numbers: what is counted (tri_comm_bytes_sent) must equal these, to the
// byte. As there, each receiver is counted as if it got its bytes straight from their owner; over
// all ranks that is what rings and trees move too. docs/layouts.md has the same in letters, and
// sources. Sums of gradients travel in f32, 4 bytes.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// --- the pieces

// All ranks get what each of them owns: a rank sends its part to all others.
int64_t tri_traffic_all_gather(int n_ranks, int64_t own_bytes);
// Each rank gets its part from all others: a rank sends what it does not own.
int64_t tri_traffic_reduce_scatter(int64_t all_bytes, int64_t own_bytes);
// The two, one after the other.
int64_t tri_traffic_all_reduce(int n_ranks, int64_t all_bytes, int64_t own_bytes);

// --- data (and context, where both hold replicas): gradients, and weights with ZeRO

typedef struct tri_traffic_replicas {
  int n_ranks;        // that hold the same parameters
  int64_t n_elements; // of an array of gradients
  int64_t n_owned;    // of these, in the slices of this rank
  int64_t n_tied;     // of the owned, of the second use of a tied array (parameter.h): no weights
  bool tied_whole;    // which all get, with zero, too: another stage holds the array
  int n_sums; // partial sums that this rank sends of each slice: the nodes of its leaves in the
              // tree (tri_sum_tree_nodes), with zero 2 and 3 its leaves; 0 for a rank without data
  int zero;
  int weight_bytes;   // of one weight, where weights travel (zero > 0)
  int64_t n_gathered; // zero 3: own weights, each as often as it is gathered in a step
                      // (tri_block_weights_count)
} tri_traffic_replicas;

// Rajbhandari et al. 2020, section 7: partial sums to the owners of slices, then gradients (zero 0)
// or new weights (1, 2) to all; or (3) no such end, but weights gathered whenever they are needed.
int64_t tri_traffic_of_replicas(const tri_traffic_replicas *t);

// --- pipeline: hidden states and their gradients at the cuts

typedef struct tri_traffic_pipeline {
  int n_stages, n_virtual, stage;
  int n_microbatches;    // of this pipeline
  int64_t message_bytes; // of one micro-batch at a cut
  int64_t tied_bytes;    // of the sum that the two ends of a tied array send each other; 0: none
} tri_traffic_pipeline;

// Narayanan et al. 2021, section 3: activations to the next virtual stage and gradients to the one
// before, for each micro-batch; a cut inside a stage costs nothing.
int64_t tri_traffic_of_pipeline(const tri_traffic_pipeline *t);

// --- tensor: hidden states around each split part

typedef struct tri_traffic_tensor {
  int n_ranks;
  int64_t n_rows;   // tokens of a micro-batch on a context rank: B T / context
  int64_t n_owned;  // of these, with sequence: split between the ranks; without: of the slice that
                    // this rank sums
  int width;        // C
  int gather_bytes; // of an element that is gathered
  int sum_bytes;    // of an element of a partial sum
  int n_blocks;     // transformer blocks of this rank
  bool embedding, head; // whether this rank holds a part of them
  int n_microbatches;
} tri_traffic_tensor;

// Korthikanti et al. 2022, section 4.2: in a block, attention and feed-forward part each gather
// before and reduce-scatter after, backward in mirror image: four of each. The embedding has the
// one forward and the other backward, the head the other way round. Without sequence the two come
// together, as an all-reduce, and are as many. In the head three f32 of each row (largest logit,
// sum of exponentials, logit of the target) are gathered from all.
int64_t tri_traffic_of_tensor(const tri_traffic_tensor *t);

// --- context: keys and values round the ring

typedef struct tri_traffic_context {
  int n_ranks;
  int64_t n_rows;   // tokens of a micro-batch on this rank: B T / context
  int width;        // of keys and values together, on this tensor rank: 2 C / tensor
  int weight_bytes; // of an element of them
  int n_blocks;     // transformer blocks of this rank
  int n_microbatches;
} tri_traffic_context;

// Liu et al. 2023, section 3: keys and values visit all other ranks, forward and again backward;
// backward their gradients, summed in f32 on the way, make one step more, home.
int64_t tri_traffic_of_context(const tri_traffic_context *t);
