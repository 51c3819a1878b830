// Counted host memory: every allocation belongs to a module, and a module's balance is zero when it
// is done.
//
// Local, thread-safe. Blocks are zeroed and aligned to 64 bytes (a cache line, an AVX-512
// register).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trireme/base/status.h"

typedef enum tri_module {
  TRI_MODULE_BASE,
  TRI_MODULE_TELEMETRY,
  TRI_MODULE_DEVICE,
  TRI_MODULE_TENSOR,
  TRI_MODULE_COMM,
  TRI_MODULE_RUNTIME,
  TRI_MODULE_NN,
  TRI_MODULE_OPTIM,
  TRI_MODULE_DATA,
  TRI_MODULE_PARALLEL,
  TRI_MODULE_CKPT,
  TRI_MODULE_JOB,
  TRI_MODULE_CLI,
  TRI_MODULE_TEST,
  TRI_MODULE_COUNT
} tri_module;

// count * size zeroed bytes (at least one), owned by the caller, released by tri_free. NULL with
// the error text set (TRI_ERR_MEMORY) when the product overflows or memory is short.
void *tri_calloc(tri_module module, size_t count, size_t size);

// Releases a block of tri_calloc or tri_strdup; NULL is fine.
void tri_free(void *block);

// A copy of `text`, owned by the caller; NULL with the error text set when memory is short.
char *tri_strdup(tri_module module, const char *text);

// An array of `count` zeroed objects: TRI_CALL(TRI_NEW(TRI_MODULE_NN, n, &layers)).
#define TRI_NEW(module, count, out) \
  ((*(out) = tri_calloc((module), (size_t)(count), sizeof **(out))) == NULL ? TRI_ERR_MEMORY \
                                                                            : TRI_OK)

// Releases and nulls: TRI_FREE(&layers).
#define TRI_FREE(pointer) (tri_free(*(pointer)), (void)(*(pointer) = NULL))

// Blocks now held by one module.
int64_t tri_memory_blocks(tri_module module);

// Bytes now held by one module.
int64_t tri_memory_bytes(tri_module module);

// Allocations since the program began, over all modules: a step that allocates changes it.
int64_t tri_memory_allocations(void);

// Bad when a module still holds blocks: names the first such module and its blocks and bytes.
TRI_MUST_CHECK tri_status tri_memory_check_balance(void);
