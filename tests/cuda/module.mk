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

# The kernels on it, behind their launchers; what nvcc makes of them.
EXTRA_DIST += \
  kernels/adamw.cu \
  kernels/attention.cu \
  kernels/attention.cuh \
  kernels/columns.cuh \
  kernels/cross_entropy.cu \
  kernels/dropout.cuh \
  kernels/element.cuh \
  kernels/elementwise.cu \
  kernels/embedding.cu \
  kernels/launch.cuh \
  kernels/launchers.h \
  kernels/layernorm.cu \
  kernels/linear.cu \
  kernels/norm.cuh \
  kernels/reduce.cuh \
  kernels/residual.cu \
  tests/cuda/launchers_direct.cpp \
  tests/cuda/launchers_test.c \
  tests/cuda/sass_count.c
dist_check_SCRIPTS += \
  tests/cuda/emulation.sh \
  tests/cuda/launchers.sh \
  tests/cuda/nvcc_report.sh \
  tests/cuda/races.sh
# The doubles of NVIDIA's libraries (doubles.h), built by their tests too.
EXTRA_DIST += \
  tests/cuda/double_copy.c \
  tests/cuda/double_core.c \
  tests/cuda/double_cublas.c \
  tests/cuda/double_cufft.c \
  tests/cuda/double_device.c \
  tests/cuda/double_launch.cpp \
  tests/cuda/double_memory.c \
  tests/cuda/double_mpi.c \
  tests/cuda/double_mpi.h \
  tests/cuda/double_nccl.c \
  tests/cuda/double_nccl.h \
  tests/cuda/double_nccl_exchange.c \
  tests/cuda/double_queue.c \
  tests/cuda/doubles.h \
  tests/cuda/doubles_build.sh \
  tests/cuda/doubles_kernel.cu \
  tests/cuda/doubles_kernel.h \
  tests/cuda/doubles_nccl_test.c \
  tests/cuda/doubles_test.c
dist_check_SCRIPTS += tests/cuda/doubles.sh tests/cuda/doubles_nccl.sh
