# What tests/gpu/run does on a machine with a GPU, and its programs: those of tests/cuda linked with NVIDIA's libraries.
EXTRA_DIST += \
  tests/gpu/checks.py \
  tests/gpu/fetch-packages \
  tests/gpu/machine.py \
  tests/gpu/probe.cu \
  tests/gpu/probe.h \
  tests/gpu/report.py \
  tests/gpu/run \
  tests/gpu/speed.py \
  tests/gpu/steps.py

if TRI_CUDA
EXTRA_PROGRAMS += tests/gpu/backend_test tests/gpu/fft_test tests/gpu/probe_test
tests_gpu_backend_test_SOURCES = tests/gpu/backend_test.c $(KERNEL_CASES)
tests_gpu_probe_test_SOURCES = tests/gpu/probe_test.c tests/gpu/probe.h
tests_gpu_probe_test_LDADD = tests/gpu/probe.o $(LDADD)
tests/gpu/probe.o: kernels/portable.cuh tests/gpu/probe.h
CLEANFILES += tests/gpu/probe.o
endif
