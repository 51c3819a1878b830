// trireme info: what runs where, as the program sees it.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/schedule.h"
#include "trireme/base/memory.h"
#include "trireme/device/device.h"

static const double limit_seconds = 60.0;

// What a rank says of itself; sent as bytes between ranks of one program.
typedef struct rank_facts {
  tri_binding binding;
  int local_rank, local_size;
  int n_threads;
  char device[256];
  char isa[32];
  bool bf16_native;
  uint64_t memory_bytes, memory_free_bytes;
} rank_facts;

static tri_status own_facts(tri_runtime *runtime, rank_facts *facts)
{
  tri_device *device = NULL;
  tri_device_facts device_facts;
  memset(facts, 0, sizeof *facts); // padding travels too
  const tri_device_options options = {.n_threads = tri_runtime_threads(runtime, 0)};
  TRI_CALL(tri_device_open("cpu", &options, &device));
  tri_device_get_facts(device, &device_facts);
  facts->binding = *tri_runtime_binding(runtime);
  facts->local_rank = tri_comm_local_rank(tri_runtime_world(runtime));
  facts->local_size = tri_comm_local_size(tri_runtime_world(runtime));
  facts->n_threads = device_facts.n_threads;
  facts->bf16_native = device_facts.bf16_native;
  facts->memory_bytes = device_facts.memory_bytes;
  facts->memory_free_bytes = device_facts.memory_free_bytes;
  snprintf(facts->device, sizeof facts->device, "%s: %s", device_facts.name,
           device_facts.description);
  snprintf(facts->isa, sizeof facts->isa, "%s", device_facts.isa);
  tri_device_close(&device);
  return TRI_OK;
}

static void print_device(const rank_facts *facts)
{
  const double gib = 1073741824.0;
  printf("device     %s\n", facts->device);
  printf("kernels    %s, bf16 products %s\n", facts->isa,
         facts->bf16_native ? "by the machine's own units" : "by f32 units");
  printf("memory     %.1f GiB, %.1f GiB free\n", (double)facts->memory_bytes / gib,
         (double)facts->memory_free_bytes / gib);
}

// One line a rank; what the device is, once for each stretch of ranks that have the same.
static void print_ranks(const rank_facts *all, int n_ranks)
{
  int n_hosts = 0;
  for (int r = 0; r < n_ranks; r++)
    n_hosts += all[r].local_rank == 0;
  printf("ranks      %d on %d host%s\n", n_ranks, n_hosts, n_hosts == 1 ? "" : "s");
  for (int r = 0; r < n_ranks; r++) {
    const rank_facts *f = &all[r];
    if (r == 0 || strcmp(f->device, all[r - 1].device) != 0) print_device(f);
    printf("rank %-5d %s, local rank %d of %d, units %s%s of %s, %d thread%s\n", r, f->binding.host,
           f->local_rank, f->local_size, f->binding.units, f->binding.bound ? "" : " (not bound)",
           f->binding.cpu, f->n_threads, f->n_threads == 1 ? "" : "s");
  }
}

// GPUs of root's host, or why there is none to be had: no error, many machines are like that.
static void print_cuda(void)
{
  tri_device_place places[TRI_DEVICE_MAX_PLACES];
  int n = 0;
  if (!tri_device_built("cuda")) {
    printf("cuda       not compiled in (./configure --with-cuda)\n");
  } else if (tri_device_list("cuda", places, &n) != TRI_OK) {
    printf("cuda       %s\n", tri_error_message());
    tri_error_clear();
  }
  for (int d = 0; d < n; d++)
    printf("cuda:%-5d %s at %s\n", d, places[d].description, places[d].bus_id);
}

static tri_status gather_and_print(tri_runtime *runtime)
{
  tri_comm *comm = tri_runtime_world(runtime);
  rank_facts facts;
  int64_t *sizes = NULL;
  void *all = NULL;
  TRI_CALL(tri_comm_agree(comm, "device", own_facts(runtime, &facts)));
  TRI_CALL(tri_comm_gather(comm, "info", &facts, sizeof facts, 0, &sizes, &all));
  if (tri_comm_rank(comm) == 0) {
    tri_cli_print_version();
    printf("\n");
    print_ranks(all, tri_comm_size(comm));
    print_cuda();
  }
  tri_free(sizes);
  tri_free(all);
  return TRI_OK;
}

tri_status tri_cli_info(int argc, char **argv)
{
  int n_words = 0;
  tri_runtime *runtime = NULL;
  if (argc > 1 && strcmp(argv[1], "schedule") == 0) {
    argv[1] = argv[0]; // whose help explains the options
    return tri_cli_schedule(argc - 1, argv + 1);
  }
  TRI_CALL(tri_cli_parse(NULL, 0, argc, argv, &n_words));
  TRI_CHECK(n_words == 0, TRI_ERR_USAGE, "info takes no arguments but schedule KIND, found %s",
            argv[0]);
  tri_status status = tri_runtime_start(limit_seconds, &runtime);
  if (status == TRI_OK) status = gather_and_print(runtime);
  return tri_cli_finish(&runtime, status);
}
