#include "parallel/buckets.h"

#include "trireme/base/memory.h"

// Slices hold whole chunks of the norm, so that an owner alone can give their sums.
enum { SLICE_ALIGN = TRI_NORM_CHUNK };

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
  if (x < low) return low;
  return x < high ? x : high;
}

// What the ranks do not divide evenly goes to other ranks from bucket to bucket.
void tri_bucket_slice(const tri_bucket *bucket, int size, int rank, int64_t *first, int64_t *end)
{
  const int64_t from = bucket->cut_first;
  const int64_t lines = (bucket->cut_end - from + SLICE_ALIGN - 1) / SLICE_ALIGN;
  const int64_t turn = from / SLICE_ALIGN % size;
  const int64_t begin = from + (lines * rank + turn) / size * SLICE_ALIGN;
  const int64_t stop = from + (lines * (rank + 1) + turn) / size * SLICE_ALIGN;
  *first = clamp(begin + bucket->moved, bucket->first, bucket->end);
  *end = clamp(stop + bucket->moved, bucket->first, bucket->end);
}

static tri_message slice_message(const tri_bucket *bucket, int size, int rank, char *data,
                                 size_t element_size)
{
  int64_t first, end;
  tri_bucket_slice(bucket, size, rank, &first, &end);
  return (tri_message){.data = data + (size_t)(first - bucket->first) * element_size,
                       .size_bytes = (size_t)(end - first) * element_size};
}

int tri_bucket_gather_messages(const tri_bucket *bucket, int size, int rank, int tag, char *data,
                               size_t element_size, tri_message *sends, tri_message *receives)
{
  int n = 0;
  for (int r = 0; r < size; r++) {
    if (r == rank) continue;
    sends[n] = slice_message(bucket, size, rank, data, element_size);
    receives[n] = slice_message(bucket, size, r, data, element_size);
    sends[n].peer = receives[n].peer = r;
    sends[n].tag = receives[n].tag = tag;
    n++;
  }
  return n;
}

static int64_t pieces_of(int64_t elements, int64_t limit)
{
  return (elements + limit - 1) / limit;
}

static void append(tri_buckets *buckets, tri_bucket bucket)
{
  const int64_t elements = bucket.end - bucket.first;
  buckets->list[buckets->n++] = bucket;
  if (elements > buckets->max_elements) buckets->max_elements = elements;
}

// Appends the range in pieces, the highest first, as backward would complete them if it could.
static void append_range(tri_buckets *buckets, int64_t first, int64_t end, int64_t limit, int block)
{
  const int64_t n = pieces_of(end - first, limit);
  for (int64_t k = n - 1; k >= 0; k--) {
    const int64_t lines = (end - first + SLICE_ALIGN - 1) / SLICE_ALIGN;
    const int64_t from = first + lines * k / n * SLICE_ALIGN;
    const int64_t to = k == n - 1 ? end : first + lines * (k + 1) / n * SLICE_ALIGN;
    append(buckets, (tri_bucket){from, to, block, from, to, 0});
  }
}

// The second use of a tied array, cut where the buckets of the array are.
static void append_tied(tri_buckets *buckets, const tri_parameters *parameters, int block,
                        const tri_buckets *of_blocks)
{
  const tri_parameter *tied = &parameters->list[parameters->tied];
  const int64_t end = tied->offset + parameters->tied_count;
  const int64_t moved = parameters->flat_count - tied->offset;
  for (int b = 0; b < of_blocks->n; b++) {
    const tri_bucket *owner = &of_blocks->list[b];
    const int64_t from = clamp(tied->offset, owner->first, owner->end);
    const int64_t to = clamp(end, owner->first, owner->end);
    if (from < to)
      append(buckets,
             (tri_bucket){from + moved, to + moved, block, owner->first, owner->end, moved});
  }
}

static bool begins_chunk(const int *first_blocks, int n_chunks, int block)
{
  for (int c = 0; c < n_chunks; c++) {
    if (first_blocks[c] == block) return true;
  }
  return block == 0;
}

static void append_blocks(tri_buckets *buckets, const tri_parameters *parameters,
                          const int *first_blocks, int n_chunks, int64_t limit)
{
  int64_t end = parameters->flat_count;
  for (int block = parameters->n_blocks - 1; block >= 0; block--) {
    const int64_t first = parameters->offsets[block];
    const bool closes = end - first >= limit || begins_chunk(first_blocks, n_chunks, block);
    if (first == end || !closes) continue;
    append_range(buckets, first, end, limit, block);
    end = first;
  }
}

tri_status tri_buckets_plan(const tri_model *model, const int *first_blocks, int n_chunks,
                            int64_t bucket_bytes, tri_buckets *out)
{
  const tri_parameters *parameters = &model->parameters;
  int64_t limit = bucket_bytes / (int64_t)sizeof(float);
  if (limit < TRI_NORM_CHUNK) limit = TRI_NORM_CHUNK;
  tri_buckets of_blocks = {0}, buckets = {0};
  tri_status status = TRI_OK;
  const int64_t count = tri_parameters_gradient_count(parameters);
  const int64_t most = count / limit + 2 * model->n_blocks + 3;
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, most, &of_blocks.list));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_PARALLEL, 2 * most, &buckets.list));
  append_blocks(&of_blocks, parameters, first_blocks, n_chunks, limit);
  // The second use of a tied array is ready as soon as the last block is.
  if (parameters->tied_count > 0 && parameters->tied >= 0)
    append_tied(&buckets, parameters, model->n_blocks - 1, &of_blocks);
  else if (parameters->tied_count > 0)
    append_range(&buckets, parameters->flat_count, count, limit, model->n_blocks - 1);
  for (int b = 0; b < of_blocks.n; b++)
    append(&buckets, of_blocks.list[b]);
  *out = buckets;

done:
  TRI_FREE(&of_blocks.list);
  return status;
}

void tri_buckets_free(tri_buckets *buckets)
{
  TRI_FREE(&buckets->list);
  *buckets = (tri_buckets){0};
}
