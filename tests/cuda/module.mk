# The emulation of CUDA (emulation.h). Its tests build it themselves, in each of its variants.
EXTRA_DIST += \
  kernels/portable.cuh \
  tests/cuda/emulation.h \
  tests/cuda/emulation_arithmetic.h \
  tests/cuda/emulation_barrier.cpp \
  tests/cuda/emulation_build.sh \
  tests/cuda/emulation_faults.cu \
  tests/cuda/emulation_faults.h \
  tests/cuda/emulation_fibers.cpp \
  tests/cuda/emulation_grid.cpp \
  tests/cuda/emulation_internal.h \
  tests/cuda/emulation_order.cpp \
  tests/cuda/emulation_shared.cpp \
  tests/cuda/emulation_tensor.cpp \
  tests/cuda/emulation_test.cpp \
  tests/cuda/emulation_warp.cpp
dist_check_SCRIPTS += \
  tests/cuda/emulation.sh \
  tests/cuda/races.sh
