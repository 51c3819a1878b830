# Programs that compare two kernel tables, case by case, are linked with kernel_cases.
KERNEL_CASES = \
  tests/device/kernel_arrays.c \
  tests/device/kernel_cases.c \
  tests/device/kernel_cases_classifier.c \
  tests/device/kernel_cases_embedding.c \
  tests/device/kernel_cases_matrix.c \
  tests/device/kernel_cases_norm.c \
  tests/device/kernel_cases_refusals.c
EXTRA_DIST += \
  tests/device/kernel_arrays.h \
  tests/device/kernel_cases.h \
  tests/device/kernel_cases_common.h

check_PROGRAMS += \
  tests/device/device_test \
  tests/device/gradient_test \
  tests/device/memory_limits_test \
  tests/device/reference_test \
  tests/device/reference_threads_test
tests_device_reference_threads_test_SOURCES = tests/device/reference_threads_test.c $(KERNEL_CASES)

check_PROGRAMS += \
  tests/device/linear_test
tests_device_linear_test_SOURCES = tests/device/linear_test.c $(KERNEL_CASES)

check_PROGRAMS += \
  tests/device/onednn_test
tests_device_onednn_test_SOURCES = tests/device/onednn_test.c $(KERNEL_CASES)

# The vector kernels, and pieces of them compiled for each instruction set.
check_PROGRAMS += tests/device/vector_test
EXTRA_DIST += tests/device/vector_pieces.h
tests_device_vector_test_SOURCES = tests/device/vector_test.c $(KERNEL_CASES)
tests_device_vector_test_LDADD = $(vector_pieces) $(LDADD)
vector_pieces = tests/device/libvector_pieces_baseline.a
check_LIBRARIES += tests/device/libvector_pieces_baseline.a
tests_device_libvector_pieces_baseline_a_SOURCES = tests/device/vector_pieces.c
tests_device_libvector_pieces_baseline_a_CFLAGS = $(libtrireme_vector_baseline_a_CFLAGS)
if TRI_X86
vector_pieces += tests/device/libvector_pieces_avx2.a tests/device/libvector_pieces_avx512.a
check_LIBRARIES += tests/device/libvector_pieces_avx2.a tests/device/libvector_pieces_avx512.a
tests_device_libvector_pieces_avx2_a_SOURCES = tests/device/vector_pieces.c
tests_device_libvector_pieces_avx2_a_CFLAGS = $(libtrireme_vector_avx2_a_CFLAGS)
tests_device_libvector_pieces_avx512_a_SOURCES = tests/device/vector_pieces.c
tests_device_libvector_pieces_avx512_a_CFLAGS = $(libtrireme_vector_avx512_a_CFLAGS)
endif

check_PROGRAMS += \
  tests/device/gemm_bf16_test
tests_device_gemm_bf16_test_SOURCES = tests/device/gemm_bf16_test.c src/device/cpu/vector/gemm_bf16.c
tests_device_gemm_bf16_test_CFLAGS = $(AM_CFLAGS) -DTRI_ISA_SUFFIX=widened

# How fast the kernels are: make bench/kernels.
EXTRA_PROGRAMS += bench/kernels
bench_kernels_LDADD = $(vector_pieces) $(LDADD)

if TRI_FFTW
check_PROGRAMS += tests/device/fft_test
else
check_PROGRAMS += tests/device/fft_absent_test
endif
