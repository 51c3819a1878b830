#include "device/cpu/cpu.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "device/cpu/fft.h"
#include "device/cpu/memory.h"
#include "device/cpu/memory_limits.h"
#include "device/cpu/onednn.h"
#include "trireme/base/memory.h"

static tri_cpu_device *cpu_of(tri_device *device)
{
  return (tri_cpu_device *)device;
}

static void cpu_close(tri_device *device)
{
  tri_cpu_linear_destroy(&cpu_of(device)->linear);
  tri_cpu_onednn_destroy(&cpu_of(device)->onednn);
  tri_free(device);
}

static void cpu_get_facts(const tri_device *device, tri_device_facts *out)
{
  const tri_cpu_device *cpu = (const tri_cpu_device *)device;
  *out = (tri_device_facts){.name = "cpu",
                            .description = cpu->description,
                            .isa = tri_cpu_isa_name(cpu->isa),
                            .n_threads = cpu->n_threads,
                            // The linear layers; attention widens bf16 before it multiplies.
                            .bf16_native = cpu->isa == TRI_CPU_AVX512_BF16,
                            .host_memory = true};
  // Opening has shown that the system says how much there is.
  tri_memory_limits limits = {0};
  if (tri_memory_limits_read("", &limits) != TRI_OK) tri_error_clear();
  out->memory_bytes = limits.total_bytes;
  out->memory_free_bytes = limits.free_bytes;
}

static tri_status cpu_alloc(tri_device *device, size_t size_bytes, void **out)
{
  TRI_CALL(tri_cpu_memory_take(&cpu_of(device)->blocks, size_bytes, out));
  return TRI_OK;
}

static void cpu_free(tri_device *device, void *memory)
{
  tri_cpu_memory_give_back(&cpu_of(device)->blocks, memory);
}

// Streams and events: each call has run when it returns, so there is nothing to wait for.

static tri_status cpu_stream_create(tri_device *device, tri_stream **out)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, out));
  (*out)->device = device;
  return TRI_OK;
}

static void cpu_stream_destroy(tri_stream *stream)
{
  tri_free(stream);
}

static tri_status cpu_stream_synchronize(tri_stream *stream)
{
  (void)stream;
  return TRI_OK;
}

static tri_status cpu_copy(tri_stream *stream, void *to, const void *from, size_t size_bytes)
{
  (void)stream;
  if (size_bytes > 0) memcpy(to, from, size_bytes);
  return TRI_OK;
}

static tri_status cpu_event_create(tri_device *device, tri_event **out)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, out));
  (*out)->device = device;
  return TRI_OK;
}

static void cpu_event_destroy(tri_event *event)
{
  tri_free(event);
}

static tri_status cpu_event_mark(tri_event *event, tri_stream *stream)
{
  (void)event;
  (void)stream;
  return TRI_OK;
}

static tri_status cpu_event_synchronize(tri_event *event)
{
  (void)event;
  return TRI_OK;
}

static tri_status cpu_event_query(tri_event *event, bool *done)
{
  (void)event;
  *done = true;
  return TRI_OK;
}

static const tri_device_operations cpu_operations = {.close = cpu_close,
                                                     .get_facts = cpu_get_facts,
                                                     .alloc = cpu_alloc,
                                                     .free = cpu_free,
                                                     .alloc_host = cpu_alloc,
                                                     .free_host = cpu_free,
                                                     .stream_create = cpu_stream_create,
                                                     .stream_destroy = cpu_stream_destroy,
                                                     .stream_synchronize = cpu_stream_synchronize,
                                                     .copy_to_device = cpu_copy,
                                                     .copy_to_host = cpu_copy,
                                                     .copy_on_device = cpu_copy,
                                                     .event_create = cpu_event_create,
                                                     .event_destroy = cpu_event_destroy,
                                                     .event_record = cpu_event_mark,
                                                     .event_wait = cpu_event_mark,
                                                     .event_synchronize = cpu_event_synchronize,
                                                     .event_query = cpu_event_query,
                                                     .fft_create = tri_cpu_fft_create,
                                                     .fft_destroy = tri_cpu_fft_destroy,
                                                     .fft_execute = tri_cpu_fft_execute};

// --- what the options ask for

static tri_status choose_isa(const char *name, tri_cpu_isa *out)
{
  const tri_cpu_isa widest = tri_cpu_detect_isa();
  if (name == NULL || strcmp(name, "auto") == 0) {
    *out = widest;
    return TRI_OK;
  }
  for (tri_cpu_isa isa = TRI_CPU_BASELINE; isa <= TRI_CPU_AVX512_BF16; isa++) {
    if (strcmp(name, tri_cpu_isa_name(isa)) != 0) continue;
    TRI_CHECK(isa <= widest, TRI_ERR_UNSUPPORTED,
              "cpu.isa asks for %s, this machine has %s: take that, or auto", name,
              tri_cpu_isa_name(widest));
    *out = isa;
    return TRI_OK;
  }
  return TRI_ERROR(TRI_ERR_ARGUMENT,
                   "cpu.isa is '%s', not one of auto, avx512_bf16, avx512, avx2, baseline", name);
}

typedef enum kernel_choice { TUNED, ONEDNN, REFERENCE } kernel_choice;

static tri_status choose_kernels(const char *name, kernel_choice *out)
{
  if (name == NULL || strcmp(name, "tuned") == 0) {
    *out = TUNED;
  } else if (strcmp(name, "onednn") == 0) {
    *out = ONEDNN;
  } else {
    TRI_CHECK(strcmp(name, "reference") == 0, TRI_ERR_ARGUMENT,
              "cpu.kernels is '%s', not one of tuned, onednn, reference", name);
    *out = REFERENCE;
  }
  return TRI_OK;
}

// --- what the header of a run says

// The processor's name as the system tells it, "CPU" where it does not (some aarch64 kernels).
static void read_model(char *out, size_t size)
{
  snprintf(out, size, "CPU");
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (file == NULL) return;
  char line[256];
  while (fgets(line, sizeof line, file) != NULL) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", strlen("model name")) != 0 || colon == NULL) continue;
    line[strcspn(line, "\n")] = '\0';
    snprintf(out, size, "%s", colon + 1 + strspn(colon + 1, " "));
    break;
  }
  fclose(file);
}

static void describe(tri_cpu_device *cpu, kernel_choice choice)
{
  char model[64], library[32];
  read_model(model, sizeof model);
  tri_cpu_onednn_describe(library, sizeof library);
  snprintf(cpu->description, sizeof cpu->description, "%s, %s kernels, %s%s%d thread%s", model,
           choice == REFERENCE ? "reference" : tri_cpu_isa_name(cpu->isa),
           choice == ONEDNN ? library : "", choice == ONEDNN ? " products, " : "", cpu->n_threads,
           cpu->n_threads == 1 ? "" : "s");
}

static tri_status fill_table(tri_cpu_device *cpu, kernel_choice choice)
{
  tri_kernels *table = &cpu->base.kernels;
  tri_cpu_reference_kernels(table);
  if (choice == REFERENCE) return TRI_OK;
  tri_cpu_vector_kernels(table, cpu->isa);
  if (choice == ONEDNN) {
    TRI_CALL(tri_cpu_onednn_create(table, cpu->isa, cpu->n_threads, &cpu->onednn));
  } else {
    TRI_CALL(tri_cpu_linear_create(table, cpu->isa, cpu->n_threads, &cpu->linear));
  }
  return TRI_OK;
}

tri_status tri_cpu_open(const tri_device_options *options, tri_device **out)
{
  tri_cpu_isa isa = TRI_CPU_BASELINE;
  tri_status status = TRI_OK;
  tri_memory_limits limits;
  kernel_choice choice = TUNED;
  TRI_CALL(choose_isa(options->isa, &isa));
  TRI_CALL(choose_kernels(options->kernels, &choice));
  TRI_CHECK(options->n_threads >= 0, TRI_ERR_ARGUMENT,
            "cpu.threads is %d: give 1 or more, or 0 for one for each processing unit",
            options->n_threads);
  TRI_CALL(tri_memory_limits_read("", &limits));

  tri_cpu_device *cpu = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DEVICE, 1, &cpu));
  cpu->base.operations = &cpu_operations;
  cpu->isa = choice == REFERENCE ? TRI_CPU_BASELINE : isa;
  cpu->n_threads = options->n_threads > 0 ? options->n_threads : omp_get_num_procs();
  omp_set_num_threads(cpu->n_threads);
  describe(cpu, choice);
  TRI_CALL_GOTO(undo_cpu, fill_table(cpu, choice));
  *out = &cpu->base;
  return TRI_OK;

undo_cpu:
  TRI_FREE(&cpu);
  return status;
}
