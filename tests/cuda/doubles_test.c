// The doubles of cudart, cuBLASLt and cuFFT against planted mistakes, and correct programs on them.
//
// Each case runs in a child of its own; what it prints and how it ends is checked. Built and run by
// doubles.sh.
#include "doubles.h"

#include <cublasLt.h>
#include <cufft.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/doubles_kernel.h"
#include "test.h"

enum { N = 320, MISUSE = 78, LEAK = 79, WRONG = 3 };

// AddressSanitizer sees an overrun before the doubles do, and names the line.
#ifdef __SANITIZE_ADDRESS__
enum { OVERRUN = 1 };
static const char OVERRUN_TEXT[] = "doubles_kernel.cu:9 in affine";
static const char SLACK_TEXT[] = "doubles_kernel.cu:9 in affine";
#else
enum { OVERRUN = MISUSE };
static const char OVERRUN_TEXT[] = "overruns device buffer";
static const char SLACK_TEXT[] = "affine wrote outside device buffer #3";
#endif

#define OK(call) \
  do { \
    const int code_ = (int)(call); \
    if (code_ != 0) { \
      fprintf(stderr, "%s gave %d\n", #call, code_); \
      _exit(1); \
    } \
  } while (0)

static int n_cases;

// Runs `body` in a child under a schedule; its exit code and what it wrote to stderr come back.
static int run_child(void (*body)(void), const char *schedule, const char *seed, char *text,
                     size_t size)
{
  int ends[2];
  fflush(NULL);
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    (void)dup2(ends[1], 2);
    close(ends[0]);
    (void)setenv("TRI_DOUBLE_SCHEDULE", schedule, 1);
    (void)setenv("TRI_DOUBLE_SEED", seed, 1);
    body();
    exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t got;
  while (length + 1 < size && (got = read(ends[0], text + length, size - length - 1)) > 0)
    length += (size_t)got;
  text[length] = '\0';
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  n_cases++;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void expect(void (*body)(void), const char *name, const char *schedule, const char *seed,
                   int code, const char *part)
{
  char text[4096], why[4600];
  const int got = run_child(body, schedule, seed, text, sizeof text);
  if (got == code && strstr(text, part) != NULL) return;
  snprintf(why, sizeof why, "%s under %s: exit code %d, wanted %d with '%s'; it said: %s", name,
           schedule, got, code, part, text);
  test_fail(__FILE__, __LINE__, why);
}

#define EXPECT_CHILD(body, schedule, code, part) expect(body, #body, schedule, "1", code, part)
#define EXPECT_ALWAYS(body, code, part) \
  do { \
    EXPECT_CHILD(body, "eager", code, part); \
    EXPECT_CHILD(body, "lazy", code, part); \
    EXPECT_CHILD(body, "random", code, part); \
  } while (0)

// --- what the cases share

typedef struct bench {
  cudaStream_t a, b;
  cudaEvent_t event;
  float *x, *y, *host; // N each; host is pinned
} bench;

static bench set_up(void)
{
  bench s = {0};
  OK(cudaStreamCreateWithFlags(&s.a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&s.b, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&s.event, cudaEventDisableTiming));
  OK(cudaMalloc((void **)&s.x, N * sizeof(float)));
  OK(cudaMalloc((void **)&s.y, N * sizeof(float)));
  OK(cudaMallocHost((void **)&s.host, N * sizeof(float)));
  for (int i = 0; i < N; i++)
    s.host[i] = (float)i;
  return s;
}

static void tear_down(bench *s)
{
  OK(cudaFree(s->x));
  OK(cudaFree(s->y));
  OK(cudaFreeHost(s->host));
  OK(cudaEventDestroy(s->event));
  OK(cudaStreamDestroy(s->a));
  OK(cudaStreamDestroy(s->b));
}

static void up(const bench *s)
{
  OK(cudaMemcpyAsync(s->x, s->host, N * sizeof(float), cudaMemcpyHostToDevice, s->a));
}

static void down(const bench *s, cudaStream_t stream)
{
  OK(cudaMemcpyAsync(s->host, s->y, N * sizeof(float), cudaMemcpyDeviceToHost, stream));
}

static void kernel(const bench *s, int n)
{
  launch_affine(s->y, s->x, n, s->a);
  OK(cudaGetLastError());
}

static void check_host(const bench *s)
{
  for (int i = 0; i < N; i++)
    if (s->host[i] != 2 * (float)i + 1) _exit(WRONG);
}

// --- correct programs

static void two_streams(void)
{
  bench s = set_up();
  for (int repeat = 0; repeat < 3; repeat++) {
    for (int i = 0; i < N; i++)
      s.host[i] = (float)i;
    up(&s);
    kernel(&s, N);
    OK(cudaEventRecord(s.event, s.a));
    OK(cudaStreamWaitEvent(s.b, s.event, 0));
    down(&s, s.b);
    OK(cudaStreamSynchronize(s.b));
    check_host(&s);
  }
  if (double_device_synchronizations() != 0) _exit(WRONG);
  tear_down(&s);
}

static void legacy_stream_orders(void)
{
  bench s = set_up();
  cudaStream_t blocking;
  OK(cudaStreamCreate(&blocking));
  OK(cudaMemcpyAsync(s.x, s.host, N * sizeof(float), cudaMemcpyHostToDevice, blocking));
  launch_affine(s.y, s.x, N, NULL);
  OK(cudaGetLastError());
  down(&s, blocking);
  OK(cudaStreamSynchronize(blocking));
  check_host(&s);
  OK(cudaStreamDestroy(blocking));
  tear_down(&s);
}

static void polling_ends(void)
{
  bench s = set_up();
  up(&s);
  kernel(&s, N);
  down(&s, s.a);
  OK(cudaEventRecord(s.event, s.a));
  cudaError_t error;
  while ((error = cudaEventQuery(s.event)) == cudaErrorNotReady)
    (void)cudaGetLastError();
  OK(error);
  check_host(&s);
  tear_down(&s);
}

static void correct_programs(void)
{
  const char *schedules[] = {"eager", "lazy", "random"};
  for (int i = 0; i < 3; i++)
    for (int seed = 1; seed <= (i == 2 ? 8 : 1); seed++) {
      char text[8];
      snprintf(text, sizeof text, "%d", seed);
      expect(two_streams, "two_streams", schedules[i], text, 0, "");
      expect(legacy_stream_orders, "legacy_stream_orders", schedules[i], text, 0, "");
      expect(polling_ends, "polling_ends", schedules[i], text, 0, "");
    }
}

// --- planted mistakes: pointers

static void host_pointer_to_kernel(void)
{
  bench s = set_up();
  launch_affine(s.y, s.host, N, s.a);
}

static void host_touches_device(void)
{
  bench s = set_up();
  s.x[3] = 1;
}

static void use_after_free(void)
{
  bench s = set_up();
  OK(cudaFree(s.x));
  kernel(&s, N);
}

static void touch_after_free(void)
{
  bench s = set_up();
  OK(cudaFree(s.x));
  s.x[0] = 1;
}

static void kernel_overruns(void)
{
  bench s = set_up();
  kernel(&s, N + 1);
  OK(cudaStreamSynchronize(s.a));
}

// 100 elements end within the 256 bytes an allocation is rounded to: found when the kernel ends.
static void kernel_overruns_slack(void)
{
  bench s = set_up();
  float *y;
  OK(cudaMalloc((void **)&y, 100 * sizeof(float)));
  OK(cudaMemsetAsync(s.x, 0, N * sizeof(float), s.a));
  launch_affine(y, s.x, 101, s.a);
  OK(cudaGetLastError());
  OK(cudaStreamSynchronize(s.a));
}

static void copy_overruns(void)
{
  bench s = set_up();
  OK(cudaMemcpyAsync(s.x + 1, s.y, N * sizeof(float), cudaMemcpyDeviceToDevice, s.a));
}

static void pageable_copy(void)
{
  bench s = set_up();
  float here[N] = {0};
  OK(cudaMemcpyAsync(s.x, here, sizeof here, cudaMemcpyHostToDevice, s.a));
}

static void wrong_kind(void)
{
  bench s = set_up();
  OK(cudaMemcpyAsync(s.x, s.host, N * sizeof(float), cudaMemcpyDeviceToDevice, s.a));
}

static void free_twice(void)
{
  bench s = set_up();
  OK(cudaFree(s.x));
  OK(cudaFree(s.x));
}

static void mistakes_with_pointers(void)
{
  EXPECT_ALWAYS(host_pointer_to_kernel, MISUSE, "not a device pointer but pinned host memory");
  EXPECT_ALWAYS(host_touches_device, MISUSE, "the host dereferences a device pointer: buffer #1");
  EXPECT_ALWAYS(use_after_free, MISUSE, "lies in device buffer #1, freed before");
  EXPECT_ALWAYS(touch_after_free, MISUSE, "at offset 0 after cudaFree");
  EXPECT_ALWAYS(kernel_overruns, OVERRUN, OVERRUN_TEXT);
  EXPECT_ALWAYS(kernel_overruns_slack, OVERRUN, SLACK_TEXT);
  EXPECT_ALWAYS(copy_overruns, MISUSE, "1280 bytes at offset 4 overrun device buffer #1");
  EXPECT_ALWAYS(pageable_copy, MISUSE, "pageable host memory");
  EXPECT_ALWAYS(wrong_kind, MISUSE, "not a device pointer");
  EXPECT_ALWAYS(free_twice, MISUSE, "freed twice");
}

// --- planted mistakes: order

static void missing_event_wait(void)
{
  bench s = set_up();
  up(&s);
  kernel(&s, N);
  down(&s, s.b);
  OK(cudaStreamSynchronize(s.b));
  check_host(&s);
}

static void missing_synchronize(void)
{
  bench s = set_up();
  up(&s);
  kernel(&s, N);
  down(&s, s.a);
  check_host(&s);
}

static void source_overwritten_in_flight(void)
{
  bench s = set_up();
  up(&s);
  for (int i = 0; i < N; i++)
    s.host[i] = 0;
  kernel(&s, N);
  down(&s, s.a);
  OK(cudaStreamSynchronize(s.a));
  check_host(&s);
}

static void mistakes_with_order(void)
{
  EXPECT_CHILD(missing_event_wait, "lazy", WRONG, "");
  EXPECT_CHILD(missing_synchronize, "lazy", WRONG, "");
  EXPECT_CHILD(source_overwritten_in_flight, "lazy", WRONG, "");
}

// --- planted mistakes: resources and errors

static void leaked_stream(void)
{
  bench s = set_up();
  tear_down(&s);
  OK(cudaStreamCreate(&s.a));
}

static void leaked_buffer(void)
{
  bench s = set_up();
  tear_down(&s);
  OK(cudaMalloc((void **)&s.x, 4));
}

static void unchecked_launch(void)
{
  bench s = set_up();
  up(&s);
  launch_affine(s.y, s.x, N, s.a);
  OK(cudaStreamSynchronize(s.a));
}

static void destroyed_stream(void)
{
  bench s = set_up();
  OK(cudaStreamDestroy(s.a));
  up(&s);
}

static void foreign_device(void)
{
  bench s = set_up();
  OK(cudaSetDevice(1));
  float *other;
  OK(cudaMalloc((void **)&other, N * sizeof(float)));
  OK(cudaMemcpyAsync(other, s.host, N * sizeof(float), cudaMemcpyHostToDevice, s.a));
}

static void foreign_launch(void)
{
  bench s = set_up();
  OK(cudaSetDevice(1));
  launch_affine(s.y, s.x, N, s.a);
  exit(cudaGetLastError() == cudaErrorInvalidResourceHandle ? WRONG : 1);
}

static void memory_limit(void)
{
  void *p = NULL;
  if (cudaMalloc(&p, (size_t)9 << 30) != cudaErrorMemoryAllocation) _exit(1);
  if (cudaGetLastError() != cudaErrorMemoryAllocation || cudaGetLastError() != cudaSuccess)
    _exit(1);
}

static void second_malloc_fails(void)
{
  void *p = NULL, *q = NULL;
  OK(cudaMalloc(&p, 4));
  if (cudaMalloc(&q, 4) != cudaErrorMemoryAllocation) _exit(1);
  OK(cudaMalloc(&q, 4));
  exit(WRONG);
}

static void device_fails(void)
{
  bench s = set_up();
  up(&s);
  if (cudaStreamSynchronize(s.a) != cudaErrorLaunchFailure) _exit(1);
  if (cudaMemsetAsync(s.x, 0, 4, s.a) != cudaErrorLaunchFailure) _exit(1);
  exit(WRONG);
}

static void no_device(void)
{
  int n = -1;
  exit(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0 ? WRONG : 1);
}

static void no_driver(void)
{
  int n = -1;
  exit(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver ? WRONG : 1);
}

static void visible_devices(void)
{
  int n = -1;
  char bus[16];
  OK(cudaGetDeviceCount(&n));
  OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  exit(n == 2 && strcmp(bus, "0000:04:00.0") == 0 ? WRONG : 1);
}

static void resources_and_errors(void)
{
  EXPECT_ALWAYS(leaked_stream, LEAK, "leak: 1 streams");
  EXPECT_ALWAYS(leaked_buffer, LEAK, "leak: 1 device buffers");
  EXPECT_ALWAYS(unchecked_launch, MISUSE, "error of the launch of affine");
  EXPECT_ALWAYS(destroyed_stream, MISUSE, "destroyed stream");
  EXPECT_CHILD(memory_limit, "lazy", 0, "");
  setenv("TRI_DOUBLE_DEVICES", "2", 1);
  EXPECT_ALWAYS(foreign_device, MISUSE, "belongs to device 1, the work runs on device 0");
  EXPECT_ALWAYS(foreign_launch, WRONG, "");
  setenv("TRI_DOUBLE_DEVICES", "4", 1);
  setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
  EXPECT_CHILD(visible_devices, "lazy", WRONG, "");
  unsetenv("CUDA_VISIBLE_DEVICES");
  setenv("TRI_DOUBLE_DEVICES", "0", 1);
  EXPECT_CHILD(no_device, "lazy", WRONG, "");
  setenv("TRI_DOUBLE_DEVICES", "none", 1);
  EXPECT_CHILD(no_driver, "lazy", WRONG, "");
  unsetenv("TRI_DOUBLE_DEVICES");
  setenv("TRI_DOUBLE_FAIL", "cudaMalloc:2", 1);
  EXPECT_CHILD(second_malloc_fails, "lazy", WRONG, "");
  setenv("TRI_DOUBLE_FAIL", "async:1", 1);
  EXPECT_ALWAYS(device_fails, WRONG, "");
  unsetenv("TRI_DOUBLE_FAIL");
}

// --- cublasLt

enum { M = 24, K = 10, COLUMNS = 6 };

typedef struct matmul {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t what;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulHeuristicResult_t found;
  float *device, *host; // A (M, K), B (K, COLUMNS), D and aux (M, COLUMNS), bias (M)
} matmul;

enum { A_AT = 0, B_AT = M * K, D_AT = B_AT + K * COLUMNS, AUX_AT = D_AT + M * COLUMNS };
enum { BIAS_AT = AUX_AT + M * COLUMNS, ALL = BIAS_AT + M };

static cublasStatus_t plan(matmul *p, uint32_t epilogue, int64_t ld_of_a)
{
  OK(cublasLtCreate(&p->handle));
  OK(cublasLtMatmulDescCreate(&p->what, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  OK(cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                    sizeof epilogue));
  OK(cudaMalloc((void **)&p->device, ALL * sizeof(float)));
  OK(cudaMallocHost((void **)&p->host, ALL * sizeof(float)));
  const float *bias = p->device + BIAS_AT, *aux = p->device + AUX_AT;
  const int64_t aux_ld = M;
  OK(cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                    sizeof bias));
  OK(cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux,
                                    sizeof aux));
  OK(cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld,
                                    sizeof aux_ld));
  OK(cublasLtMatrixLayoutCreate(&p->a, CUDA_R_32F, M, K, ld_of_a));
  OK(cublasLtMatrixLayoutCreate(&p->b, CUDA_R_32F, K, COLUMNS, K));
  OK(cublasLtMatrixLayoutCreate(&p->d, CUDA_R_32F, M, COLUMNS, M));
  int n = 0;
  return cublasLtMatmulAlgoGetHeuristic(p->handle, p->what, p->a, p->b, p->d, p->d, NULL, 1,
                                        &p->found, &n);
}

static void multiply(matmul *p, const float *a, cudaStream_t stream)
{
  const float alpha = 2, beta = 0;
  OK(cublasLtMatmul(p->handle, p->what, &alpha, a, p->a, p->device + B_AT, p->b, &beta,
                    p->device + D_AT, p->d, p->device + D_AT, p->d, &p->found.algo, NULL, 0,
                    stream));
}

static void release_matmul(matmul *p)
{
  OK(cudaFree(p->device));
  OK(cudaFreeHost(p->host));
  OK(cublasLtMatrixLayoutDestroy(p->a));
  OK(cublasLtMatrixLayoutDestroy(p->b));
  OK(cublasLtMatrixLayoutDestroy(p->d));
  OK(cublasLtMatmulDescDestroy(p->what));
  OK(cublasLtDestroy(p->handle));
}

static void copy_all(const matmul *p, enum cudaMemcpyKind kind)
{
  const bool up_ = kind == cudaMemcpyHostToDevice;
  OK(cudaMemcpy(up_ ? p->device : p->host, up_ ? p->host : p->device, ALL * sizeof(float), kind));
}

// The product with an epilogue, on the host again; the caller releases it.
static matmul product(uint32_t epilogue)
{
  matmul p = {0};
  OK(plan(&p, epilogue, M));
  for (int i = 0; i < ALL; i++)
    p.host[i] = sinf((float)i);
  copy_all(&p, cudaMemcpyHostToDevice);
  multiply(&p, p.device, NULL);
  copy_all(&p, cudaMemcpyDeviceToHost);
  return p;
}

static double expected(const float *h, int i, int j)
{
  double sum = 0;
  for (int k = 0; k < K; k++)
    sum += (double)h[i + k * M] * h[B_AT + k + j * K];
  return 2 * sum;
}

static void check_near(double got, double wanted)
{
  if (!(fabs(got - wanted) <= 2e-6 * (1 + fabs(wanted)))) {
    fprintf(stderr, "%.9g, wanted %.9g\n", got, wanted);
    _exit(WRONG);
  }
}

static double tanh_gelu(double x)
{
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void gelu_aux_bias(void)
{
  matmul p = product(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < COLUMNS; j++) {
      const double x = expected(p.host, i, j) + p.host[BIAS_AT + i];
      check_near(p.host[AUX_AT + i + j * M], x);
      check_near(p.host[D_AT + i + j * M], tanh_gelu(x));
    }
  release_matmul(&p);
}

static void dgelu_bgrad(void)
{
  matmul p = product(CUBLASLT_EPILOGUE_DGELU_BGRAD);
  for (int i = 0; i < M; i++) {
    double sum = 0;
    for (int j = 0; j < COLUMNS; j++) {
      const double x = p.host[AUX_AT + i + j * M], h = 1e-5;
      const double slope = (tanh_gelu(x + h) - tanh_gelu(x - h)) / (2 * h);
      check_near(p.host[D_AT + i + j * M], expected(p.host, i, j) * slope);
      sum += expected(p.host, i, j) * slope;
    }
    check_near(p.host[BIAS_AT + i], sum);
  }
  release_matmul(&p);
}

static void bgrada(void)
{
  matmul p = product(CUBLASLT_EPILOGUE_BGRADA);
  for (int i = 0; i < M; i++) {
    double sum = 0;
    for (int k = 0; k < K; k++)
      sum += p.host[i + k * M];
    check_near(p.host[BIAS_AT + i], sum);
    check_near(p.host[D_AT + i], expected(p.host, i, 0));
  }
  release_matmul(&p);
}

static void host_pointer_to_matmul(void)
{
  matmul p = {0};
  OK(plan(&p, CUBLASLT_EPILOGUE_DEFAULT, M));
  multiply(&p, p.host, NULL);
}

// One row more than the buffer has room for.
static void wrong_leading_dimension(void)
{
  matmul p = {0};
  OK(plan(&p, CUBLASLT_EPILOGUE_DEFAULT, M + 50));
  multiply(&p, p.device, NULL);
}

static void undocumented(void)
{
  matmul p = {0};
  exit(plan(&p, CUBLASLT_EPILOGUE_RELU, M) == CUBLAS_STATUS_NOT_SUPPORTED ? WRONG : 1);
}

static void leaked_layout(void)
{
  matmul p = {0};
  OK(plan(&p, CUBLASLT_EPILOGUE_DEFAULT, M));
  cublasLtMatrixLayout_t forgotten;
  OK(cublasLtMatrixLayoutCreate(&forgotten, CUDA_R_32F, 1, 1, 1));
  release_matmul(&p);
}

static void matrix_products(void)
{
  EXPECT_ALWAYS(gelu_aux_bias, 0, "");
  EXPECT_ALWAYS(dgelu_bgrad, 0, "");
  EXPECT_ALWAYS(bgrada, 0, "");
  EXPECT_ALWAYS(host_pointer_to_matmul, MISUSE, "A of cublasLtMatmul");
  EXPECT_ALWAYS(wrong_leading_dimension, MISUSE, "A of cublasLtMatmul: 2760 bytes at offset 0");
  EXPECT_ALWAYS(undocumented, WRONG, "");
  EXPECT_ALWAYS(leaked_layout, LEAK, "leak: 1 Lt descriptors");
}

// --- cuFFT

enum { LINE = 12, LINES = 3, HALF = LINE / 2 + 1 };

typedef struct fourier {
  cufftHandle there, back;
  float *x, *work, *host; // LINES lines of LINE reals
  cufftComplex *spectrum; // LINES lines of HALF
} fourier;

static cufftHandle plan_lines(cufftType type, long long real_distance, float *work)
{
  cufftHandle plan;
  size_t work_bytes = 0;
  long long n = LINE, embed = LINE;
  const bool there = type == CUFFT_R2C;
  OK(cufftCreate(&plan));
  OK(cufftSetAutoAllocation(plan, 0));
  OK(cufftMakePlanMany64(plan, 1, &n, &embed, 1, there ? real_distance : HALF, &embed, 1,
                         there ? HALF : real_distance, type, LINES, &work_bytes));
  if (work != NULL) OK(cufftSetWorkArea(plan, work));
  return plan;
}

static fourier set_up_fourier(void)
{
  fourier f = {0};
  OK(cudaMalloc((void **)&f.x, LINES * LINE * sizeof(float)));
  OK(cudaMalloc((void **)&f.work, LINES * LINE * 8));
  OK(cudaMalloc((void **)&f.spectrum, LINES * HALF * sizeof(cufftComplex)));
  OK(cudaMallocHost((void **)&f.host, LINES * LINE * sizeof(float)));
  for (int i = 0; i < LINES * LINE; i++)
    f.host[i] = sinf((float)(i * i));
  OK(cudaMemcpy(f.x, f.host, LINES * LINE * sizeof(float), cudaMemcpyHostToDevice));
  return f;
}

static void there_and_back(void)
{
  fourier f = set_up_fourier();
  f.there = plan_lines(CUFFT_R2C, LINE, f.work);
  f.back = plan_lines(CUFFT_C2R, LINE, f.work);
  OK(cufftExecR2C(f.there, f.x, f.spectrum));
  OK(cudaMemsetAsync(f.x, 0xff, LINES * LINE * sizeof(float), NULL));
  OK(cufftExecC2R(f.back, f.spectrum, f.x));
  OK(cudaMemcpy(f.host, f.x, LINES * LINE * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < LINES * LINE; i++)
    check_near(f.host[i] / LINE, sinf((float)(i * i)));
  OK(cufftDestroy(f.there));
  OK(cufftDestroy(f.back));
  OK(cudaFree(f.x));
  OK(cudaFree(f.work));
  OK(cudaFree(f.spectrum));
  OK(cudaFreeHost(f.host));
}

static void lines_too_far_apart(void)
{
  fourier f = set_up_fourier();
  f.there = plan_lines(CUFFT_R2C, LINE + 1, f.work);
  OK(cufftExecR2C(f.there, f.x, f.spectrum));
}

static void no_work_area(void)
{
  fourier f = set_up_fourier();
  f.there = plan_lines(CUFFT_R2C, LINE, NULL);
  OK(cufftExecR2C(f.there, f.x, f.spectrum));
}

static void host_pointer_to_fft(void)
{
  fourier f = set_up_fourier();
  f.there = plan_lines(CUFFT_R2C, LINE, f.work);
  OK(cufftExecR2C(f.there, f.host, f.spectrum));
}

static void transforms(void)
{
  EXPECT_ALWAYS(there_and_back, 0, "");
  EXPECT_ALWAYS(lines_too_far_apart, MISUSE, "152 bytes at offset 0 overrun device buffer #1");
  EXPECT_ALWAYS(no_work_area, MISUSE, "the plan has no work area");
  EXPECT_ALWAYS(host_pointer_to_fft, MISUSE, "cufftExecR2C: ");
}

int main(void)
{
  TEST_RUN(correct_programs);
  TEST_RUN(mistakes_with_pointers);
  TEST_RUN(mistakes_with_order);
  TEST_RUN(resources_and_errors);
  TEST_RUN(matrix_products);
  TEST_RUN(transforms);
  printf("doubles: %d programs run\n", n_cases);
  return test_end();
}
