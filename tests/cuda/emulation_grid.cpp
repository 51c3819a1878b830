// Runs a grid block by block, counts, and says what is wrong.
#include "cuda/emulation_internal.h"

#include <cstdarg>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

uint3 emu_block_index;
dim3 emu_block_dim, emu_grid_dim;
struct emu_counts emu_counted;

static const struct emu_site here = {__FILE__, __LINE__};

static std::set<std::string> &kernels_seen(void)
{
  static std::set<std::string> *names = new std::set<std::string>(); // outlives the exit report
  return *names;
}

void emu_exit(void)
{
  fflush(nullptr);
  _exit(70); // not 77, which a test would report as skipped
}

extern "C" void emu_fail(struct emu_site site, const char *format, ...)
{
  fprintf(stderr,
          "cuda emulation: kernel %s: ", emu_block.kernel == nullptr ? "(none)" : emu_block.kernel);
  va_list list;
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  const uint3 thread = emu_current == nullptr ? uint3{0, 0, 0} : emu_current->index;
  fprintf(stderr, "\n  at %s:%d, block (%u,%u,%u), thread (%u,%u,%u)\n", site.file, site.line,
          emu_block_index.x, emu_block_index.y, emu_block_index.z, thread.x, thread.y, thread.z);
  emu_exit();
}

extern "C" struct emu_counts emu_get_counts(void)
{
  emu_counted.distinct_kernels = kernels_seen().size();
  return emu_counted;
}

extern "C" void emu_print_counts(FILE *out)
{
  const struct emu_counts c = emu_get_counts();
  fprintf(
      out,
      "cuda emulation: %llu kernels launched, %llu distinct, %llu blocks, orders%s%s%s, "
      "%llu barriers, %llu warp collectives, %llu mma, %llu ldmatrix with %llu bank conflicts\n",
      static_cast<unsigned long long>(c.kernels),
      static_cast<unsigned long long>(c.distinct_kernels),
      static_cast<unsigned long long>(c.blocks), (c.orders & 1) != 0 ? " 0" : "",
      (c.orders & 2) != 0 ? " 1" : "", (c.orders & 8) != 0 ? " 3" : "",
      static_cast<unsigned long long>(c.barriers), static_cast<unsigned long long>(c.collectives),
      static_cast<unsigned long long>(c.mmas), static_cast<unsigned long long>(c.ldmatrices),
      static_cast<unsigned long long>(c.ldmatrix_conflicts));
}

static void print_counts_at_exit(void)
{
  emu_print_counts(stderr);
}

static void count_kernel(const char *name)
{
  if (emu_counted.kernels++ == 0) {
    const char *wanted = getenv("TRI_EMU_COUNTS");
    if (wanted != nullptr && strcmp(wanted, "1") == 0 && atexit(print_counts_at_exit) != 0)
      emu_fail(here, "atexit refuses the report of the counts");
  }
  kernels_seen().insert(name);
  emu_counted.orders |= 1u << emu_order();
}

// The limits of compute capability 9.0.
static void check_launch(dim3 grid, dim3 block)
{
  const uint64_t n_threads = static_cast<uint64_t>(block.x) * block.y * block.z;
  if (n_threads < 1 || n_threads > EMU_MAX_THREADS || block.z > 64)
    emu_fail(here, "block (%u,%u,%u): 1 to %d threads, at most 64 in z", block.x, block.y, block.z,
             static_cast<int>(EMU_MAX_THREADS));
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535)
    emu_fail(here, "grid (%u,%u,%u): 1 to 2147483647, 65535 and 65535 blocks", grid.x, grid.y,
             grid.z);
}

// The order in which the n blocks run; empty: as they are numbered.
static std::vector<uint64_t> block_order(uint64_t n)
{
  std::vector<uint64_t> order;
  if (emu_order() == 0) return order;
  order.resize(n);
  for (uint64_t i = 0; i < n; i++)
    order[i] = n - 1 - i;
  if (emu_order() == 1) return order;
  for (uint64_t i = n - 1; i > 0; i--)
    std::swap(order[i], order[(emu_random() >> 8) % (i + 1)]);
  return order;
}

extern "C" void emu_run_kernel(const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                               void (*fn)(void *), void *ctx)
{
  emu_block.kernel = name;
  emu_block_index = {0, 0, 0};
  check_launch(grid, block);
  count_kernel(name);
  emu_block_dim = block;
  emu_grid_dim = grid;
  const uint64_t n_blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  const std::vector<uint64_t> order = block_order(n_blocks);
  emu_fibers_start(fn, ctx);
  for (uint64_t i = 0; i < n_blocks; i++) {
    const uint64_t number = order.empty() ? i : order[i];
    emu_block_index.x = static_cast<unsigned>(number % grid.x);
    emu_block_index.y = static_cast<unsigned>(number / grid.x % grid.y);
    emu_block_index.z = static_cast<unsigned>(number / grid.x / grid.y);
    emu_shared_start_block(shared_bytes);
    emu_barrier_start_block();
    emu_warp_start_block();
    emu_fibers_run_block(block, i);
    emu_shared_end_block();
    emu_counted.blocks++;
  }
  emu_fibers_end();
  emu_block.kernel = nullptr;
}
