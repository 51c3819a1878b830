check_PROGRAMS += \
  tests/parallel/sum_tree_test \
  tests/parallel/data_parallel_test
