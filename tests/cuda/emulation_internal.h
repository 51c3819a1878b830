// What the files of the emulation share: threads as fibers, the block that runs, sanitizer hooks.
//
// These files are never built with -fsanitize=thread: lanes writing each other's results would
// count as races of the kernel. A build for kernels under ThreadSanitizer defines TRI_EMU_TSAN
// instead, and the hooks below tell it which CUDA thread runs and what orders memory.
#pragma once

#include "cuda/emulation.h"

#if defined(__SANITIZE_THREAD__)
#error "build the emulation without -fsanitize=thread, with -DTRI_EMU_TSAN"
#endif
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#error "build the emulation without -fsanitize=thread, with -DTRI_EMU_TSAN"
#endif
#if __has_feature(address_sanitizer)
#define TRI_EMU_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TRI_EMU_ASAN 1
#endif

#ifdef TRI_EMU_TSAN
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
#define EMU_ACQUIRE(address) __tsan_acquire(address)
#define EMU_RELEASE(address) __tsan_release(address)
#else
#define EMU_ACQUIRE(address) static_cast<void>(address)
#define EMU_RELEASE(address) static_cast<void>(address)
#endif

#ifdef TRI_EMU_ASAN
#include <sanitizer/asan_interface.h>
#define EMU_POISON(address, bytes) __asan_poison_memory_region(address, bytes)
#define EMU_UNPOISON(address, bytes) __asan_unpoison_memory_region(address, bytes)
#else
#define EMU_POISON(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define EMU_UNPOISON(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

enum { EMU_MAX_THREADS = 1024, EMU_WARP = 32, EMU_MAX_WARPS = EMU_MAX_THREADS / EMU_WARP };

enum emu_state { EMU_READY, EMU_AT_BARRIER, EMU_AT_COLLECTIVE, EMU_EXITED };

struct emu_copy_queue; // of cp.async: emulation_tensor.cpp

// A CUDA thread. What a kernel sees comes first, so that emu_current points to both.
struct emu_fiber : emu_thread {
  int linear; // x fastest
  enum emu_state state;
  struct emu_site waits_at;
  struct emu_copy_queue *copies;
  void *stack_pointer; // of the suspended fiber; ucontext: its ucontext_t
  void *stack;
  size_t stack_bytes;
  void *tsan_fiber, *asan_fake_stack;
};

// The block that runs.
struct emu_block {
  const char *kernel;
  int n_threads, n_exited;
  emu_fiber *threads[EMU_MAX_THREADS]; // by linear index
};
extern struct emu_block emu_block;
extern struct emu_counts emu_counted;

// --- emulation_fibers.cpp
void emu_fibers_start(void (*fn)(void *), void *ctx); // a kernel begins
void emu_fibers_run_block(dim3 block, uint64_t block_number);
void emu_fibers_end(void);
void emu_make_ready(emu_fiber *fiber);
void emu_wait(enum emu_state state, struct emu_site site); // until emu_make_ready

// --- emulation_order.cpp: the threads that can run, and who is next
int emu_order(void);
uint64_t emu_random(void);
void emu_order_start_block(int n_threads);
void emu_order_push(emu_fiber *fiber);
emu_fiber *emu_order_pop(void); // NULL: nobody can run

// --- emulation_barrier.cpp
void emu_barrier_start_block(void);
void emu_barrier_thread_exited(void); // may let the others go on

// --- emulation_warp.cpp
// The lanes of one warp that meet: what each brought, until the last one arrives.
struct emu_meeting {
  enum emu_collective_kind kind;
  unsigned mask, arrived; // bit masks of lanes
  struct emu_site site;
  emu_fiber **lanes; // the warp's
  uint64_t values[EMU_WARP];
  int aux[EMU_WARP];
  struct emu_mma_operands operands[EMU_WARP];
};
void emu_warp_start_block(void);
void emu_warp_thread_exited(const emu_fiber *fiber); // nobody may wait for it

// --- emulation_tensor.cpp: give every lane its result
void emu_combine_mma(struct emu_meeting *meeting);
void emu_combine_ldmatrix(struct emu_meeting *meeting);
void emu_copies_drop(emu_fiber *fiber); // a thread exits

// --- emulation_shared.cpp
void emu_shared_start_block(size_t dynamic_bytes);
void emu_shared_end_block(void);

// Ends the process after the caller has printed what is wrong.
void emu_exit(void) __attribute__((noreturn));
