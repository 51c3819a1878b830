# The emulation of CUDA (emulation.h). Its tests build it themselves, in each of its variants.
EXTRA_DIST += \
  tests/cuda/mutations.sh \
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
  tests/cuda/launchers_direct.cpp \
  tests/cuda/launchers_direct.h \
  tests/cuda/launchers_test.c \
  tests/cuda/sass_count.c
dist_check_SCRIPTS += \
  tests/cuda/emulation.sh \
  tests/cuda/launchers.sh \
  tests/cuda/launchers_address.sh \
  tests/cuda/launchers_threads.sh \
  tests/cuda/nvcc_report.sh \
  tests/cuda/races.sh
# The doubles of NVIDIA's libraries (doubles.h), built by their tests too.
EXTRA_DIST += \
  tests/cuda/double_copy.c \
  tests/cuda/double_core.c \
  tests/cuda/double_cublas.c \
  tests/cuda/double_cufft.c \
  tests/cuda/double_device.c \
  tests/cuda/double_graph.c \
  tests/cuda/double_launch.cpp \
  tests/cuda/double_memory.c \
  tests/cuda/double_mpi.c \
  tests/cuda/double_mpi.h \
  tests/cuda/double_nccl.c \
  tests/cuda/double_nccl.h \
  tests/cuda/double_nccl_exchange.c \
  tests/cuda/double_queue.c \
  tests/cuda/doubles.h \
  tests/cuda/backend_test.c \
  tests/cuda/fft_test.c \
  tests/cuda/stream_races_build.sh \
  tests/cuda/stream_races_test.c \
  tests/cuda/two_parts.xml \
  tests/cuda/doubles_build.sh \
  tests/cuda/doubles_kernel.cu \
  tests/cuda/doubles_kernel.h \
  tests/cuda/doubles_nccl_test.c \
  tests/cuda/doubles_test.c
dist_check_SCRIPTS += \
  tests/cuda/doubles.sh \
  tests/cuda/doubles_nccl.sh \
  tests/cuda/exchange_races.sh \
  tests/cuda/stream_races.sh \
  tests/cuda/gpu_rehearsal.sh \
  tests/cuda/train.sh \
  tests/cuda/train_ranks.sh \
  tests/cuda/transport.sh

# The product on the doubles: the same C objects, the kernels on the emulation, no library of NVIDIA's.
if TRI_CUDA
tests_cuda_doubles = \
  tests/cuda/doubles/double_copy.o \
  tests/cuda/doubles/double_core.o \
  tests/cuda/doubles/double_cublas.o \
  tests/cuda/doubles/double_cufft.o \
  tests/cuda/doubles/double_device.o \
  tests/cuda/doubles/double_graph.o \
  tests/cuda/doubles/double_launch.o \
  tests/cuda/doubles/double_memory.o \
  tests/cuda/doubles/double_mpi.o \
  tests/cuda/doubles/double_nccl.o \
  tests/cuda/doubles/double_nccl_exchange.o \
  tests/cuda/doubles/double_queue.o \
  tests/cuda/doubles/emulation_barrier.o \
  tests/cuda/doubles/emulation_fibers.o \
  tests/cuda/doubles/emulation_grid.o \
  tests/cuda/doubles/emulation_order.o \
  tests/cuda/doubles/emulation_shared.o \
  tests/cuda/doubles/emulation_tensor.o \
  tests/cuda/doubles/emulation_warp.o \
  $(tri_kernel_sources:kernels/%.cu=tests/cuda/doubles/%.o)
tests_cuda_doubles_cppflags = -I$(top_srcdir)/include -I$(top_srcdir)/tests -I$(top_srcdir)/tests/cuda \
  -I$(top_srcdir)/kernels -isystem $(TRI_CUDA_DIR)/include $(FFTW_CFLAGS) $(CPPFLAGS)
tests_cuda_doubles_cxx = $(CXX) -std=c++17 -O2 -g -Wno-unknown-pragmas -fno-strict-aliasing -ffp-contract=off \
  $(tests_cuda_doubles_cppflags) -x c++ -c -o $@ $<
$(tests_cuda_doubles): $(tri_kernel_headers) tests/cuda/doubles.h tests/cuda/emulation.h \
  tests/cuda/emulation_arithmetic.h tests/cuda/emulation_internal.h
tests/cuda/doubles/%.o: kernels/%.cu
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(tests_cuda_doubles_cxx)
tests/cuda/doubles/%.o: tests/gpu/%.cu
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(tests_cuda_doubles_cxx)
tests/cuda/doubles/%.o: tests/cuda/%.cpp
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(tests_cuda_doubles_cxx)
tests/cuda/doubles/%.o: tests/cuda/%.c
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(CC) -std=gnu11 -O2 -g $(tests_cuda_doubles_cppflags) -c -o $@ $<
tests/cuda/libdoubles.a: $(tests_cuda_doubles)
	$(AM_V_AR)rm -f $@ && $(AR) cr $@ $(tests_cuda_doubles)
CLEANFILES += tests/cuda/libdoubles.a $(tests_cuda_doubles)
tests_cuda_ldadd = libtrireme.a $(TRI_ISA_LIBS) tests/cuda/libdoubles.a -lfftw3 -lfftw3f -lstdc++ $(TRI_LIBS)

EXTRA_PROGRAMS += tests/cuda/trireme_on_doubles
tests_cuda_trireme_on_doubles_SOURCES = $(trireme_SOURCES)
tests_cuda_trireme_on_doubles_LDADD = $(tests_cuda_ldadd)
# transport.sh runs these at several rank counts, on several schedules.
EXTRA_PROGRAMS += tests/cuda/data_parallel_test tests/cuda/pipeline_test tests/cuda/transport_test
tests_cuda_data_parallel_test_SOURCES = tests/parallel/data_parallel_test.c
tests_cuda_data_parallel_test_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_QUICK
tests_cuda_data_parallel_test_LDADD = $(tests_cuda_ldadd)
tests_cuda_pipeline_test_SOURCES = tests/parallel/pipeline_test.c
tests_cuda_pipeline_test_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_QUICK
tests_cuda_pipeline_test_LDADD = $(tests_cuda_ldadd)
tests_cuda_transport_test_SOURCES = tests/comm/transport_test.c
tests_cuda_transport_test_LDADD = $(tests_cuda_ldadd)
check_PROGRAMS += tests/cuda/backend_test tests/cuda/fft_test tests/cuda/probe_test
tests_cuda_fft_test_LDADD = $(tests_cuda_ldadd)
tests_cuda_backend_test_SOURCES = tests/cuda/backend_test.c $(KERNEL_CASES)
tests_cuda_backend_test_LDADD = $(tests_cuda_ldadd)
tests_cuda_probe_test_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests/gpu
tests_cuda_probe_test_SOURCES = tests/gpu/probe_test.c tests/gpu/probe.h
tests_cuda_probe_test_LDADD = tests/cuda/doubles/probe.o $(tests_cuda_ldadd)
CLEANFILES += tests/cuda/doubles/probe.o
EXTRA_PROGRAMS += tests/cuda/device_speed_on_doubles
tests_cuda_device_speed_on_doubles_SOURCES = bench/device_speed.c
tests_cuda_device_speed_on_doubles_LDADD = $(tests_cuda_ldadd)
endif
