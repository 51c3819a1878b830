check_PROGRAMS += \
  tests/parallel/sum_tree_test
