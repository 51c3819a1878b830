// A build without FFTW says so when a transform is planned.
#include "test.h"
#include "trireme/device/fft.h"

TEST(a_plan_names_the_option)
{
  const tri_fft_shape shape = {TRI_FFT_FORWARD, TRI_DTYPE_F32, 8, 1, {1, 8}, {1, 8}};
  tri_device *device = NULL;
  tri_fft *fft = NULL;
  EXPECT_OK(tri_device_open("cpu", NULL, &device));
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "--with-fftw", tri_fft_create(device, &shape, &fft));
  EXPECT(fft == NULL);
  tri_device_close(&device);
}

int main(void)
{
  TEST_RUN(a_plan_names_the_option);
  return test_end();
}
