// timeout: 60
// The emulation of CUDA: what it computes against plain indexing, and that it reports what it must.
//
//   emulation_test NAME    runs one kernel of emulation_faults.cu, for races.sh
#include "emulation_faults.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

// In the place of the CUDA double: every kernel at once.
extern "C" void emu_enqueue_kernel(cudaStream_t, const char *name, dim3 grid, dim3 block,
                                   size_t shared_bytes, void (*fn)(void *), void *ctx,
                                   void (*del)(void *), const void *const *, int)
{
  emu_run_kernel(name, grid, block, shared_bytes, fn, ctx);
  del(ctx);
}

// --- tensor cores

static __device__ uint32_t pack(float low, float high)
{
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t word;
  memcpy(&word, &pair, sizeof word);
  return word;
}

// D (16, 8) = A (16, 16) B (16, 8), row-major, numbers exact in bf16.
static __global__ void mma_kernel(float *D, const float *A, const float *B)
{
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  uint32_t a[4], b[2];
  float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int r = 0; r < 4; r++) {
    const float *at = A + (g + 8 * (r % 2)) * 16 + 2 * t + 8 * (r / 2);
    a[r] = pack(at[0], at[1]);
  }
  for (int r = 0; r < 2; r++) {
    const float *at = B + (2 * t + 8 * r) * 8 + g;
    b[r] = pack(at[0], at[8]);
  }
  mma_m16n8k16_bf16(c, a, b, c);
  for (int i = 0; i < 4; i++)
    D[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = c[i];
}

// B = E(k, n), so D is column k of A in column n, whatever the other columns are.
TEST(mma_of_every_basis_matrix)
{
  float A[256], B[128], D[128];
  for (int k = 0; k < 16; k++)
    for (int n = 0; n < 8; n++) {
      for (int i = 0; i < 256; i++)
        A[i] = static_cast<float>((i * 7 + i / 16) % 251);
      for (int i = 0; i < 128; i++)
        B[i] = i == k * 8 + n ? 1.0f : 0.0f;
      TRI_LAUNCH(mma_kernel, 1, 32, 0, nullptr, D, A, B);
      int wrong = 0;
      for (int i = 0; i < 128; i++)
        wrong += D[i] != (i % 8 == n ? A[i / 8 * 16 + k] : 0.0f);
      EXPECT(wrong == 0);
    }
}

static __global__ void ldmatrix_kernel(uint32_t *plain, uint32_t *transposed, uint32_t *two)
{
  TRI_SHARED(uint16_t, s, [32][8]);
  const int lane = threadIdx.x;
  for (int c = 0; c < 8; c++)
    s[lane][c] = static_cast<uint16_t>(lane * 8 + c);
  __syncwarp();
  uint32_t r[4], t[4], h[2];
  ldmatrix_x4(r, s[lane]);
  ldmatrix_x4_trans(t, s[lane]);
  ldmatrix_x2(h, s[lane % 16]);
  for (int m = 0; m < 4; m++) {
    plain[lane * 4 + m] = r[m];
    transposed[lane * 4 + m] = t[m];
  }
  two[lane * 2] = h[0];
  two[lane * 2 + 1] = h[1];
}

TEST(ldmatrix_gives_every_lane_its_words)
{
  uint32_t plain[128], transposed[128], two[64];
  TRI_LAUNCH(ldmatrix_kernel, 1, 32, 0, nullptr, plain, transposed, two);
  for (unsigned lane = 0; lane < 32; lane++)
    for (unsigned m = 0; m < 4; m++) {
      const unsigned row = (m * 8 + lane / 4) * 8 + lane % 4 * 2;
      const unsigned column = (m * 8 + lane % 4 * 2) * 8 + lane / 4;
      EXPECT(plain[lane * 4 + m] == (row | (row + 1) << 16));
      EXPECT(transposed[lane * 4 + m] == (column | (column + 8) << 16));
      if (m < 2) EXPECT(two[lane * 2 + m] == plain[lane * 4 + m]);
    }
}

// --- warps

static __global__ void warp_kernel(int *out)
{
  const int lane = threadIdx.x % 32;
  int *o = out + 16 * threadIdx.x;
  o[0] = __shfl_sync(~0u, lane, 5);
  o[1] = __shfl_sync(~0u, lane, 3, 8);
  o[2] = __shfl_xor_sync(~0u, lane, 16);
  o[3] = __shfl_down_sync(~0u, lane, 4, 16);
  o[4] = __shfl_up_sync(~0u, lane, 3);
  o[5] = static_cast<int>(__ballot_sync(~0u, lane % 3 == 0));
  o[6] = __any_sync(~0u, lane == 7);
  o[7] = __all_sync(~0u, lane != 7);
  o[8] = __reduce_add_sync(~0u, lane);
  o[9] = __reduce_min_sync(~0u, lane - 9);
  o[9] += 100 * __reduce_max_sync(~0u, lane - 9);
  o[10] = static_cast<int>(__reduce_max_sync(~0u, 0x80000000u + static_cast<unsigned>(lane)));
  o[11] = static_cast<int>(__reduce_xor_sync(~0u, 1u << lane));
  // Two groups of lanes that meet apart.
  if (lane < 8) {
    o[12] = __shfl_xor_sync(0x000000ffu, lane, 1);
    o[2] += __shfl_sync(0x000000ffu, lane, 9) + 1; // a lane that is not there: all bits set, -1
  } else {
    o[12] = __shfl_xor_sync(0xffffff00u, lane, 2);
  }
  o[13] = __syncthreads_count(threadIdx.x % 2);
  o[14] = __syncthreads_or(threadIdx.x == 40);
  o[15] = __syncthreads_and(threadIdx.x != 40);
}

static int ballot_of_thirds(void)
{
  unsigned bits = 0;
  for (int lane = 0; lane < 32; lane += 3)
    bits |= 1u << lane;
  return static_cast<int>(bits);
}

static void check_lane(const int *o, int lane)
{
  EXPECT(o[0] == 5);
  EXPECT(o[1] == (lane / 8) * 8 + 3);
  EXPECT(o[2] == (lane ^ 16));
  EXPECT(o[3] == (lane % 16 < 12 ? lane + 4 : lane));
  EXPECT(o[4] == (lane >= 3 ? lane - 3 : lane));
  EXPECT(o[5] == ballot_of_thirds());
  EXPECT(o[6] == 1);
  EXPECT(o[7] == 0);
  EXPECT(o[8] == 496);
  EXPECT(o[9] == 22 * 100 - 9);
  EXPECT(o[10] == static_cast<int>(0x8000001fu));
  EXPECT(o[11] == -1);
  EXPECT(o[12] == (lane < 8 ? lane ^ 1 : lane ^ 2));
  EXPECT(o[13] == 32);
  EXPECT(o[14] == 1);
  EXPECT(o[15] == 0);
}

TEST(warp_collectives_in_every_order)
{
  static int out[64 * 16];
  for (int order : {0, 1, 3, 3, 3}) {
    emu_set_order(order, static_cast<uint64_t>(order) + 7);
    memset(out, 0, sizeof out);
    TRI_LAUNCH(warp_kernel, 1, 64, 0, nullptr, out);
    for (int i = 0; i < 64; i++)
      check_lane(out + 16 * i, i % 32);
  }
}

// --- grids

static __global__ void coordinates_kernel(int *out, int base)
{
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  TRI_DYNAMIC_SHARED(int, room);
  room[thread] = base;
  __syncthreads();
  out[block * 30 + thread] += room[29 - thread] + static_cast<int>(block * 30 + thread);
}

TEST(every_thread_of_a_grid_runs_once)
{
  static int out[24 * 30];
  for (int order : {0, 1, 3}) {
    emu_set_order(order, 3);
    memset(out, 0, sizeof out);
    const emu_counts before = emu_get_counts();
    TRI_LAUNCH(coordinates_kernel, dim3(2, 3, 4), dim3(5, 3, 2), 30 * sizeof(int), nullptr, out, 9);
    EXPECT(emu_get_counts().blocks == before.blocks + 24);
    EXPECT(emu_get_counts().kernels == before.kernels + 1);
    EXPECT((emu_get_counts().orders >> order & 1) == 1);
    int wrong = 0;
    for (int i = 0; i < 24 * 30; i++)
      wrong += out[i] != i + 9;
    EXPECT(wrong == 0);
  }
}

static __global__ void turns_kernel(int *next, int *turn)
{
  turn[64 * blockIdx.x + threadIdx.x] = atomicAdd(next, 1);
}

TEST(threads_take_turns_in_the_order_asked_for)
{
  int turn[128];
  for (int order : {0, 1}) {
    emu_set_order(order, 1);
    int next = 0;
    TRI_LAUNCH(turns_kernel, 2, 64, 0, nullptr, &next, turn);
    int wrong = 0;
    for (int i = 0; i < 128; i++)
      wrong += turn[i] != (order == 0 ? i : 127 - i);
    EXPECT(wrong == 0);
  }
  // A warp that can run on goes before the others, and every thread goes once.
  emu_set_order(3, 5);
  int next = 0, sum = 0;
  TRI_LAUNCH(turns_kernel, 1, 64, 0, nullptr, &next, turn);
  for (int i = 0; i < 32; i++)
    sum += turn[i];
  EXPECT(next == 64);
  EXPECT(sum == 31 * 32 / 2 || sum == 31 * 32 / 2 + 32 * 32);
}

// --- planted mistakes

static float fault_out[256];

static void run_fault(const char *name)
{
  const emu_fault *fault = emu_find_fault(name);
  EXPECT(fault != nullptr);
  if (fault == nullptr) return;
  memset(fault_out, 0, sizeof fault_out);
  emu_launch(name, fault->n_blocks, 64, 0, nullptr, fault->kernel, fault_out);
}

// Runs the kernel in a process of its own; returns its exit code and what it wrote to stderr.
static int run_apart(const char *name, char *report, size_t capacity)
{
  int ends[2];
  if (pipe(ends) != 0) return -1;
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    emu_set_order(0, 1);
    run_fault(name);
    _exit(0);
  }
  close(ends[1]);
  size_t n = 0;
  ssize_t got = 0;
  while (n + 1 < capacity && (got = read(ends[0], report + n, capacity - 1 - n)) > 0)
    n += static_cast<size_t>(got);
  report[n] = '\0';
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_report(const char *name, const char *text, const char *more)
{
  char report[8192];
  const int code = run_apart(name, report, sizeof report);
  const bool found = strstr(report, text) != nullptr && strstr(report, more) != nullptr;
  if (code != 70 || !found) {
    char what[9000];
    snprintf(what, sizeof what, "%s: exit code %d, report '%s', wanted 70 with '%s' and '%s'", name,
             code, report, text, more);
    test_fail(__FILE__, __LINE__, what);
  }
}

TEST(mistakes_that_are_named)
{
  expect_report("divergent_barrier", "divergent barrier: other threads", "emulation_faults.cu:");
  expect_report("divergent_collective", "divergent warp collective", "emulation_faults.cu:");
  expect_report("exited_lane", "which has exited", "thread (");
  expect_report("waits_for_ever", "16 threads, the first of them 0, wait in a warp",
                "48 threads, the first of them 16, wait in __syncthreads");
#ifndef __SANITIZE_ADDRESS__
  expect_report("shared_overrun", "byte 0 after the end of s", "was written");
#endif
  expect_report("misaligned_copy", "not aligned to 16 bytes", "emulation_faults.cu:");
}

#ifdef __SANITIZE_ADDRESS__
TEST(overruns_under_the_address_sanitizer)
{
  char report[8192];
  EXPECT(run_apart("shared_overrun", report, sizeof report) != 0);
  EXPECT(strstr(report, "in shared_overrun") != nullptr);
  EXPECT(run_apart("global_overrun", report, sizeof report) != 0);
  EXPECT(strstr(report, "in global_overrun") != nullptr);
}
#endif

// What a kernel computes in an order.
static void outcome(const char *name, int order, uint64_t seed, float out[256])
{
  emu_set_order(order, seed);
  run_fault(name);
  memcpy(out, fault_out, sizeof fault_out);
}

// In how many of the orders 1 and 3 (12 seeds) the outcome differs from that of order 0.
static int n_different(const char *name)
{
  float first[256], other[256];
  outcome(name, 0, 1, first);
  outcome(name, 1, 1, other);
  int n = memcmp(first, other, sizeof first) != 0;
  for (uint64_t seed = 0; seed < 12; seed++) {
    outcome(name, 3, seed, other);
    n += memcmp(first, other, sizeof first) != 0;
  }
  return n;
}

TEST(a_race_shows_in_another_order)
{
  EXPECT(n_different("dropped_barrier") > 0);
  EXPECT(n_different("write_after_read") > 0);
  for (int i = 0; i < emu_n_faults; i++)
    if (strncmp(emu_faults[i].name, "right_", 6) == 0) EXPECT(n_different(emu_faults[i].name) == 0);
}

TEST(what_was_not_written_is_not_a_number)
{
  float out[256];
  outcome("unwritten_shared", 0, 1, out);
  EXPECT(out[62] == 1.0f && isnan(out[63]));
  outcome("missing_wait", 0, 1, out);
  EXPECT(isnan(out[0]) && isnan(out[63]));
  outcome("right_copy", 0, 1, out);
  EXPECT(out[0] == 0.0f && out[63] == 0.0f);
}

int main(int argc, char **argv)
{
  if (argc > 1) {
    run_fault(argv[1]);
    return 0;
  }
  TEST_RUN(mma_of_every_basis_matrix);
  TEST_RUN(ldmatrix_gives_every_lane_its_words);
  TEST_RUN(warp_collectives_in_every_order);
  TEST_RUN(every_thread_of_a_grid_runs_once);
  TEST_RUN(threads_take_turns_in_the_order_asked_for);
  TEST_RUN(mistakes_that_are_named);
#ifdef __SANITIZE_ADDRESS__
  TEST_RUN(overruns_under_the_address_sanitizer);
#endif
  TEST_RUN(a_race_shows_in_another_order);
  TEST_RUN(what_was_not_written_is_not_a_number);
  return test_end();
}
