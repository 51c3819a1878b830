// The fixed binary tree in which the contributions of a global batch are summed, and the part of it
// that a rank can do alone. Local, pure arithmetic.
//
// Leaves are the sum groups of the global batch in order, n of them. The tree over leaves [0, n)
// splits at the largest power of two below n. It belongs to the job file: whoever computes a leaf,
// the sums are the same.
//
// A rank that holds leaves [first, end) can finish the maximal aligned nodes inside that range
// alone; there are at most 2 log2(n) of them. Merging all ranks' nodes in leaf order with
// tri_sum_tree_merges gives the root.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// A node: leaves [first, end).
typedef struct tri_sum_node {
  int first, end;
} tri_sum_node;

enum { TRI_SUM_TREE_MAX_NODES = 64 };

// The parent of a node in the tree over n leaves; false for the root.
bool tri_sum_tree_parent(int n, tri_sum_node node, tri_sum_node *parent, bool *is_left);

// Whether two nodes are the left and the right child of one parent.
bool tri_sum_tree_siblings(int n, tri_sum_node left, tri_sum_node right, tri_sum_node *parent);

// The share of `rank` when n leaves are dealt in order to `size` ranks as evenly as possible: the
// first n % size ranks get one more. May be empty.
tri_sum_node tri_sum_tree_share(int n, int size, int rank);

// The maximal nodes inside leaves [share.first, share.end), in order; returns how many (<=
// TRI_SUM_TREE_MAX_NODES).
int tri_sum_tree_nodes(int n, tri_sum_node share, tri_sum_node nodes[TRI_SUM_TREE_MAX_NODES]);

// Sums n numbers in this tree (losses and the like).
double tri_sum_tree_double(const double *values, int n);
