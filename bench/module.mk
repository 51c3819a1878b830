EXTRA_PROGRAMS += bench/matmul_speed
bench_matmul_speed_SOURCES = \
  bench/matmul_speed.c \
  bench/onednn_product.c \
  bench/onednn_product.h \
  bench/peak.c \
  bench/peak.h

EXTRA_PROGRAMS += bench/device_speed

if TRI_FFTW
EXTRA_PROGRAMS += bench/fft
endif

# Files, not the folder: automake would also copy what was built in it.
EXTRA_DIST += \
  bench/matmul \
  bench/runs.py \
  bench/torch_gpt.py \
  bench/torch_products.py \
  bench/train_vs_torch \
  bench/weak_scaling
