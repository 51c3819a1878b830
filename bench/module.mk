EXTRA_PROGRAMS += bench/matmul_speed
bench_matmul_speed_SOURCES = \
  bench/matmul_speed.c \
  bench/onednn_product.c \
  bench/onednn_product.h \
  bench/peak.c \
  bench/peak.h
