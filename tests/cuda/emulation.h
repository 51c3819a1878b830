// The CUDA device language under a host compiler, so that the kernels run where there is no GPU.
//
// A kernel is an ordinary function here, called once for every CUDA thread on a stack of its own.
// The threads of a block share one thread of the operating system and change place only at barriers
// and warp collectives, in an order that can be chosen (emu_set_order): a kernel without races
// gives the same bits in every order. Types (float4, dim3, __nv_bfloat16, cudaStream_t) come from
// NVIDIA's own headers; this file supplies what those declare for nvcc alone. Missing on purpose,
// so that a kernel with it does not compile: float atomics, __constant__, cooperative groups,
// __activemask.
//
// What is reported (standard error, exit code 70), naming kernel, line, block and thread:
//   - threads of a block at different barriers, lanes of a warp at different collectives, both
//   lines;
//   - a collective that names an exited or missing lane; a block where nobody can go on;
//   - shared memory: overruns (at the end of the block; AddressSanitizer: at the access), more than
//     48 KiB static or 227 KiB in all; it is filled with 0xFF bytes, not-a-number, for every block;
//   - addresses of cp.async and ldmatrix off 16 bytes or outside shared memory.
// A copy by cp.async happens at the wait that covers it; until then its target is not-a-number.
//
// One host thread at a time: the CUDA double holds its lock while it runs a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include <math.h>

// NVIDIA's header keeps a definition that is there; ours makes every use an error.
#define __shared__ write_TRI_SHARED_instead
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline

// Where in the source a thread meets the others.
struct emu_site {
  const char *file;
  int line;
};
#define EMU_SITE const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_HERE (emu_site{emu_file, emu_line})

// What a kernel can see of the CUDA thread that runs it.
struct emu_thread {
  uint3 index;
  int lane, warp;
  alignas(16) unsigned char result[64]; // of its last barrier or warp collective
};

enum emu_barrier_kind { EMU_BARRIER, EMU_BARRIER_OR, EMU_BARRIER_AND, EMU_BARRIER_COUNT };

enum emu_collective_kind {
  EMU_SYNC,
  EMU_SHUFFLE,
  EMU_BALLOT,
  EMU_REDUCE_ADD,
  EMU_REDUCE_MIN,
  EMU_REDUCE_MAX,
  EMU_REDUCE_UNSIGNED_MIN,
  EMU_REDUCE_UNSIGNED_MAX,
  EMU_REDUCE_AND,
  EMU_REDUCE_OR,
  EMU_REDUCE_XOR,
  EMU_MMA_F16,
  EMU_MMA_BF16,
  EMU_LDMATRIX_X2,
  EMU_LDMATRIX_X2_TRANS,
  EMU_LDMATRIX_X4,
  EMU_LDMATRIX_X4_TRANS
};

// What a lane brings to an mma: its fragments.
struct emu_mma_operands {
  uint32_t a[4], b[2];
  float c[4];
};

// 16 bytes on their way into shared memory.
struct emu_copy {
  uint32_t *shared;
  const uint32_t *global;
};

extern "C" {
extern emu_thread *emu_current; // NULL outside of kernels
extern uint3 emu_block_index;
extern dim3 emu_block_dim, emu_grid_dim;

// Order of threads and blocks: 0 ascending; 1 the last runnable thread first, blocks descending;
// 3 blocks shuffled and a random fixed priority for each warp, so that one warp runs as far ahead
// of the others as it can (uniform random choices find fewer races). Until it is called, the
// environment rules: TRI_EMU_ORDER (0) and TRI_EMU_SEED (1).
void emu_set_order(int order, uint64_t seed);

// Runs fn(ctx) as every thread of a grid. Whatever is wrong ends the process.
void emu_run_kernel(const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                    void (*fn)(void *), void *ctx);

// Defined by the CUDA double: puts the kernel on the stream. It calls emu_run_kernel when its turn
// comes, then del(ctx). `pointers` are the launch's pointer arguments, for checks; borrowed. The
// first word of ctx is the address of the kernel.
void emu_enqueue_kernel(cudaStream_t stream, const char *name, dim3 grid, dim3 block,
                        size_t shared_bytes, void (*fn)(void *), void *ctx, void (*del)(void *),
                        const void *const *pointers, int n_pointers);

// What ran so far. TRI_EMU_COUNTS=1 in the environment prints it at exit, to standard error.
struct emu_counts {
  uint64_t kernels, distinct_kernels, blocks, barriers, collectives, mmas;
  uint64_t ldmatrices, ldmatrix_conflicts; // conflicts: rows of one 8x8 matrix in the same banks
  unsigned orders;                         // bit i: order i was used
};
struct emu_counts emu_get_counts(void);
void emu_print_counts(FILE *out);

// Below: for the inline functions of this file.
void *emu_shared(const void *key, const char *name, size_t bytes, size_t alignment);
void *emu_dynamic_shared(void);
bool emu_is_shared(const void *address, size_t bytes);
int emu_barrier(enum emu_barrier_kind kind, int predicate, struct emu_site site);
void emu_collective(enum emu_collective_kind kind, unsigned mask, uint64_t value, int aux,
                    const struct emu_mma_operands *operands, struct emu_site site);
void emu_fence(void);
void emu_copy_push(struct emu_copy copy);
void emu_copy_commit(void);
bool emu_copy_pop(int n_in_flight, struct emu_copy *out);
void emu_fail(struct emu_site site, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
}

#define threadIdx (emu_current->index)
#define blockIdx emu_block_index
#define blockDim emu_block_dim
#define gridDim emu_grid_dim
#define warpSize 32

// The key's address is the array's name: one for each instance of a template, as in CUDA.
#define TRI_SHARED(T, name, dims) \
  typedef T name##_emu_array dims; \
  static char name##_emu_key; \
  auto &name = *static_cast<name##_emu_array *>( \
      emu_shared(&name##_emu_key, #name, sizeof(name##_emu_array), alignof(T)))
#define TRI_DYNAMIC_SHARED(T, name) T *name = static_cast<T *>(emu_dynamic_shared())
#define TRI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  emu_launch(#kernel, (grid), (block), (shared_bytes), (stream), kernel, __VA_ARGS__)

// Arguments are converted and copied at the launch, as the real one does.
template <class... P, class... A>
inline void emu_launch(const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                       cudaStream_t stream, void (*kernel)(P...), A &&...arguments)
{
  struct call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  };
  call *c = new call{kernel, std::tuple<P...>(static_cast<P>(std::forward<A>(arguments))...)};
  const void *pointers[sizeof...(P) + 1];
  int n_pointers = 0;
  const auto note = [&](const auto &argument) {
    if constexpr (std::is_pointer_v<std::remove_reference_t<decltype(argument)>>)
      pointers[n_pointers++] = argument;
  };
  std::apply([&](const auto &...argument) { (note(argument), ...); }, c->arguments);
  emu_enqueue_kernel(
      stream, name, grid, block, shared_bytes,
      [](void *ctx) {
        const call *started = static_cast<call *>(ctx);
        std::apply(started->kernel, started->arguments);
      },
      c, [](void *ctx) { delete static_cast<call *>(ctx); }, pointers, n_pointers);
}

// --- barriers and fences

inline void __syncthreads(EMU_SITE)
{
  emu_barrier(EMU_BARRIER, 0, EMU_HERE);
}

inline int __syncthreads_or(int predicate, EMU_SITE)
{
  return emu_barrier(EMU_BARRIER_OR, predicate, EMU_HERE);
}

inline int __syncthreads_and(int predicate, EMU_SITE)
{
  return emu_barrier(EMU_BARRIER_AND, predicate, EMU_HERE);
}

inline int __syncthreads_count(int predicate, EMU_SITE)
{
  return emu_barrier(EMU_BARRIER_COUNT, predicate, EMU_HERE);
}

inline void __syncwarp(unsigned mask = ~0u, EMU_SITE)
{
  emu_collective(EMU_SYNC, mask, 0, 0, nullptr, EMU_HERE);
}

inline void __threadfence()
{
  emu_fence();
}

inline void __threadfence_block()
{
  emu_fence();
}

// --- shuffles, votes, reductions

template <class T> inline T emu_result()
{
  T result;
  std::memcpy(static_cast<void *>(&result), emu_current->result, sizeof result);
  return result;
}

template <class T> inline T emu_shuffle(unsigned mask, T value, int source, emu_site site)
{
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  emu_collective(EMU_SHUFFLE, mask, bits, source, nullptr, site);
  return emu_result<T>();
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_SITE)
{
  const int first = emu_current->lane & ~(width - 1);
  return emu_shuffle(mask, value, first | (source & (width - 1)), EMU_HERE);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, EMU_SITE)
{
  const int lane = emu_current->lane, source = lane ^ lane_mask;
  const bool later_group = (source & ~(width - 1)) > (lane & ~(width - 1));
  return emu_shuffle(mask, value, later_group ? lane : source, EMU_HERE);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_SITE)
{
  const int lane = emu_current->lane, source = lane + static_cast<int>(delta);
  const bool inside = (source & ~(width - 1)) == (lane & ~(width - 1));
  return emu_shuffle(mask, value, inside ? source : lane, EMU_HERE);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_SITE)
{
  const int lane = emu_current->lane, source = lane - static_cast<int>(delta);
  return emu_shuffle(mask, value, source >= (lane & ~(width - 1)) ? source : lane, EMU_HERE);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_SITE)
{
  emu_collective(EMU_BALLOT, mask, 0, predicate != 0, nullptr, EMU_HERE);
  return emu_result<unsigned>();
}

inline int __any_sync(unsigned mask, int predicate, EMU_SITE)
{
  return __ballot_sync(mask, predicate, emu_file, emu_line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, EMU_SITE)
{
  return __ballot_sync(mask, predicate, emu_file, emu_line) == mask;
}

template <class T>
inline T emu_reduce(emu_collective_kind kind, unsigned mask, T value, emu_site site)
{
  static_assert(std::is_integral_v<T> && sizeof(T) == 4, "warp reductions take 32-bit integers");
  emu_collective(kind, mask, static_cast<uint32_t>(value), 0, nullptr, site);
  return emu_result<T>();
}

template <class T> inline T __reduce_add_sync(unsigned mask, T value, EMU_SITE)
{
  return emu_reduce(EMU_REDUCE_ADD, mask, value, EMU_HERE);
}

template <class T> inline T __reduce_min_sync(unsigned mask, T value, EMU_SITE)
{
  return emu_reduce(std::is_signed_v<T> ? EMU_REDUCE_MIN : EMU_REDUCE_UNSIGNED_MIN, mask, value,
                    EMU_HERE);
}

template <class T> inline T __reduce_max_sync(unsigned mask, T value, EMU_SITE)
{
  return emu_reduce(std::is_signed_v<T> ? EMU_REDUCE_MAX : EMU_REDUCE_UNSIGNED_MAX, mask, value,
                    EMU_HERE);
}

inline unsigned __reduce_and_sync(unsigned mask, unsigned value, EMU_SITE)
{
  return emu_reduce(EMU_REDUCE_AND, mask, value, EMU_HERE);
}

inline unsigned __reduce_or_sync(unsigned mask, unsigned value, EMU_SITE)
{
  return emu_reduce(EMU_REDUCE_OR, mask, value, EMU_HERE);
}

inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, EMU_SITE)
{
  return emu_reduce(EMU_REDUCE_XOR, mask, value, EMU_HERE);
}

// --- tensor cores: contracts in kernels/portable.cuh

inline void emu_mma(emu_collective_kind kind, float (&d)[4], const uint32_t (&a)[4],
                    const uint32_t (&b)[2], const float (&c)[4], emu_site site)
{
  emu_mma_operands operands;
  std::memcpy(operands.a, a, sizeof a);
  std::memcpy(operands.b, b, sizeof b);
  std::memcpy(operands.c, c, sizeof c);
  emu_collective(kind, ~0u, 0, 0, &operands, site);
  std::memcpy(d, emu_current->result, sizeof d);
}

inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                              const float (&c)[4], EMU_SITE)
{
  emu_mma(EMU_MMA_BF16, d, a, b, c, EMU_HERE);
}

inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             const float (&c)[4], EMU_SITE)
{
  emu_mma(EMU_MMA_F16, d, a, b, c, EMU_HERE);
}

// The collective exchanges row addresses; each lane then reads its numbers itself, so that a
// sanitizer that watches the kernel sees the read. Result: the row of this lane's first number for
// each matrix, then (transposed) that of its second.
template <int N, bool TRANSPOSED>
inline void emu_ldmatrix(emu_collective_kind kind, uint32_t (&r)[N], const void *row, emu_site site)
{
  const int lane = emu_current->lane;
  if (lane < 8 * N && reinterpret_cast<uintptr_t>(row) % 16 != 0)
    emu_fail(site, "ldmatrix: row address %p is not aligned to 16 bytes", row);
  if (lane < 8 * N && !emu_is_shared(row, 16))
    emu_fail(site, "ldmatrix: row address %p is not in shared memory", row);
  emu_collective(kind, ~0u, reinterpret_cast<uintptr_t>(row), 0, nullptr, site);
  const uint16_t *rows[8];
  std::memcpy(rows, emu_current->result, sizeof rows);
  const int first = TRANSPOSED ? lane / 4 : 2 * (lane % 4);
  for (int m = 0; m < N; m++) {
    const uint16_t low = rows[m][first];
    const uint16_t high = TRANSPOSED ? rows[4 + m][first] : rows[m][first + 1];
    r[m] = low | static_cast<uint32_t>(high) << 16;
  }
}

inline void ldmatrix_x2(uint32_t (&r)[2], const void *shared, EMU_SITE)
{
  emu_ldmatrix<2, false>(EMU_LDMATRIX_X2, r, shared, EMU_HERE);
}

inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void *shared, EMU_SITE)
{
  emu_ldmatrix<2, true>(EMU_LDMATRIX_X2_TRANS, r, shared, EMU_HERE);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void *shared, EMU_SITE)
{
  emu_ldmatrix<4, false>(EMU_LDMATRIX_X4, r, shared, EMU_HERE);
}

inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *shared, EMU_SITE)
{
  emu_ldmatrix<4, true>(EMU_LDMATRIX_X4_TRANS, r, shared, EMU_HERE);
}

// --- asynchronous copies

inline void cp_async16(void *shared, const void *global, EMU_SITE)
{
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16 != 0)
    emu_fail(EMU_HERE, "cp.async: %p or %p is not aligned to 16 bytes", shared, global);
  if (!emu_is_shared(shared, 16))
    emu_fail(EMU_HERE, "cp.async: target %p is not in shared memory", shared);
  uint32_t *target = static_cast<uint32_t *>(shared);
  for (int i = 0; i < 4; i++)
    target[i] = ~0u;
  emu_copy_push(emu_copy{target, static_cast<const uint32_t *>(global)});
}

inline void cp_async_commit()
{
  emu_copy_commit();
}

template <int N> inline void cp_async_wait()
{
  emu_copy copy;
  while (emu_copy_pop(N, &copy))
    for (int i = 0; i < 4; i++)
      copy.shared[i] = copy.global[i];
}

#include "cuda/emulation_arithmetic.h"
