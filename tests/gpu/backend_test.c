// timeout: 600
// The tests of tests/cuda/backend_test.c on a real GPU: tests/gpu/run starts them.
#define TEST_REAL_GPU
#include "cuda/backend_test.c"
