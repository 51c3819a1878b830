#include "ckpt/split_chunks.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/cover.h"
#include "trireme/base/memory.h"

enum { FLIGHT_BYTES = 64 << 20 };

// A box with elements, told to all ranks by its first replica.
typedef struct part {
  tri_ckpt_array array;
  int32_t rank;
  int32_t index; // in that rank's state
} part;

// What a part has of a chunk.
typedef struct touch {
  int64_t part;
  int64_t elements;
} touch;

// A chunk that no part holds alone.
typedef struct split {
  int64_t first_touch, n_touches; // the parts that hold something of it, by rank
  int64_t chunk;
} split;

// What all ranks know alike.
typedef struct table {
  part *parts; // by name, rank and first element
  int64_t n_parts;
  split *splits; // in the order of parts, then chunks
  int64_t n_splits, split_room;
  touch *touches;
  int64_t n_touches, touch_room;
} table;

static int compare_parts(const void *a, const void *b)
{
  const part *p = a, *q = b;
  const int order = strcmp(p->array.name, q->array.name);
  if (order != 0) return order;
  if (p->rank != q->rank) return p->rank < q->rank ? -1 : 1;
  return tri_ckpt_compare_starts(&p->array.box, &q->array.box);
}

static bool is_part(const tri_ckpt_array *array)
{
  return tri_box_elements(&array->box) > 0 && array->replica == 0;
}

static tri_status own_parts(const tri_ckpt_state *state, int rank, part **out, int64_t *n)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, state->n_arrays, out));
  for (int i = 0; i < state->n_arrays; i++) {
    if (!is_part(&state->arrays[i])) continue;
    (*out)[(*n)++] = (part){.array = state->arrays[i], .rank = rank, .index = i};
  }
  return TRI_OK;
}

// All parts of all ranks to all ranks.
static tri_status share_parts(tri_comm *comm, const tri_ckpt_state *state, table *t)
{
  tri_status status = TRI_OK;
  const bool is_root = tri_comm_rank(comm) == 0;
  part *own = NULL;
  int64_t n_own = 0;
  int64_t *sizes = NULL;
  void *gathered = NULL;
  const tri_status listed = own_parts(state, tri_comm_rank(comm), &own, &n_own);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "state digest parts", listed));
  TRI_CALL_GOTO(done, tri_comm_gather(comm, "state digest parts", own, (size_t)n_own * sizeof *own,
                                      0, &sizes, &gathered));
  if (is_root) {
    int64_t bytes = 0;
    for (int i = 0; i < tri_comm_size(comm); i++)
      bytes += sizes[i];
    t->n_parts = bytes / (int64_t)sizeof(part);
  }
  TRI_CALL_GOTO(done,
                tri_comm_broadcast(comm, "state digest parts", &t->n_parts, sizeof t->n_parts, 0));
  const tri_status room = TRI_NEW(TRI_MODULE_CKPT, t->n_parts, &t->parts);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "state digest memory", room));
  const size_t bytes = (size_t)t->n_parts * sizeof(part);
  if (is_root && bytes > 0) memcpy(t->parts, gathered, bytes);
  TRI_CALL_GOTO(done, tri_comm_broadcast(comm, "state digest parts", t->parts, bytes, 0));
  if (t->n_parts > 0) qsort(t->parts, (size_t)t->n_parts, sizeof(part), compare_parts);

done:
  tri_free(gathered);
  tri_free(sizes);
  tri_free(own);
  return status;
}

static int64_t end_of_array(const table *t, int64_t first)
{
  int64_t end = first + 1;
  while (end < t->n_parts && strcmp(t->parts[first].array.name, t->parts[end].array.name) == 0)
    end++;
  return end;
}

static tri_status check_cover(const part *parts, int64_t n)
{
  tri_status status = TRI_OK;
  tri_box *boxes = NULL;
  int *ranks = NULL;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, n, &boxes));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, n, &ranks));
  for (int64_t i = 0; i < n; i++) {
    boxes[i] = parts[i].array.box;
    ranks[i] = parts[i].rank;
  }
  const tri_cover cover = {parts[0].array.name, &parts[0].array.shape, boxes, ranks, "rank", n};
  status = tri_ckpt_check_cover(&cover);
  if (status == TRI_ERR_FORMAT) status = TRI_ERROR(TRI_ERR_ARGUMENT, "%s", tri_error_message());

done:
  tri_free(ranks);
  tri_free(boxes);
  return status;
}

static tri_status check_parts(const part *parts, int64_t n)
{
  const tri_ckpt_array *first = &parts[0].array;
  for (int64_t i = 1; i < n; i++)
    TRI_CHECK(parts[i].array.dtype == first->dtype &&
                  tri_shape_equal(&parts[i].array.shape, &first->shape),
              TRI_ERR_ARGUMENT, "array %s has another type or shape on rank %d than on rank %d",
              first->name, parts[i].rank, parts[0].rank);
  return check_cover(parts, n);
}

// Parts that hold something of each chunk of an array; -1: one of them holds all of it.
static void count_touches(const table *t, int64_t first, int64_t end, int64_t *counts)
{
  const tri_shape *shape = &t->parts[first].array.shape;
  for (int64_t i = first; i < end; i++) {
    const tri_box *box = &t->parts[i].array.box;
    int64_t low, high;
    tri_chunk_range(shape, box, &low, &high);
    for (int64_t c = low; c <= high; c++) {
      const int64_t common = tri_chunk_common(shape, c, box);
      if (common == tri_chunk_elements(shape, c)) counts[c] = -1;
      if (common > 0 && counts[c] >= 0) counts[c]++;
    }
  }
}

// Room for `more` behind the `used` items of a list.
static tri_status make_room(void **items, size_t size, int64_t used, int64_t more, int64_t *room)
{
  if (used + more <= *room) return TRI_OK;
  char *bytes;
  const int64_t wanted = 2 * (used + more);
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, (size_t)wanted * size, &bytes));
  if (used > 0) memcpy(bytes, *items, (size_t)used * size);
  tri_free(*items);
  *items = bytes;
  *room = wanted;
  return TRI_OK;
}

// Makes splits of the chunks that no part holds alone; counts[c] becomes the number of the split of
// chunk c.
static tri_status add_splits(table *t, const tri_shape *shape, int64_t *counts)
{
  const int64_t n_chunks = tri_chunk_count(shape);
  int64_t n_splits = 0, n_touches = 0;
  for (int64_t c = 0; c < n_chunks; c++) {
    n_splits += counts[c] < 0 ? 0 : 1;
    n_touches += counts[c] < 0 ? 0 : counts[c];
  }
  TRI_CALL(make_room((void **)&t->splits, sizeof(split), t->n_splits, n_splits, &t->split_room));
  TRI_CALL(make_room((void **)&t->touches, sizeof(touch), t->n_touches, n_touches, &t->touch_room));
  for (int64_t c = 0; c < n_chunks; c++) {
    if (counts[c] < 0) continue;
    t->splits[t->n_splits] = (split){.first_touch = t->n_touches, .chunk = c};
    t->n_touches += counts[c];
    counts[c] = t->n_splits++;
  }
  return TRI_OK;
}

static void fill_touches(table *t, int64_t first, int64_t end, const int64_t *split_of)
{
  const tri_shape *shape = &t->parts[first].array.shape;
  for (int64_t i = first; i < end; i++) {
    const tri_box *box = &t->parts[i].array.box;
    int64_t low, high;
    tri_chunk_range(shape, box, &low, &high);
    for (int64_t c = low; c <= high; c++) {
      const int64_t common = split_of[c] < 0 ? 0 : tri_chunk_common(shape, c, box);
      if (common == 0) continue;
      split *s = &t->splits[split_of[c]];
      t->touches[s->first_touch + s->n_touches++] = (touch){.part = i, .elements = common};
    }
  }
}

// The time grows with the number of parts and of the chunks that each spans.
static tri_status find_splits_of(table *t, int64_t first, int64_t end)
{
  const tri_shape *shape = &t->parts[first].array.shape;
  int64_t *counts;
  TRI_CALL(check_parts(&t->parts[first], end - first));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, tri_chunk_count(shape), &counts));
  count_touches(t, first, end, counts);
  const tri_status status = add_splits(t, shape, counts);
  if (status == TRI_OK) fill_touches(t, first, end, counts);
  tri_free(counts);
  return status;
}

static tri_status find_splits(table *t)
{
  for (int64_t first = 0, end; first < t->n_parts; first = end) {
    end = end_of_array(t, first);
    TRI_CALL(find_splits_of(t, first, end));
  }
  return TRI_OK;
}

// --- one batch of split chunks: chunk i of the batch is put together on rank (first + i) % size

typedef struct batch {
  tri_comm *comm;
  const tri_ckpt_state *state;
  const table *table;
  int64_t first, n; // splits; at most one to a rank
  tri_message *sends, *receives;
  int n_sends, n_receives;
  char *out, *in; // bytes sent and received, in the order of the messages
  size_t out_used, in_used;
  tri_status status; // of this rank's fetches: the messages are sent in any case
} batch;

static const split *split_at(const batch *b, int64_t i)
{
  return &b->table->splits[b->first + i];
}

static int assembler(const batch *b, int64_t i)
{
  return (int)((b->first + i) % tri_comm_size(b->comm));
}

static const part *part_of(const table *t, int64_t which)
{
  return &t->parts[t->touches[which].part];
}

static const tri_ckpt_array *array_of(const table *t, const split *s)
{
  return &part_of(t, s->first_touch)->array;
}

static size_t split_bytes(const table *t, const split *s)
{
  const tri_ckpt_array *array = array_of(t, s);
  return (size_t)tri_chunk_elements(&array->shape, s->chunk) * tri_dtype_size(array->dtype);
}

// Packs what a part of this rank has of a chunk: the boxes of the chunk one after the other.
static void pack(batch *b, const part *p, int64_t chunk)
{
  const tri_ckpt_array *array = &p->array;
  tri_box boxes[TRI_RANGE_BOXES], common;
  const int n = tri_chunk_boxes(&array->shape, chunk, boxes);
  for (int i = 0; i < n; i++) {
    if (!tri_box_intersect(&boxes[i], &array->box, &common)) continue;
    const size_t bytes = (size_t)tri_box_elements(&common) * tri_dtype_size(array->dtype);
    if (b->status == TRI_OK)
      b->status = b->state->fetch(b->state->user, p->index, &common, b->out + b->out_used);
    b->out_used += bytes;
  }
}

// Lays what a part sent into the packed chunk; returns the bytes it took.
static size_t unpack(const part *p, int64_t chunk, const char *from, char *to)
{
  const tri_ckpt_array *array = &p->array;
  const size_t element = tri_dtype_size(array->dtype);
  tri_box boxes[TRI_RANGE_BOXES], common;
  const int n = tri_chunk_boxes(&array->shape, chunk, boxes);
  size_t used = 0;
  for (int i = 0; i < n; i++) {
    if (tri_box_intersect(&boxes[i], &array->box, &common)) {
      tri_box_copy(to, &boxes[i], from + used, &common, &common, element);
      used += (size_t)tri_box_elements(&common) * element;
    }
    to += (size_t)tri_box_elements(&boxes[i]) * element;
  }
  return used;
}

// The touches of a split from `first` to `end` are of parts of one rank, which sends them as one.
static size_t run_of_rank(const table *t, const split *s, int64_t first, int64_t *end)
{
  int64_t elements = 0;
  const int rank = part_of(t, first)->rank;
  for (*end = first; *end < s->first_touch + s->n_touches; ++*end) {
    if (part_of(t, *end)->rank != rank) break;
    elements += t->touches[*end].elements;
  }
  return (size_t)elements * tri_dtype_size(array_of(t, s)->dtype);
}

// Fills the messages of this batch; a rank's own bytes go to itself without one.
static void prepare(batch *b)
{
  const table *t = b->table;
  const int rank = tri_comm_rank(b->comm);
  b->n_sends = b->n_receives = 0;
  b->out_used = b->in_used = 0;
  for (int64_t i = 0; i < b->n; i++) {
    const split *s = split_at(b, i);
    const int to = assembler(b, i);
    for (int64_t k = s->first_touch, end; k < s->first_touch + s->n_touches; k = end) {
      const size_t bytes = run_of_rank(t, s, k, &end);
      const int sender = part_of(t, k)->rank;
      if (sender != rank && to != rank) continue;
      const tri_message out = {.data = b->out + b->out_used, .size_bytes = bytes, .peer = to};
      const tri_message in = {.data = b->in + b->in_used, .size_bytes = bytes, .peer = sender};
      for (int64_t j = k; j < end && sender == rank; j++)
        pack(b, part_of(t, j), s->chunk);
      if (to == rank && sender == rank) memcpy(in.data, out.data, bytes);
      if (to == rank) b->in_used += bytes;
      if (sender == rank && to != rank) b->sends[b->n_sends++] = out;
      if (sender != rank && to == rank) b->receives[b->n_receives++] = in;
    }
  }
}

static tri_status digest_received(const batch *b, char *assembled, tri_chunk_list *list)
{
  size_t used = 0;
  for (int64_t i = 0; i < b->n; i++) {
    if (assembler(b, i) != tri_comm_rank(b->comm)) continue;
    const split *s = split_at(b, i);
    for (int64_t k = s->first_touch; k < s->first_touch + s->n_touches; k++)
      used += unpack(part_of(b->table, k), s->chunk, b->in + used, assembled);
    tri_digest digest;
    tri_digest_of(assembled, split_bytes(b->table, s), &digest);
    TRI_CALL(tri_chunk_list_add(list, array_of(b->table, s), s->chunk, &digest));
  }
  return TRI_OK;
}

static tri_status run_batch(batch *b, char *assembled, tri_chunk_list *list)
{
  tri_request *request;
  prepare(b);
  TRI_CALL(tri_comm_exchange_start(b->comm, "state digest chunks", b->sends, b->n_sends,
                                   b->receives, b->n_receives, &request));
  TRI_CALL(tri_comm_request_wait(&request));
  return digest_received(b, assembled, list);
}

// Splits of the next batch: at most one to a rank, at most FLIGHT_BYTES together (but at least
// one).
static int64_t batch_size(const table *t, int64_t first, int n_ranks)
{
  int64_t n = 0;
  size_t bytes = 0;
  while (first + n < t->n_splits && n < n_ranks) {
    bytes += split_bytes(t, &t->splits[first + n]);
    if (n > 0 && bytes > FLIGHT_BYTES) break;
    n++;
  }
  return n;
}

// The most messages and bytes of any batch, the same on all ranks.
static void bounds(const table *t, int n_ranks, size_t *bytes, size_t *chunk_bytes,
                   int64_t *messages)
{
  for (int64_t first = 0, n; first < t->n_splits; first += n) {
    n = batch_size(t, first, n_ranks);
    size_t sum = 0;
    int64_t count = 0;
    for (int64_t i = first; i < first + n; i++) {
      const size_t own = split_bytes(t, &t->splits[i]);
      sum += own;
      count += t->splits[i].n_touches < n_ranks ? t->splits[i].n_touches : n_ranks;
      if (own > *chunk_bytes) *chunk_bytes = own;
    }
    if (sum > *bytes) *bytes = sum;
    if (count > *messages) *messages = count;
  }
}

static tri_status allocate(batch *b, char **assembled)
{
  size_t bytes = 0, chunk_bytes = 0;
  int64_t messages = 0;
  bounds(b->table, tri_comm_size(b->comm), &bytes, &chunk_bytes, &messages);
  TRI_CHECK(messages <= INT32_MAX / 2, TRI_ERR_UNSUPPORTED, "%lld messages in one exchange",
            (long long)messages);
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, messages, &b->sends));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, messages, &b->receives));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, bytes, &b->out));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, chunk_bytes, &b->in));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, chunk_bytes, assembled));
  return tri_comm_reserve(b->comm, 1, (int)(2 * messages));
}

// On a communicator of its own: reserving messages must not touch what the caller has reserved.
static tri_status run_batches(tri_comm *comm, const tri_ckpt_state *state, const table *t,
                              tri_chunk_list *list)
{
  tri_status status = TRI_OK;
  char *assembled = NULL;
  batch b = {.state = state, .table = t};
  TRI_CALL(tri_comm_split(comm, "state digest", 0, tri_comm_rank(comm), &b.comm));
  TRI_CALL_GOTO(done, tri_comm_agree(b.comm, "state digest memory", allocate(&b, &assembled)));
  for (; b.first < t->n_splits; b.first += b.n) {
    b.n = batch_size(t, b.first, tri_comm_size(b.comm));
    TRI_CALL_GOTO(done, run_batch(&b, assembled, list));
  }
  TRI_CALL_GOTO(done, tri_comm_agree(b.comm, "state digest chunks", b.status));

done:
  tri_free(assembled);
  tri_free(b.in);
  tri_free(b.out);
  tri_free(b.receives);
  tri_free(b.sends);
  tri_comm_destroy(&b.comm);
  return status;
}

tri_status tri_split_chunks_digest(tri_comm *comm, const tri_ckpt_state *state,
                                   tri_chunk_list *list)
{
  tri_status status = TRI_OK;
  table t = {0};
  TRI_CALL_GOTO(done, share_parts(comm, state, &t));
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "state digest splits", find_splits(&t)));
  if (t.n_splits > 0) TRI_CALL_GOTO(done, run_batches(comm, state, &t, list));

done:
  tri_free(t.touches);
  tri_free(t.splits);
  tri_free(t.parts);
  return status;
}
