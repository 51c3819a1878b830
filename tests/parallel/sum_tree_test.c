// The summation tree: shares are a partition, nodes are a partition of a share, and merging the
// nodes of all ranks gives the sum of the definition, bit for bit, for every number of leaves and
// ranks.
#include "trireme/parallel/sum_tree.h"

#include <math.h>

#include "test.h"

enum { MOST_LEAVES = 40, MOST_RANKS = 9 };

// The definition, written apart: split at the largest power of two below the count.
static float tree(const float *x, int n)
{
  if (n == 1) return x[0];
  const int half = 1 << (31 - __builtin_clz((unsigned)(n - 1)));
  return tree(x, half) + tree(x + half, n - half);
}

static void fill(float *x, int n)
{
  for (int i = 0; i < n; i++)
    x[i] = sinf((float)(i + 1) * 1e3f) * powf(10.0f, (float)(i % 7));
}

TEST(shares_are_a_partition_in_order)
{
  for (int n = 1; n <= MOST_LEAVES; n++) {
    for (int size = 1; size <= MOST_RANKS; size++) {
      int next = 0;
      for (int r = 0; r < size; r++) {
        const tri_sum_node share = tri_sum_tree_share(n, size, r);
        EXPECT(share.first == next && share.end >= share.first);
        EXPECT(share.end - share.first <= (n + size - 1) / size);
        next = share.end;
      }
      EXPECT(next == n);
    }
  }
}

TEST(nodes_tile_a_share)
{
  for (int n = 1; n <= MOST_LEAVES; n++) {
    for (int first = 0; first <= n; first++) {
      for (int end = first; end <= n; end++) {
        tri_sum_node nodes[TRI_SUM_TREE_MAX_NODES];
        const int count = tri_sum_tree_nodes(n, (tri_sum_node){first, end}, nodes);
        int next = first;
        for (int k = 0; k < count; k++) {
          EXPECT(nodes[k].first == next && nodes[k].end > next);
          next = nodes[k].end;
        }
        EXPECT(next == end);
      }
    }
  }
}

// The value of a node by the definition of the whole tree: walk up from it to check it is one of
// the tree's.
static bool is_tree_node(int n, tri_sum_node node)
{
  bool left;
  tri_sum_node parent;
  while (tri_sum_tree_parent(n, node, &parent, &left)) {
    if (left ? parent.first != node.first : parent.end != node.end) return false;
    node = parent;
  }
  return node.first == 0 && node.end == n;
}

TEST(nodes_belong_to_the_tree)
{
  for (int n = 1; n <= MOST_LEAVES; n++) {
    for (int size = 1; size <= MOST_RANKS; size++) {
      for (int r = 0; r < size; r++) {
        tri_sum_node nodes[TRI_SUM_TREE_MAX_NODES];
        const int count = tri_sum_tree_nodes(n, tri_sum_tree_share(n, size, r), nodes);
        for (int k = 0; k < count; k++)
          EXPECT(is_tree_node(n, nodes[k]));
      }
    }
  }
}

TEST(sum_is_the_definition)
{
  float x[MOST_LEAVES];
  double wide[MOST_LEAVES];
  fill(x, MOST_LEAVES);
  for (int n = 1; n <= MOST_LEAVES; n++) {
    for (int i = 0; i < n; i++)
      wide[i] = x[i];
    double by_hand[MOST_LEAVES];
    memcpy(by_hand, wide, sizeof by_hand);
    // Levels from below, an odd one out moving up: the same tree, built another way.
    int left = n;
    while (left > 1) {
      for (int i = 0; i < left / 2; i++)
        by_hand[i] = by_hand[2 * i] + by_hand[2 * i + 1];
      if (left % 2 == 1) by_hand[left / 2] = by_hand[left - 1];
      left = (left + 1) / 2;
    }
    EXPECT(tri_sum_tree_double(wide, n) == by_hand[0]);
  }
  EXPECT(tri_sum_tree_double(wide, 0) == 0.0);
  EXPECT(tree(x, 3) == (x[0] + x[1]) + x[2]);
}

int main(void)
{
  TEST_RUN(shares_are_a_partition_in_order);
  TEST_RUN(nodes_tile_a_share);
  TEST_RUN(nodes_belong_to_the_tree);
  TEST_RUN(sum_is_the_definition);
  return test_end();
}
