#include "parallel/buckets.h"

#include "trireme/base/memory.h"

enum { SLICE_ALIGN = 16 };

void tri_bucket_slice(const tri_bucket *bucket, int size, int rank, int64_t *first, int64_t *end)
{
  const int64_t lines = (bucket->end - bucket->first + SLICE_ALIGN - 1) / SLICE_ALIGN;
  const int64_t begin = bucket->first + lines * rank / size * SLICE_ALIGN;
  const int64_t stop = bucket->first + lines * (rank + 1) / size * SLICE_ALIGN;
  *first = begin < bucket->end ? begin : bucket->end;
  *end = stop < bucket->end ? stop : bucket->end;
}

// First element of the flat space that block `block` or a later one owns.
static int64_t block_offset(const tri_parameters *parameters, int block)
{
  for (int i = 0; i < parameters->n; i++) {
    if (parameters->list[i].block >= block) return parameters->list[i].offset;
  }
  return parameters->flat_count;
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

tri_status tri_buckets_plan(const tri_model *model, int64_t bucket_bytes, tri_buckets *out)
{
  const tri_parameters *parameters = &model->parameters;
  int64_t limit = bucket_bytes / (int64_t)sizeof(float);
  if (limit < TRI_NORM_CHUNK) limit = TRI_NORM_CHUNK;
  tri_buckets buckets = {0};
  const int64_t most = parameters->flat_count / limit + 2 * model->n_blocks + 1;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, most, &buckets.list));
  int64_t end = parameters->flat_count;
  for (int block = model->n_blocks - 1; block >= 0; block--) {
    const int64_t first = block == 0 ? 0 : block_offset(parameters, block);
    if (first == end || (end - first < limit && block > 0)) continue;
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
