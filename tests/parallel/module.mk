check_PROGRAMS += \
  tests/parallel/block_weights_test \
  tests/parallel/data_parallel_test \
  tests/parallel/grid_comm_test \
  tests/parallel/grid_test \
  tests/parallel/partition_test \
  tests/parallel/pipeline_schedule_test \
  tests/parallel/pipeline_test \
  tests/parallel/sum_tree_test \
  tests/parallel/tensor_test \
  tests/parallel/traffic_test
