// Gradient buckets: contiguous ranges of the flat parameter space, in the order in which backward
// completes them. Private to src/parallel. Local, pure.
#pragma once

#include "trireme/comm/comm.h"
#include "trireme/nn/model.h"

typedef struct tri_bucket {
  int64_t first, end; // elements of an array of gradients
  int ready_block;    // complete when the backward of this block is done
  // What is cut into slices, which moved by so many elements are the bucket's, as far as they lie
  // in it: the bucket itself, but for the second use of a tied array the bucket of the array, so
  // that both gradients of an element have one owner.
  int64_t cut_first, cut_end, moved;
} tri_bucket;

typedef struct tri_buckets {
  tri_bucket *list;
  int n;
  int64_t max_elements;
} tri_buckets;

// Cuts the gradients: a range closes at the first block boundary at or above `bucket_bytes`, and
// where a chunk begins (first_blocks as in data_parallel.h); a range larger than that is cut into
// pieces. *out owned: tri_buckets_free.
TRI_MUST_CHECK tri_status tri_buckets_plan(const tri_model *model, const int *first_blocks,
                                           int n_chunks, int64_t bucket_bytes, tri_buckets *out);
void tri_buckets_free(tri_buckets *buckets);

// Elements of the bucket that `rank` of `size` owns: what is cut, at multiples of TRI_NORM_CHUNK
// elements as evenly as may be.
void tri_bucket_slice(const tri_bucket *bucket, int size, int rank, int64_t *first, int64_t *end);

// The messages by which owners give their slices of a bucket to all: `data` is the bucket's first
// element, of `element_size` bytes. sends, receives (size - 1); returns how many of each.
int tri_bucket_gather_messages(const tri_bucket *bucket, int size, int rank, int tag, char *data,
                               size_t element_size, tri_message *sends, tri_message *receives);
