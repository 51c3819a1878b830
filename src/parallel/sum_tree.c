#include "trireme/parallel/sum_tree.h"

// The node's children: the left one takes the largest power of two below its leaves.
static int split_of(tri_sum_node node)
{
  int half = 1;
  while (2 * half < node.end - node.first)
    half *= 2;
  return node.first + half;
}

bool tri_sum_tree_parent(int n, tri_sum_node node, tri_sum_node *parent, bool *is_left)
{
  tri_sum_node above = {0, n};
  while (above.first != node.first || above.end != node.end) {
    const int split = split_of(above);
    const bool left = node.end <= split;
    const tri_sum_node child =
        left ? (tri_sum_node){above.first, split} : (tri_sum_node){split, above.end};
    if (child.first == node.first && child.end == node.end) {
      *parent = above;
      *is_left = left;
      return true;
    }
    above = child;
  }
  return false;
}

bool tri_sum_tree_siblings(int n, tri_sum_node left, tri_sum_node right, tri_sum_node *parent)
{
  tri_sum_node left_parent, right_parent;
  bool left_is_left, right_is_left;
  if (!tri_sum_tree_parent(n, left, &left_parent, &left_is_left)) return false;
  if (!tri_sum_tree_parent(n, right, &right_parent, &right_is_left)) return false;
  *parent = left_parent;
  return left_is_left && !right_is_left && left_parent.first == right_parent.first &&
         left_parent.end == right_parent.end;
}

tri_sum_node tri_sum_tree_share(int n, int size, int rank)
{
  const int each = n / size, more = n % size;
  const int first = rank * each + (rank < more ? rank : more);
  return (tri_sum_node){first, first + each + (rank < more ? 1 : 0)};
}

static int collect(tri_sum_node node, tri_sum_node share, tri_sum_node *nodes, int n_nodes)
{
  if (node.end <= share.first || node.first >= share.end) return n_nodes;
  if (share.first <= node.first && node.end <= share.end) {
    nodes[n_nodes] = node;
    return n_nodes + 1;
  }
  const int split = split_of(node);
  n_nodes = collect((tri_sum_node){node.first, split}, share, nodes, n_nodes);
  return collect((tri_sum_node){split, node.end}, share, nodes, n_nodes);
}

int tri_sum_tree_nodes(int n, tri_sum_node share, tri_sum_node nodes[TRI_SUM_TREE_MAX_NODES])
{
  if (share.first >= share.end) return 0;
  return collect((tri_sum_node){0, n}, share, nodes, 0);
}

static double sum_node(const double *values, tri_sum_node node)
{
  if (node.end - node.first == 1) return values[node.first];
  const int split = split_of(node);
  return sum_node(values, (tri_sum_node){node.first, split}) +
         sum_node(values, (tri_sum_node){split, node.end});
}

double tri_sum_tree_double(const double *values, int n)
{
  return n == 0 ? 0.0 : sum_node(values, (tri_sum_node){0, n});
}
