// The grid of ranks: which rank holds which part of the model and which part of the data.
//
// Local, pure arithmetic on plain numbers: no messages, no model. All ranks that give the same
// numbers get the same grid, or the same error.
//
// A grid has four axes. Along `tensor` ranks split each block of the model, along `context` the
// tokens of a sample, along `data` the micro-batches of a step, along `pipeline` the chain of
// blocks. Ranks are numbered with tensor fastest, then context, data, pipeline:
//
//   rank = ((pipeline_rank * data + data_rank) * context + context_rank) * tensor + tensor_rank
//
// so that the axis whose ranks exchange most has neighbours, which share a node: where the ranks of
// a node are a multiple of `tensor`, every tensor group lies inside one node. docs/layouts.md has
// the traffic behind this order, and why pipeline comes last.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "trireme/base/status.h"
#include "trireme/parallel/pipeline_schedule.h"

typedef enum tri_grid_axis {
  TRI_GRID_TENSOR,
  TRI_GRID_CONTEXT,
  TRI_GRID_DATA,
  TRI_GRID_PIPELINE,
  TRI_GRID_AXES // their number
} tri_grid_axis;

// A set of axes, for groups over more than one.
#define TRI_GRID_SET(axis) (1u << (axis))

// A grid, or the wish for one.
typedef struct tri_grid {
  int size[TRI_GRID_AXES]; // ranks along each axis, >= 1; in a wish, data may be 0: auto, what the
                           // other axes leave
  int n_virtual;           // virtual stages that a pipeline rank holds, >= 1
  tri_pipeline_kind schedule;
  int zero;      // 0, 1, 2 or 3: what data ranks shard; with one of them there is nothing to shard,
                 // and each is the same as 0
  bool sequence; // between split layers, tensor ranks split the tokens too
} tri_grid;

// What a grid has to fit, all >= 1 but ranks_per_node.
typedef struct tri_grid_limits {
  int n_ranks;        // that were started
  int ranks_per_node; // rank r is on node r / ranks_per_node; 0: nodes have different numbers of
                      // them
  int n_blocks;       // of the model's chain, embedding and head included
  int n_heads;        // of attention
  int vocabulary;
  int T;           // tokens of a sample
  bool no_context; // the job cannot split samples
} tri_grid_limits;

enum { TRI_GRID_NEAREST = 3, TRI_GRID_TEXT_BYTES = 160 };

// "tensor", "context", "data", "pipeline".
const char *tri_grid_axis_name(tri_grid_axis axis);

// "tensor 2 x data 3 x pipeline 2 (virtual_stages 2)": what is not 1. "one rank" when all are.
//   buffer    (TRI_GRID_TEXT_BYTES), which is returned
const char *tri_grid_text(const tri_grid *grid, char *buffer);

// The name of the first rule that the grid breaks, as in docs/layouts.md; NULL: it is legal. Every
// number of `grid` and `limits` is in its range, and data is not auto.
const char *tri_grid_broken_rule(const tri_grid_limits *limits, const tri_grid *grid);

// The legal grids of n_ranks ranks nearest to a wish, nearest first; returns how many, at most
// TRI_GRID_NEAREST. The nearest changes the fewest numbers of the wish; of these, changes them
// least (the sum of the differences); of these, has fewer tensor groups that cross nodes; of these,
// has the smaller first number that differs, in the order tensor, context, data, pipeline. The
// numbers are the four axes and n_virtual; data does not count when it is auto. For each four axes
// only the n_virtual nearest to the wish is considered; schedule, zero and sequence stay.
int tri_grid_nearest(const tri_grid_limits *limits, const tri_grid *wish, tri_grid *nearest);

// Makes a wish a grid: fills in data where it is auto. TRI_ERR_CONFIG when a rule is broken: the
// message has the rule's name, the numbers and the nearest legal grids. TRI_ERR_ARGUMENT when a
// number is not in its range. *out untouched on error; may be the wish.
TRI_MUST_CHECK tri_status tri_grid_plan(const tri_grid_limits *limits, const tri_grid *wish,
                                        tri_grid *out);

// --- of a grid: 0 <= rank < all ranks

int tri_grid_ranks(const tri_grid *grid);
// (TRI_GRID_AXES) where a rank is on each axis, and the rank that is there.
void tri_grid_coordinates(const tri_grid *grid, int rank, int *at);
int tri_grid_rank(const tri_grid *grid, const int *at);

// Ranks that differ only along the axes of a set are a group. The groups of a set are numbered from
// 0 in the order of their first ranks, and a rank's place in its group in the order of ranks.
int tri_grid_group_size(const tri_grid *grid, unsigned axes);
int tri_grid_group(const tri_grid *grid, unsigned axes, int rank);
int tri_grid_group_place(const tri_grid *grid, unsigned axes, int rank);

// Tensor groups that do not lie inside one node; 0 where tensor divides ranks_per_node, or that is
// unknown.
int tri_grid_crossing_groups(const tri_grid *grid, int ranks_per_node);
