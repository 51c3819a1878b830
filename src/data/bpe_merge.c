#include "data/bpe_merge.h"

#include <stdint.h>

#include "trireme/base/memory.h"

enum { FIRST_ROOM = 1024, MOST_BYTES = 1 << 30, NONE = -1 };

// A token of the piece as it stands, in a list of those still there.
typedef struct merge_symbol {
  int32_t id;       // NONE: merged into the one on its left
  int32_t rank;     // of the merge with the next one, NONE: there is none
  int32_t previous; // NONE at the ends
  int32_t next;
} merge_symbol;

// Merges that were possible when they were found lie in a heap as rank << 32 | place, so that the
// least number is the merge to do. One is stale when the symbol at its place is gone or has another
// rank by now.
struct tri_merge_work {
  size_t room;
  merge_symbol *symbols; // room
  uint64_t *heap;        // 2 room: a merge takes one out and finds at most two
  size_t n_heap;
};

static tri_status make_room(tri_merge_work *work, size_t n)
{
  if (n <= work->room) return TRI_OK;
  size_t room = work->room > 0 ? work->room : FIRST_ROOM;
  while (room < n)
    room *= 2;
  work->room = 0;
  TRI_FREE(&work->symbols);
  TRI_FREE(&work->heap);
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, room, &work->symbols));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 2 * room, &work->heap));
  work->room = room;
  return TRI_OK;
}

tri_status tri_merge_work_create(tri_merge_work **out)
{
  tri_merge_work *work = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 1, &work));
  const tri_status status = make_room(work, FIRST_ROOM);
  if (status != TRI_OK) tri_merge_work_destroy(&work);
  TRI_CALL(status);
  *out = work;
  return TRI_OK;
}

void tri_merge_work_destroy(tri_merge_work **work)
{
  if (*work == NULL) return;
  tri_free((*work)->symbols);
  tri_free((*work)->heap);
  TRI_FREE(work);
}

static void push(tri_merge_work *work, int32_t rank, int32_t place)
{
  const uint64_t entry = (uint64_t)(uint32_t)rank << 32 | (uint32_t)place;
  uint64_t *heap = work->heap;
  size_t child = work->n_heap++;
  for (; child > 0 && heap[(child - 1) / 2] > entry; child = (child - 1) / 2)
    heap[child] = heap[(child - 1) / 2];
  heap[child] = entry;
}

static uint64_t pop(tri_merge_work *work)
{
  uint64_t *heap = work->heap;
  const uint64_t least = heap[0], last = heap[--work->n_heap];
  size_t parent = 0;
  for (size_t child = 1; child < work->n_heap; child = 2 * parent + 1) {
    if (child + 1 < work->n_heap && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= last) break;
    heap[parent] = heap[child];
    parent = child;
  }
  heap[parent] = last;
  return least;
}

// Looks up the merge of the symbol at `place` with its next one.
static void find_merge(const tri_bpe *bpe, tri_merge_work *work, int32_t place)
{
  merge_symbol *symbol = &work->symbols[place];
  symbol->rank =
      symbol->next == NONE ? NONE : tri_bpe_rank(bpe, symbol->id, work->symbols[symbol->next].id);
  if (symbol->rank != NONE) push(work, symbol->rank, place);
}

static void start(const tri_bpe *bpe, tri_merge_work *work, const uint8_t *piece, int32_t n)
{
  work->n_heap = 0;
  for (int32_t i = 0; i < n; i++) {
    work->symbols[i] = (merge_symbol){.id = bpe->byte_tokens[piece[i]],
                                      .rank = NONE,
                                      .previous = i - 1,
                                      .next = i + 1 < n ? i + 1 : NONE};
  }
  for (int32_t i = 0; i < n; i++)
    find_merge(bpe, work, i);
}

static void merge_at(const tri_bpe *bpe, tri_merge_work *work, int32_t place)
{
  merge_symbol *left = &work->symbols[place], *right = &work->symbols[left->next];
  left->id = bpe->merges[left->rank].result;
  right->id = NONE;
  left->next = right->next;
  if (left->next != NONE) work->symbols[left->next].previous = place;
  find_merge(bpe, work, place);
  if (left->previous != NONE) find_merge(bpe, work, left->previous);
}

tri_status tri_bpe_merge_piece(const tri_bpe *bpe, tri_merge_work *work, const uint8_t *piece,
                               size_t size_bytes, int32_t *ids, int64_t *n_ids)
{
  TRI_CHECK(size_bytes <= MOST_BYTES, TRI_ERR_UNSUPPORTED,
            "%zu bytes without a place to cut are more than the %d that are merged at once",
            size_bytes, MOST_BYTES);
  TRI_CALL(make_room(work, size_bytes));
  start(bpe, work, piece, (int32_t)size_bytes);
  while (work->n_heap > 0) {
    const uint64_t entry = pop(work);
    const int32_t place = (int32_t)(entry & 0xffffffff);
    const merge_symbol *symbol = &work->symbols[place];
    if (symbol->id != NONE && symbol->rank == (int32_t)(entry >> 32)) merge_at(bpe, work, place);
  }
  int64_t n = 0;
  for (int32_t i = size_bytes > 0 ? 0 : NONE; i != NONE; i = work->symbols[i].next)
    ids[n++] = work->symbols[i].id;
  *n_ids = n;
  return TRI_OK;
}
