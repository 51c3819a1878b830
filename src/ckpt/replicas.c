#include "ckpt/replicas.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/pieces.h"
#include "trireme/base/digest.h"
#include "trireme/base/memory.h"

// One replica of a box, as it travels to root.
typedef struct replica {
  char name[96];
  tri_box box;
  int32_t number, n_replicas;
} replica;

static replica replica_of(const tri_ckpt_array *array)
{
  replica r = {.box.n_axes = array->box.n_axes};
  memcpy(r.name, array->name, strlen(array->name));
  for (int a = 0; a < array->box.n_axes; a++) {
    r.box.start[a] = array->box.start[a];
    r.box.count[a] = array->box.count[a];
  }
  r.number = array->replica;
  r.n_replicas = array->n_replicas;
  return r;
}

// With two random numbers a, b for each box, replica r > 0 adds a + r b, and replica 0 takes away
// what replicas 1 to n - 1 add.
uint64_t tri_ckpt_replica_sum(const tri_ckpt_state *state)
{
  uint64_t sum = 0;
  for (int i = 0; i < state->n_arrays; i++) {
    const tri_ckpt_array *array = &state->arrays[i];
    const uint64_t n = (uint64_t)array->n_replicas, r = (uint64_t)array->replica;
    if (n == 1 || tri_box_elements(&array->box) == 0) continue;
    replica key = replica_of(array);
    key.number = 0;
    tri_digest digest;
    uint64_t random[2];
    tri_digest_of(&key, sizeof key, &digest);
    memcpy(random, digest.bytes, sizeof random);
    sum +=
        r > 0 ? random[0] + r * random[1] : 0 - ((n - 1) * random[0] + n * (n - 1) / 2 * random[1]);
  }
  return sum;
}

static int compare_boxes(const replica *p, const replica *q)
{
  const int order = strcmp(p->name, q->name);
  if (order != 0) return order;
  const int starts = tri_ckpt_compare_starts(&p->box, &q->box);
  if (starts != 0) return starts;
  for (int a = 0; a < p->box.n_axes && a < q->box.n_axes; a++)
    if (p->box.count[a] != q->box.count[a]) return p->box.count[a] < q->box.count[a] ? -1 : 1;
  return p->n_replicas < q->n_replicas ? -1 : p->n_replicas > q->n_replicas ? 1 : 0;
}

static int compare_replicas(const void *a, const void *b)
{
  const replica *p = a, *q = b;
  const int order = compare_boxes(p, q);
  if (order != 0) return order;
  return p->number < q->number ? -1 : p->number > q->number ? 1 : 0;
}

static tri_status replica_error(const replica *r, int number, const char *what)
{
  char start[128], count[128];
  tri_ckpt_numbers_text(r->box.n_axes, r->box.start, start, sizeof start);
  tri_ckpt_numbers_text(r->box.n_axes, r->box.count, count, sizeof count);
  return TRI_ERROR(TRI_ERR_ARGUMENT,
                   "array %s: the box of %s elements at %s is said to have %d replicas, of which "
                   "number %d is given %s",
                   r->name, count, start, r->n_replicas, number, what);
}

static tri_status check_sorted(const replica *replicas, int64_t n)
{
  for (int64_t first = 0, end; first < n; first = end) {
    const replica *r = &replicas[first];
    for (end = first; end < n && compare_boxes(r, &replicas[end]) == 0; end++) {
      const int want = (int)(end - first), found = replicas[end].number;
      if (found < want) return replica_error(r, found, "twice");
      if (found > want) return replica_error(r, want, "by no rank");
    }
    if (end - first < r->n_replicas) return replica_error(r, (int)(end - first), "by no rank");
  }
  return TRI_OK;
}

tri_status tri_ckpt_find_replica_error(tri_comm *comm, const tri_ckpt_state *state)
{
  tri_status status = TRI_OK;
  replica *own = NULL, *all = NULL;
  int64_t *sizes = NULL, n = 0, bytes = 0;
  void *gathered = NULL;
  tri_status checked = TRI_NEW(TRI_MODULE_CKPT, state->n_arrays, &own);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint replicas", checked));
  for (int i = 0; i < state->n_arrays; i++)
    if (tri_box_elements(&state->arrays[i].box) > 0) own[n++] = replica_of(&state->arrays[i]);
  TRI_CALL_GOTO(done, tri_comm_gather(comm, "checkpoint replicas", own, (size_t)n * sizeof *own, 0,
                                      &sizes, &gathered));
  if (tri_comm_rank(comm) == 0) {
    for (int i = 0; i < tri_comm_size(comm); i++)
      bytes += sizes[i];
    all = gathered;
    n = bytes / (int64_t)sizeof *all;
    if (n > 0) qsort(all, (size_t)n, sizeof *all, compare_replicas);
    checked = check_sorted(all, n);
    if (checked == TRI_OK)
      checked = TRI_ERROR(TRI_ERR_INTERNAL, "the replicas of %lld boxes are right, not their sum",
                          (long long)n);
  }
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint replicas", checked));

done:
  tri_free(gathered);
  tri_free(sizes);
  tri_free(own);
  return status;
}
