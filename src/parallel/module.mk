libtrireme_a_SOURCES += \
  src/parallel/bucket_exchange.c \
  src/parallel/bucket_exchange.h \
  src/parallel/buckets.c \
  src/parallel/buckets.h \
  src/parallel/data_parallel.c \
  src/parallel/deal.c \
  src/parallel/deal.h \
  src/parallel/grid.c \
  src/parallel/grid_comm.c \
  src/parallel/leaf_exchange.c \
  src/parallel/leaf_exchange.h \
  src/parallel/partition.c \
  src/parallel/pipeline.c \
  src/parallel/pipeline_channel.c \
  src/parallel/pipeline_channel.h \
  src/parallel/pipeline_plan.c \
  src/parallel/pipeline_plan.h \
  src/parallel/pipeline_schedule.c \
  src/parallel/pipeline_schedule_check.c \
  src/parallel/pipeline_schedule_private.h \
  src/parallel/pipeline_schedule_simulate.c \
  src/parallel/sum_tree.c \
  src/parallel/tensor.c \
  src/parallel/tied.c \
  src/parallel/traffic.c
