// What block_weights.c needs of data parallelism. Private to src/parallel.
#pragma once

#include "parallel/buckets.h"
#include "trireme/parallel/data_parallel.h"

// With zero 2 and 3 none holds elements of two blocks. Borrowed.
const tri_buckets *tri_data_parallel_buckets(const tri_data_parallel *dp);
