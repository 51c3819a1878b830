#include "parallel/buckets.h"

#include "trireme/base/memory.h"

// Slices hold whole chunks of the norm, so that an owner alone can give their sums.
enum { SLICE_ALIGN = TRI_NORM_CHUNK };

// What the ranks do not divide evenly goes to other ranks from bucket to bucket.
void tri_bucket_slice(const tri_bucket *bucket, int size, int rank, int64_t *first, int64_t *end)
{
  const int64_t lines = (bucket->end - bucket->first + SLICE_ALIGN - 1) / SLICE_ALIGN;
  const int64_t turn = bucket->first / SLICE_ALIGN % size;
  const int64_t begin = bucket->first + (lines * rank + turn) / size * SLICE_ALIGN;
  const int64_t stop = bucket->first + (lines * (rank + 1) + turn) / size * SLICE_ALIGN;
  *first = begin < bucket->end ? begin : bucket->end;
  *end = stop < bucket->end ? stop : bucket->end;
}

static int64_t pieces_of(int64_t elements, int64_t limit)
{
  return (elements + limit - 1) / limit;
}

// Appends the range in pieces, the highest first, as backward would complete them if it could.
static void append_range(tri_buckets *buckets, int64_t first, int64_t end, int64_t limit, int block)
{
  const int64_t n = pieces_of(end - first, limit);
  for (int64_t k = n - 1; k >= 0; k--) {
    const int64_t lines = (end - first + SLICE_ALIGN - 1) / SLICE_ALIGN;
    const int64_t from = first + lines * k / n * SLICE_ALIGN;
    const int64_t to = k == n - 1 ? end : first + lines * (k + 1) / n * SLICE_ALIGN;
    buckets->list[buckets->n++] = (tri_bucket){from, to, block};
    if (to - from > buckets->max_elements) buckets->max_elements = to - from;
  }
}

static bool begins_chunk(const int *first_blocks, int n_chunks, int block)
{
  for (int c = 0; c < n_chunks; c++) {
    if (first_blocks[c] == block) return true;
  }
  return block == 0;
}

tri_status tri_buckets_plan(const tri_model *model, const int *first_blocks, int n_chunks,
                            int64_t bucket_bytes, tri_buckets *out)
{
  const tri_parameters *parameters = &model->parameters;
  int64_t limit = bucket_bytes / (int64_t)sizeof(float);
  if (limit < TRI_NORM_CHUNK) limit = TRI_NORM_CHUNK;
  tri_buckets buckets = {0};
  const int64_t count = tri_parameters_gradient_count(parameters);
  const int64_t most = count / limit + 2 * model->n_blocks + 3;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, most, &buckets.list));
  // The second use of a tied array is ready as soon as the last block is.
  if (count > parameters->flat_count)
    append_range(&buckets, parameters->flat_count, count, limit, model->n_blocks - 1);
  int64_t end = parameters->flat_count;
  for (int block = model->n_blocks - 1; block >= 0; block--) {
    const int64_t first = parameters->offsets[block];
    const bool closes = end - first >= limit || begins_chunk(first_blocks, n_chunks, block);
    if (first == end || !closes) continue;
    append_range(&buckets, first, end, limit, block);
    end = first;
  }
  *out = buckets;
  return TRI_OK;
}

void tri_buckets_free(tri_buckets *buckets)
{
  TRI_FREE(&buckets->list);
  *buckets = (tri_buckets){0};
}
