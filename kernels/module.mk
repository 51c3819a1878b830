# The CUDA kernels: by nvcc into the product, and by the host's compiler on the emulation of tests/cuda.
tri_kernel_headers = \
  kernels/attention.cuh \
  kernels/attention_mma.cuh \
  kernels/columns.cuh \
  kernels/dropout.cuh \
  kernels/element.cuh \
  kernels/launch.cuh \
  kernels/launchers.h \
  kernels/norm.cuh \
  kernels/portable.cuh \
  kernels/reduce.cuh
tri_kernel_sources = \
  kernels/adamw.cu \
  kernels/attention.cu \
  kernels/attention_mma.cu \
  kernels/attention_mma_backward.cu \
  kernels/cross_entropy.cu \
  kernels/elementwise.cu \
  kernels/embedding.cu \
  kernels/layernorm.cu \
  kernels/linear.cu \
  kernels/product.cu \
  kernels/residual.cu
EXTRA_DIST += $(tri_kernel_headers) $(tri_kernel_sources)

SUFFIXES = .cu
.cu.o:
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(TRI_NVCC) $(TRI_NVCCFLAGS) $(TRI_NVCC_ARCH) -I$(top_srcdir)/include -I$(top_srcdir)/kernels $(NVCCFLAGS) -c -o $@ $<

if TRI_CUDA
noinst_LIBRARIES += libtrireme_kernels.a
TRI_CUDA_LIBS += libtrireme_kernels.a $(CUDA_LIBS)
libtrireme_kernels_a_SOURCES = $(tri_kernel_sources)
$(libtrireme_kernels_a_OBJECTS): $(tri_kernel_headers)
endif
