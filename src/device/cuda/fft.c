// Fourier transforms of the CUDA backend by cuFFT: twin of ../cpu/fft.c.
//
// A plan belongs to the device that is current when it is made. It allocates no work area of its
// own: the caller's is set at each execution, as is the stream, so plans may share one.
#include <cufft.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "trireme/base/memory.h"
#include "trireme/device/cuda.h"

typedef struct cuda_fft {
  tri_fft base; // first
  cufftHandle plan;
} cuda_fft;

static const char *text_of(cufftResult error)
{
  switch (error) {
  case CUFFT_INVALID_PLAN: return "CUFFT_INVALID_PLAN";
  case CUFFT_ALLOC_FAILED: return "CUFFT_ALLOC_FAILED";
  case CUFFT_INVALID_TYPE: return "CUFFT_INVALID_TYPE";
  case CUFFT_INVALID_VALUE: return "CUFFT_INVALID_VALUE";
  case CUFFT_INTERNAL_ERROR: return "CUFFT_INTERNAL_ERROR";
  case CUFFT_EXEC_FAILED: return "CUFFT_EXEC_FAILED";
  case CUFFT_SETUP_FAILED: return "CUFFT_SETUP_FAILED";
  case CUFFT_INVALID_SIZE: return "CUFFT_INVALID_SIZE";
  case CUFFT_NOT_SUPPORTED: return "CUFFT_NOT_SUPPORTED";
  default: return "unknown error";
  }
}

static tri_status error_of(cufftResult error, const char *call, const char *file, int line)
{
  const tri_status code = error == CUFFT_ALLOC_FAILED ? TRI_ERR_MEMORY : TRI_ERR_DEVICE;
  return tri_error_set(code, "cufft", file, line, "cuFFT: %.*s: %s (%d)", (int)strcspn(call, "("),
                       call, text_of(error), (int)error);
}

#define TRI_CALL_CUFFT(call) \
  do { \
    const cufftResult error_ = (call); \
    if (error_ != CUFFT_SUCCESS) return error_of(error_, #call, __FILE__, __LINE__); \
  } while (0)

static cufftType type_of(const tri_fft_shape *shape)
{
  const bool is_double = shape->dtype == TRI_DTYPE_F64;
  switch (shape->kind) {
  case TRI_FFT_R2C: return is_double ? CUFFT_D2Z : CUFFT_R2C;
  case TRI_FFT_C2R: return is_double ? CUFFT_Z2D : CUFFT_C2R;
  default: return is_double ? CUFFT_Z2Z : CUFFT_C2C;
  }
}

static tri_status make_plan(cuda_fft *fft, const tri_fft_shape *shape)
{
  long long n = shape->n;
  long long in_embed = tri_fft_in_elements(shape), out_embed = tri_fft_out_elements(shape);
  TRI_CALL_CUFFT(cufftSetAutoAllocation(fft->plan, 0));
  if (shape->batch == 0) return TRI_OK;
  TRI_CALL_CUFFT(cufftMakePlanMany64(
      fft->plan, 1, &n, &in_embed, shape->in.stride, shape->in.distance, &out_embed,
      shape->out.stride, shape->out.distance, type_of(shape), shape->batch, &fft->base.work_bytes));
  return TRI_OK;
}

tri_status tri_cuda_fft_create(tri_device *device, const tri_fft_shape *shape, tri_fft **out)
{
  tri_status status = TRI_OK;
  cuda_fft *fft = NULL;
  TRI_CALL(tri_cuda_select(device));
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &fft));
  const cufftResult error = cufftCreate(&fft->plan);
  if (error != CUFFT_SUCCESS) {
    status = error_of(error, "cufftCreate", __FILE__, __LINE__);
    goto undo_fft;
  }
  TRI_CALL_GOTO(undo_plan, make_plan(fft, shape));
  *out = &fft->base;
  return TRI_OK;

undo_plan:
  (void)cufftDestroy(fft->plan);
undo_fft:
  TRI_FREE(&fft);
  return status;
}

// An error here could be that of a device that has failed; the next call that can report one does.
void tri_cuda_fft_destroy(tri_fft *fft)
{
  (void)cufftDestroy(((cuda_fft *)fft)->plan);
  tri_free(fft);
}

tri_status tri_cuda_fft_execute(const tri_fft *fft, tri_stream *stream, void *out, void *in,
                                void *work)
{
  const cufftHandle plan = ((const cuda_fft *)fft)->plan;
  TRI_CALL(tri_cuda_select(stream->device));
  TRI_CALL_CUFFT(cufftSetStream(plan, tri_cuda_launch(stream)->stream));
  if (fft->work_bytes > 0) TRI_CALL_CUFFT(cufftSetWorkArea(plan, work));
  switch (type_of(&fft->shape)) {
  case CUFFT_R2C: TRI_CALL_CUFFT(cufftExecR2C(plan, in, out)); break;
  case CUFFT_C2R: TRI_CALL_CUFFT(cufftExecC2R(plan, in, out)); break;
  case CUFFT_D2Z: TRI_CALL_CUFFT(cufftExecD2Z(plan, in, out)); break;
  case CUFFT_Z2D: TRI_CALL_CUFFT(cufftExecZ2D(plan, in, out)); break;
  case CUFFT_C2C:
    TRI_CALL_CUFFT(cufftExecC2C(
        plan, in, out, fft->shape.kind == TRI_FFT_FORWARD ? CUFFT_FORWARD : CUFFT_INVERSE));
    break;
  case CUFFT_Z2Z:
    TRI_CALL_CUFFT(cufftExecZ2Z(
        plan, in, out, fft->shape.kind == TRI_FFT_FORWARD ? CUFFT_FORWARD : CUFFT_INVERSE));
    break;
  }
  return TRI_OK;
}
