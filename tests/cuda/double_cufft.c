// Double of cuFFT on FFTW: batched transforms of rank 1 to 3, planned by the 64-bit calls.
//
// Transforms are not scaled, as in both libraries. The work area is filled with NaN after each
// transform: nobody may rely on what lies there. A C2R transform destroys its input, as cuFFT's
// may.
#include "doubles.h"

#include <cufft.h>
#include <fftw3.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLANS = 256, MAX_RANK = 3 };

typedef struct side {
  fftw_iodim64 dims[MAX_RANK]; // n, and the strides of this side in `is`
  long long distance, last;    // last: the largest offset of one transform
} side;

typedef struct plan {
  bool used, made, allocates;
  int rank;
  cufftType type;
  long long batch;
  side in, out;
  cudaStream_t stream;
  void *work;
  size_t work_bytes;
  int device;
} plan;

typedef struct transform {
  plan p;
  void *in, *out;
  int direction;
} transform;

static plan plans[MAX_PLANS];

static plan *plan_of(cufftHandle handle)
{
  if (handle < 1 || handle >= MAX_PLANS || !plans[handle].used) double_die("cuFFT: no such plan");
  return &plans[handle];
}

static bool is_double(cufftType type)
{
  return type == CUFFT_Z2Z || type == CUFFT_D2Z || type == CUFFT_Z2D;
}

static bool real_input(cufftType type)
{
  return type == CUFFT_R2C || type == CUFFT_D2Z;
}

static bool real_output(cufftType type)
{
  return type == CUFFT_C2R || type == CUFFT_Z2D;
}

// `halved`: this side holds n / 2 + 1 values along the last axis. `embed` NULL is packed.
static side make_side(int rank, const long long *n, const long long *embed, long long stride,
                      long long distance, bool halved)
{
  side s = {.distance = distance};
  long long step = embed == NULL ? 1 : stride, packed = 1;
  for (int i = rank - 1; i >= 0; i--) {
    const long long held = halved && i == rank - 1 ? n[i] / 2 + 1 : n[i];
    s.dims[i] = (fftw_iodim64){n[i], step, 0};
    s.last += (held - 1) * step;
    step *= embed == NULL ? held : embed[i];
    packed *= held;
  }
  if (embed == NULL) s.distance = packed;
  return s;
}

cufftResult cufftCreate(cufftHandle *out)
{
  DOUBLE_ENTER(CUFFT_ALLOC_FAILED);
  for (int i = 1; i < MAX_PLANS; i++) {
    if (plans[i].used) continue;
    plans[i] = (plan){.used = true, .allocates = true, .device = double_current_device()};
    double_own(DOUBLE_FFT_PLAN, 1);
    *out = i;
    return CUFFT_SUCCESS;
  }
  return CUFFT_ALLOC_FAILED;
}

cufftResult cufftDestroy(cufftHandle handle)
{
  DOUBLE_ENTER(CUFFT_INVALID_PLAN);
  plan_of(handle)->used = false;
  double_own(DOUBLE_FFT_PLAN, -1);
  return CUFFT_SUCCESS;
}

cufftResult cufftSetAutoAllocation(cufftHandle handle, int allocates)
{
  DOUBLE_ENTER(CUFFT_INVALID_PLAN);
  plan_of(handle)->allocates = allocates != 0;
  return CUFFT_SUCCESS;
}

cufftResult cufftSetStream(cufftHandle handle, cudaStream_t stream)
{
  DOUBLE_ENTER(CUFFT_INVALID_PLAN);
  if (double_stream_device(stream) != plan_of(handle)->device)
    double_die("cufftSetStream: plan and stream on two devices");
  plan_of(handle)->stream = stream;
  return CUFFT_SUCCESS;
}

cufftResult cufftMakePlanMany64(cufftHandle handle, int rank, long long *n, long long *in_embed,
                                long long in_stride, long long in_distance, long long *out_embed,
                                long long out_stride, long long out_distance, cufftType type,
                                long long batch, size_t *work_bytes)
{
  DOUBLE_ENTER(CUFFT_INTERNAL_ERROR);
  plan *p = plan_of(handle);
  if (rank < 1 || rank > MAX_RANK || batch < 1) return CUFFT_INVALID_SIZE;
  if ((in_embed == NULL) != (out_embed == NULL)) return CUFFT_INVALID_VALUE;
  long long all = batch;
  for (int i = 0; i < rank; i++) {
    if (n[i] < 1) return CUFFT_INVALID_SIZE;
    all *= n[i];
  }
  p->rank = rank;
  p->type = type;
  p->batch = batch;
  p->in = make_side(rank, n, in_embed, in_stride, in_distance, real_output(type));
  p->out = make_side(rank, n, out_embed, out_stride, out_distance, real_input(type));
  p->work_bytes = (size_t)all * (is_double(type) ? 16 : 8);
  p->made = true;
  *work_bytes = p->work_bytes;
  return CUFFT_SUCCESS;
}

cufftResult cufftGetSize(cufftHandle handle, size_t *work_bytes)
{
  DOUBLE_ENTER(CUFFT_INVALID_PLAN);
  *work_bytes = plan_of(handle)->work_bytes;
  return CUFFT_SUCCESS;
}

cufftResult cufftSetWorkArea(cufftHandle handle, void *work)
{
  DOUBLE_ENTER(CUFFT_INVALID_PLAN);
  plan *p = plan_of(handle);
  if (p->work_bytes > 0) double_check_device(work, p->work_bytes, p->device, "work area of cuFFT");
  p->work = work;
  return CUFFT_SUCCESS;
}

cufftResult cufftGetVersion(int *version)
{
  DOUBLE_ENTER(CUFFT_INTERNAL_ERROR);
  *version = CUFFT_VERSION;
  return CUFFT_SUCCESS;
}

// One plan for both precisions: FFTW's two interfaces differ in their prefix alone.
#define TRANSFORM(X, real) \
  do { \
    X##plan made = NULL; \
    X##complex *ci = t->in, *co = t->out; \
    if (real_input(p->type)) \
      made = X##plan_guru64_dft_r2c(p->rank, (const X##iodim64 *)dims, 1, \
                                    (const X##iodim64 *)&many, (real *)t->in, co, FFTW_ESTIMATE); \
    else if (real_output(p->type)) \
      made = X##plan_guru64_dft_c2r(p->rank, (const X##iodim64 *)dims, 1, \
                                    (const X##iodim64 *)&many, ci, (real *)t->out, FFTW_ESTIMATE); \
    else \
      made = X##plan_guru64_dft(p->rank, (const X##iodim64 *)dims, 1, (const X##iodim64 *)&many, \
                                ci, co, t->direction, FFTW_ESTIMATE); \
    if (made == NULL) double_die("FFTW cannot plan this transform"); \
    X##execute(made); \
    X##destroy_plan(made); \
  } while (0)

static bool run(void *body)
{
  const transform *t = body;
  const plan *p = &t->p;
  fftw_iodim64 dims[MAX_RANK];
  for (int i = 0; i < p->rank; i++)
    dims[i] = (fftw_iodim64){p->in.dims[i].n, p->in.dims[i].is, p->out.dims[i].is};
  const fftw_iodim64 many = {p->batch, p->in.distance, p->out.distance};
  if (is_double(p->type))
    TRANSFORM(fftw_, double);
  else
    TRANSFORM(fftwf_, float);
  if (p->work != NULL) memset(p->work, 0xff, p->work_bytes);
  return true;
}

static cufftResult execute(const char *call, cufftHandle handle, void *in, void *out, int direction,
                           cufftType type)
{
  __attribute__((cleanup(double_leave))) const char *entered = double_enter(call);
  if (double_must_fail(entered) || double_sticky_error() != cudaSuccess) return CUFFT_EXEC_FAILED;
  const plan *p = plan_of(handle);
  if (!p->made) return CUFFT_INVALID_PLAN;
  if (p->type != type) return CUFFT_INVALID_TYPE;
  if (direction != CUFFT_FORWARD && direction != CUFFT_INVERSE) return CUFFT_INVALID_VALUE;
  if (!p->allocates && p->work == NULL) double_die("%s: the plan has no work area", call);
  const size_t real = is_double(type) ? 8 : 4;
  const long long n_in = (p->batch - 1) * p->in.distance + p->in.last + 1;
  const long long n_out = (p->batch - 1) * p->out.distance + p->out.last + 1;
  double_check_device(in, (size_t)n_in * real * (real_input(type) ? 1 : 2), p->device, call);
  double_check_device(out, (size_t)n_out * real * (real_output(type) ? 1 : 2), p->device, call);
  transform *t = malloc(sizeof *t);
  if (t == NULL) return CUFFT_ALLOC_FAILED;
  *t = (transform){*p, in, out, direction};
  double_count.ffts++;
  double_enqueue(p->stream, (double_work){call, run, free, t, false});
  return CUFFT_SUCCESS;
}

cufftResult cufftExecC2C(cufftHandle handle, cufftComplex *in, cufftComplex *out, int direction)
{
  return execute(__func__, handle, in, out, direction, CUFFT_C2C);
}

cufftResult cufftExecR2C(cufftHandle handle, cufftReal *in, cufftComplex *out)
{
  return execute(__func__, handle, in, out, CUFFT_FORWARD, CUFFT_R2C);
}

cufftResult cufftExecC2R(cufftHandle handle, cufftComplex *in, cufftReal *out)
{
  return execute(__func__, handle, in, out, CUFFT_INVERSE, CUFFT_C2R);
}

cufftResult cufftExecZ2Z(cufftHandle handle, cufftDoubleComplex *in, cufftDoubleComplex *out,
                         int direction)
{
  return execute(__func__, handle, in, out, direction, CUFFT_Z2Z);
}

cufftResult cufftExecD2Z(cufftHandle handle, cufftDoubleReal *in, cufftDoubleComplex *out)
{
  return execute(__func__, handle, in, out, CUFFT_FORWARD, CUFFT_D2Z);
}

cufftResult cufftExecZ2D(cufftHandle handle, cufftDoubleComplex *in, cufftDoubleReal *out)
{
  return execute(__func__, handle, in, out, CUFFT_INVERSE, CUFFT_Z2D);
}
