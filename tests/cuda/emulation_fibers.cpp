// CUDA threads as fibers: stacks, the switch from one to another, and what the sanitizers must
// know.
//
// Fibers are made once and serve all blocks of all kernels: each runs the kernel, marks itself
// exited and switches away, for ever. A fiber that must wait switches straight to the next runnable
// one; the launching thread gets its stack back when all of the block have exited.
#include "cuda/emulation_internal.h"

#include <cstdlib>

#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) && !defined(TRI_EMU_UCONTEXT)
#define TRI_EMU_UCONTEXT 1
#endif
#ifdef TRI_EMU_UCONTEXT
#include <ucontext.h>
#endif

// A stack holds what nvcc keeps in registers and local memory, and a sanitizer's red zones.
static const size_t STACK_BYTES = 128 * 1024, PAGE = 4096;

emu_thread *emu_current;
struct emu_block emu_block;

static emu_fiber *pool[EMU_MAX_THREADS];
static int n_pool;
static emu_fiber launcher;  // the thread that called emu_run_kernel
static emu_fiber *previous; // who switched to the fiber that runs
static void (*kernel_fn)(void *);
static void *kernel_ctx;
static char launch_sync, end_sync; // addresses for ThreadSanitizer: what is before, what after

static emu_fiber *running(void)
{
  return static_cast<emu_fiber *>(emu_current);
}

#ifdef TRI_EMU_UCONTEXT
// About forty times the price of the switch below: it saves the signal mask with a system call.
static void switch_stacks(emu_fiber *from, emu_fiber *to)
{
  if (from->stack_pointer == nullptr) from->stack_pointer = new ucontext_t;
  if (swapcontext(static_cast<ucontext_t *>(from->stack_pointer),
                  static_cast<ucontext_t *>(to->stack_pointer)) != 0)
    emu_fail(emu_site{__FILE__, __LINE__}, "swapcontext failed");
}
#else
// System V x86-64: the callee keeps rbp, rbx, r12 to r15; everything else is the caller's to save.
extern "C" void emu_switch_stacks(void **save, void *load);
asm(".text\n"
    ".globl emu_switch_stacks\n"
    ".type emu_switch_stacks,@function\n"
    "emu_switch_stacks:\n"
    " pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    " movq %rsp,(%rdi)\n"
    " movq %rsi,%rsp\n"
    " popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
    " ret\n"
    ".size emu_switch_stacks,.-emu_switch_stacks\n");

static void switch_stacks(emu_fiber *from, emu_fiber *to)
{
  emu_switch_stacks(&from->stack_pointer, to->stack_pointer);
}
#endif

// First thing on a stack that was switched to. Only AddressSanitizer knows where the launcher's
// stack lies.
static void arrived(void *fake_stack)
{
#ifdef TRI_EMU_ASAN
  const void *bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
  if (previous == &launcher) {
    launcher.stack = const_cast<void *>(bottom);
    launcher.stack_bytes = bytes;
  }
#else
  static_cast<void>(fake_stack);
#endif
}

static void switch_to(emu_fiber *to)
{
  emu_fiber *from = running();
  if (from == to) return;
  previous = from;
  emu_current = to;
#ifdef TRI_EMU_TSAN
  __tsan_switch_to_fiber(to->tsan_fiber, 1); // 1: the switch itself orders nothing
#endif
#ifdef TRI_EMU_ASAN
  __sanitizer_start_switch_fiber(&from->asan_fake_stack, to->stack, to->stack_bytes);
#endif
  switch_stacks(from, to);
  arrived(from->asan_fake_stack);
}

static const char *state_name(enum emu_state state)
{
  return state == EMU_AT_BARRIER ? "__syncthreads" : "a warp collective";
}

static bool same_wait(const emu_fiber *a, const emu_fiber *b)
{
  return a->state == b->state && a->waits_at.line == b->waits_at.line &&
         strcmp(a->waits_at.file, b->waits_at.file) == 0;
}

// Nobody can run and not all have exited: names each place where threads wait.
static void __attribute__((noreturn)) fail_deadlocked(void)
{
  fprintf(
      stderr,
      "cuda emulation: kernel %s, block (%u,%u,%u) cannot go on: %d of %d threads have exited\n",
      emu_block.kernel, emu_block_index.x, emu_block_index.y, emu_block_index.z, emu_block.n_exited,
      emu_block.n_threads);
  for (int i = 0, shown = 0; i < emu_block.n_threads && shown < 8; i++) {
    const emu_fiber *f = emu_block.threads[i];
    if (f->state == EMU_EXITED) continue;
    int n = 0, first = i;
    for (int j = emu_block.n_threads - 1; j >= 0; j--) {
      if (emu_block.threads[j]->state == EMU_EXITED || !same_wait(emu_block.threads[j], f))
        continue;
      n++;
      first = j;
    }
    if (first != i) continue;
    fprintf(stderr, "  %d threads, the first of them %d, wait in %s at %s:%d\n", n, i,
            state_name(f->state), f->waits_at.file, f->waits_at.line);
    shown++;
  }
  emu_exit();
}

static void run_next(void)
{
  emu_fiber *next = emu_order_pop();
  if (next == nullptr && emu_block.n_exited < emu_block.n_threads) fail_deadlocked();
  switch_to(next == nullptr ? &launcher : next);
}

void emu_make_ready(emu_fiber *fiber)
{
  fiber->state = EMU_READY;
  emu_order_push(fiber);
}

void emu_wait(enum emu_state state, struct emu_site site)
{
  running()->state = state;
  running()->waits_at = site;
  run_next();
}

static void fiber_main(void)
{
  arrived(nullptr);
  for (;;) {
    EMU_ACQUIRE(&launch_sync);
    kernel_fn(kernel_ctx);
    EMU_RELEASE(&end_sync);
    emu_copies_drop(running());
    running()->state = EMU_EXITED;
    emu_block.n_exited++;
    emu_warp_thread_exited(running());
    emu_barrier_thread_exited();
    run_next();
  }
}

// Stacks begin at different offsets in their pages: at equal ones they would fight for cache sets.
static void prepare_stack(emu_fiber *fiber, int number)
{
  const size_t usable = STACK_BYTES - static_cast<size_t>(number * 5 % 61) * 64;
  void *pages = mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages, PAGE, PROT_NONE) != 0)
    emu_fail(emu_site{__FILE__, __LINE__}, "no memory for the stack of thread %d", number);
  fiber->stack = static_cast<char *>(pages) + PAGE;
  fiber->stack_bytes = STACK_BYTES;
#ifdef TRI_EMU_UCONTEXT
  ucontext_t *start = new ucontext_t;
  if (getcontext(start) != 0) emu_fail(emu_site{__FILE__, __LINE__}, "getcontext failed");
  start->uc_stack.ss_sp = fiber->stack;
  start->uc_stack.ss_size = usable;
  start->uc_link = nullptr;
  makecontext(start, fiber_main, 0);
  fiber->stack_pointer = start;
#else
  // As if emu_switch_stacks had been called: a return address for fiber_main that is never used,
  // fiber_main itself for `ret`, six registers.
  void **top = reinterpret_cast<void **>(static_cast<char *>(fiber->stack) + usable);
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(fiber_main);
  for (int i = 0; i < 6; i++)
    *--top = nullptr;
  fiber->stack_pointer = top;
#endif
}

static emu_fiber *new_fiber(int number)
{
  emu_fiber *fiber = new emu_fiber();
  prepare_stack(fiber, number);
#ifdef TRI_EMU_TSAN
  fiber->tsan_fiber = __tsan_create_fiber(0);
#endif
  return fiber;
}

void emu_fibers_start(void (*fn)(void *), void *ctx)
{
  kernel_fn = fn;
  kernel_ctx = ctx;
#ifdef TRI_EMU_TSAN
  launcher.tsan_fiber = __tsan_get_current_fiber();
#endif
  emu_current = &launcher;
}

// Under ThreadSanitizer a block's threads are other fibers than the block before had, else "same
// fiber, program order" would hide races between blocks.
void emu_fibers_run_block(dim3 block, uint64_t block_number)
{
  const int n = static_cast<int>(block.x * block.y * block.z);
  while (n_pool < n) {
    pool[n_pool] = new_fiber(n_pool);
    n_pool++;
  }
#ifdef TRI_EMU_TSAN
  const int first = static_cast<int>(block_number * 37 % static_cast<uint64_t>(n));
#else
  static_cast<void>(block_number);
  const int first = 0;
#endif
  emu_block.n_threads = n;
  emu_block.n_exited = 0;
  emu_order_start_block(n);
  for (int i = 0; i < n; i++) {
    const unsigned linear = static_cast<unsigned>(i);
    emu_fiber *fiber = pool[(i + first) % n];
    emu_block.threads[i] = fiber;
    fiber->linear = i;
    fiber->lane = i % EMU_WARP;
    fiber->warp = i / EMU_WARP;
    fiber->index = {linear % block.x, linear / block.x % block.y, linear / (block.x * block.y)};
    emu_make_ready(fiber);
  }
  EMU_RELEASE(&launch_sync);
  run_next();
}

void emu_fibers_end(void)
{
  EMU_ACQUIRE(&end_sync);
  emu_current = nullptr;
}
