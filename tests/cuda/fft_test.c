// timeout: 300
// The tests of tests/device/fft_test.c for the CUDA backend, on the double of cuFFT.
#define TEST_DEVICE "cuda"
#include "device/fft_test.c"
