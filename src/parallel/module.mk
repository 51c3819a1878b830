libtrireme_a_SOURCES += \
  src/parallel/bucket_exchange.c \
  src/parallel/bucket_exchange.h \
  src/parallel/buckets.c \
  src/parallel/buckets.h \
  src/parallel/data_parallel.c \
  src/parallel/sum_tree.c
