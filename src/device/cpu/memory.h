// Memory of the CPU device: host memory that is there when it is handed out.
//
// Linux promises more memory than it has and kills the process that touches it, so a request is
// compared with what is free (memory_limits.h) before anything is touched, and then every page is
// touched at once: out of memory is an error here, never a kill later. Each block has a record in
// counted memory (module device), so a block that is never freed shows in the balance at the end,
// and one that is taken inside a step in the count of allocations. Local; one thread at a time.
#pragma once

#include <stddef.h>

#include "trireme/base/status.h"

typedef struct tri_cpu_block tri_cpu_block;

// Takes a block, adds its record to the list *blocks and writes its address to *out. Aligned to 256
// bytes; blocks of 4 MiB and more to 2 MiB, in huge pages where the system gives them.
TRI_MUST_CHECK tri_status tri_cpu_memory_take(tri_cpu_block **blocks, size_t size_bytes,
                                              void **out);

// Gives back the block at `memory`, which is in the list.
void tri_cpu_memory_give_back(tri_cpu_block **blocks, void *memory);
