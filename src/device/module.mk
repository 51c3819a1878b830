libtrireme_a_SOURCES += \
  src/device/arena.c \
  src/device/backends.c \
  src/device/backends.h \
  src/device/check.c \
  src/device/check.h \
  src/device/device.c \
  src/device/device_operations.h \
  src/device/graph.c \
  src/device/fft.c \
  src/device/cpu/adamw.c \
  src/device/cpu/attention.c \
  src/device/cpu/combine.h \
  src/device/cpu/cpu.c \
  src/device/cpu/cpu.h \
  src/device/cpu/cross_entropy.c \
  src/device/cpu/dropout.h \
  src/device/cpu/element.h \
  src/device/cpu/elementwise.c \
  src/device/cpu/embedding.c \
  src/device/cpu/fft.h \
  src/device/cpu/gemm.c \
  src/device/cpu/gemm.h \
  src/device/cpu/gemm_linear.c \
  src/device/cpu/isa.c \
  src/device/cpu/layernorm.c \
  src/device/cpu/linear.c \
  src/device/cpu/memory.c \
  src/device/cpu/memory.h \
  src/device/cpu/memory_limits.c \
  src/device/cpu/memory_limits.h \
  src/device/cpu/onednn.c \
  src/device/cpu/onednn.h \
  src/device/cpu/reference.c \
  src/device/cpu/reference.h \
  src/device/cpu/residual.c \
  src/device/cpu/vector_kernels.c

# A build without FFTW (configure --without-fftw) says so when a transform is planned.
if TRI_FFTW
libtrireme_a_SOURCES += src/device/cpu/fft.c
else
libtrireme_a_SOURCES += src/device/cpu/fft_absent.c
endif

if TRI_CUDA
libtrireme_a_SOURCES += \
  src/device/cuda/cuda.c \
  src/device/cuda/cuda.h \
  src/device/cuda/error.c \
  src/device/cuda/fft.c \
  src/device/cuda/graph.c \
  src/device/cuda/kernels.c \
  src/device/cuda/linear.c \
  src/device/cuda/operations.c
endif

# The vector kernels, once for each instruction set.
tri_vector_sources = \
  src/device/cpu/vector/attention.h \
  src/device/cpu/vector/dropout.h \
  src/device/cpu/vector/product.h \
  src/device/cpu/vector/tables.h \
  src/device/cpu/vector/vector.h \
  src/device/cpu/vector/adamw.c \
  src/device/cpu/vector/all.c \
  src/device/cpu/vector/attention_backward.c \
  src/device/cpu/vector/attention_decode.c \
  src/device/cpu/vector/attention_forward.c \
  src/device/cpu/vector/cross_entropy.c \
  src/device/cpu/vector/elementwise.c \
  src/device/cpu/vector/embedding.c \
  src/device/cpu/vector/gelu.h \
  src/device/cpu/vector/gemm_f32.c \
  src/device/cpu/vector/gemm_finish.h \
  src/device/cpu/vector/gemm_slot.h \
  src/device/cpu/vector/gemm_tile.h \
  src/device/cpu/vector/layernorm.c

noinst_LIBRARIES += libtrireme_vector_baseline.a
TRI_ISA_LIBS += libtrireme_vector_baseline.a
libtrireme_vector_baseline_a_SOURCES = $(tri_vector_sources)
libtrireme_vector_baseline_a_CFLAGS = $(AM_CFLAGS) -DTRI_ISA_SUFFIX=baseline

if TRI_X86
noinst_LIBRARIES += libtrireme_vector_avx2.a libtrireme_vector_avx512.a
TRI_ISA_LIBS += libtrireme_vector_avx2.a libtrireme_vector_avx512.a
libtrireme_vector_avx2_a_SOURCES = $(tri_vector_sources)
libtrireme_vector_avx2_a_CFLAGS = $(AM_CFLAGS) -DTRI_ISA_SUFFIX=avx2 -march=x86-64-v3
libtrireme_vector_avx512_a_SOURCES = $(tri_vector_sources)
libtrireme_vector_avx512_a_CFLAGS = $(AM_CFLAGS) -DTRI_ISA_SUFFIX=avx512 -march=x86-64-v4

# Only the matrix products use the machine's bf16 units.
noinst_LIBRARIES += libtrireme_vector_avx512_bf16.a
TRI_ISA_LIBS += libtrireme_vector_avx512_bf16.a
libtrireme_vector_avx512_bf16_a_SOURCES = src/device/cpu/vector/gemm_bf16.c
libtrireme_vector_avx512_bf16_a_CFLAGS = $(AM_CFLAGS) -DTRI_ISA_SUFFIX=avx512_bf16 -march=x86-64-v4 \
  -mavx512bf16
endif
