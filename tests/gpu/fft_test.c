// timeout: 300
// The tests of tests/device/fft_test.c on a real GPU, with cuFFT: tests/gpu/run starts them.
#define TEST_DEVICE "cuda"
#include "device/fft_test.c"
