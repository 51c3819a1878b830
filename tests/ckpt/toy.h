// A state of invented arrays whose every element is a function of the array's name, its global
// index and a version, held in any of several layouts.
#pragma once

#include "ckpt/pieces.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"
#include "trireme/ckpt/ckpt.h"

typedef enum toy_layout {
  TOY_REPLICATED,
  TOY_ROWS,       // cut unevenly along axis 0; rank 1 holds nothing
  TOY_COLUMNS,    // cut along the last axis
  TOY_BLOCKS,     // cut along the first and the last axis
  TOY_ROW_GROUPS, // cut along axis 0 in half as many parts as ranks, each held by several ranks
  TOY_PIPELINE,   // every array on one rank, the others do not know of it
  TOY_LAYOUTS
} toy_layout;

typedef struct toy_kind {
  const char *name;
  tri_dtype dtype;
  tri_shape shape;
} toy_kind;

static const toy_kind toy_kinds[] = {
    {"big", TRI_DTYPE_F32, {2, {1100, 960}}}, // two chunks of the digest
    {"parameter/w.a", TRI_DTYPE_F32, {2, {257, 31}}},
    {"parameter/wide", TRI_DTYPE_BF16, {2, {4, 1000}}},
    {"parameter/deep", TRI_DTYPE_I32, {4, {3, 5, 7, 32}}},
    {"empty", TRI_DTYPE_F32, {2, {0, 5}}},
    {"one", TRI_DTYPE_F64, {1, {1}}},
    {"scalar", TRI_DTYPE_F64, {0, {0}}},
    {"bias", TRI_DTYPE_F32, {1, {33}}},
    {"tokens", TRI_DTYPE_U16, {1, {70000}}},
};
enum { TOY_KINDS = sizeof toy_kinds / sizeof toy_kinds[0], TOY_MOST = 1000 };

typedef struct toy {
  tri_ckpt_array arrays[TOY_MOST];
  void *data[TOY_MOST]; // packed boxes, and a guard byte
  tri_ckpt_state state;
  int64_t fetched[TOY_MOST];  // elements
  int fail_fetch, fail_store; // array at which a call fails, -1 for none
} toy;

static tri_status toy_fetch(void *user, int index, const tri_box *part, void *host_out)
{
  toy *t = user;
  const tri_ckpt_array *a = &t->arrays[index];
  const size_t size = tri_dtype_size(a->dtype);
  TRI_CHECK(index != t->fail_fetch, TRI_ERR_MEMORY, "toy: no memory to fetch %s", a->name);
  EXPECT((size_t)tri_box_elements(part) * size <= TRI_STAGING_BYTES);
  t->fetched[index] += tri_box_elements(part);
  tri_box_copy(host_out, part, t->data[index], &a->box, part, size);
  return TRI_OK;
}

static tri_status toy_store(void *user, int index, const tri_box *part, const void *host_in)
{
  toy *t = user;
  const tri_ckpt_array *a = &t->arrays[index];
  TRI_CHECK(index != t->fail_store, TRI_ERR_MEMORY, "toy: no memory to store %s", a->name);
  tri_box_copy(t->data[index], &a->box, host_in, part, part, tri_dtype_size(a->dtype));
  return TRI_OK;
}

static void toy_cut(tri_box *box, int axis, int64_t from, int64_t to, int64_t of)
{
  const int64_t extent = box->count[axis];
  box->start[axis] += extent * from / of;
  box->count[axis] = extent * to / of - extent * from / of;
}

// Whether this rank gives the array, and its box.
static bool toy_place(toy_layout layout, int kind, int rank, int size, tri_ckpt_array *a)
{
  const int n = a->shape.n_axes;
  a->box = tri_box_all(&a->shape);
  a->replica = 0;
  a->n_replicas = 1;
  if (layout == TOY_PIPELINE) return kind % size == rank;
  if (layout == TOY_REPLICATED || n == 0) {
    a->replica = rank;
    a->n_replicas = size;
    return true;
  }
  const int parts = (size + 1) / 2;
  const int weight = size * (size + 1) / 2 - (size > 1 ? 2 : 0); // rank r has r + 1, rank 1 has 0
  const int before = rank * (rank + 1) / 2 - (rank > 1 ? 2 : 0);
  switch (layout) {
  case TOY_ROWS: toy_cut(&a->box, 0, before, before + (rank == 1 ? 0 : rank + 1), weight); break;
  case TOY_COLUMNS: toy_cut(&a->box, n - 1, rank, rank + 1, size); break;
  case TOY_BLOCKS:
    if (n == 1 || size % 2 != 0) {
      toy_cut(&a->box, 0, rank, rank + 1, size);
    } else {
      toy_cut(&a->box, 0, rank % 2, rank % 2 + 1, 2);
      toy_cut(&a->box, n - 1, rank / 2, rank / 2 + 1, size / 2);
    }
    break;
  default:
    toy_cut(&a->box, 0, rank % parts, rank % parts + 1, parts);
    a->replica = rank / parts;
    a->n_replicas = (size - rank % parts + parts - 1) / parts;
  }
  return true;
}

// Fills array `index`, or counts the elements that are not as filled.
static int64_t toy_walk(toy *t, int index, uint64_t version, bool fill)
{
  const tri_ckpt_array *a = &t->arrays[index];
  const size_t size = tri_dtype_size(a->dtype);
  const int n = a->box.n_axes;
  const int64_t run = n == 0 ? 1 : a->box.count[n - 1]; // elements that follow one another
  const uint64_t key = tri_random_key(version, a->name);
  char *at = t->data[index];
  int64_t wrong = 0;
  for (int64_t first = 0; first < tri_box_elements(&a->box); first += run) {
    int64_t rest = first, element = 0, position[TRI_MAX_AXES];
    for (int axis = n - 1; axis >= 0; axis--) {
      position[axis] = a->box.start[axis] + rest % a->box.count[axis];
      rest /= a->box.count[axis];
    }
    for (int axis = 0; axis < n; axis++)
      element = element * a->shape.extent[axis] + position[axis];
    for (int64_t e = 0; e < run; e++, at += size) {
      const uint64_t bits = (key ^ (uint64_t)(element + e)) * 0x9e3779b97f4a7c15u >> 3;
      if (fill)
        memcpy(at, &bits, size);
      else
        wrong += memcmp(at, &bits, size) != 0;
    }
  }
  return wrong;
}

static void toy_begin(toy *t)
{
  *t = (toy){.fail_fetch = -1, .fail_store = -1};
  t->state =
      (tri_ckpt_state){.arrays = t->arrays, .fetch = toy_fetch, .store = toy_store, .user = t};
}

static tri_ckpt_array toy_array(int kind)
{
  tri_ckpt_array a = {.dtype = toy_kinds[kind].dtype, .shape = toy_kinds[kind].shape};
  snprintf(a.name, sizeof a.name, "%s", toy_kinds[kind].name);
  a.box = tri_box_all(&a.shape);
  a.n_replicas = 1;
  return a;
}

// Adds an array, its data poisoned.
static void toy_add(toy *t, const tri_ckpt_array *a)
{
  const int n = t->state.n_arrays++;
  const size_t bytes = (size_t)tri_box_elements(&a->box) * tri_dtype_size(a->dtype);
  EXPECT(n < TOY_MOST);
  t->arrays[n] = *a;
  t->data[n] = tri_calloc(TRI_MODULE_TEST, bytes + 1, 1);
  memset(t->data[n], 0xa5, bytes + 1);
}

__attribute__((unused)) static void toy_make(toy *t, toy_layout layout, int rank, int size)
{
  toy_begin(t);
  for (int i = 0; i < TOY_KINDS; i++) {
    const int kind = rank % 2 == 0 ? i : TOY_KINDS - 1 - i; // not in the same order everywhere
    tri_ckpt_array a = toy_array(kind);
    if (toy_place(layout, kind, rank, size, &a)) toy_add(t, &a);
  }
}

static void toy_fill(toy *t, uint64_t version)
{
  for (int i = 0; i < t->state.n_arrays; i++)
    (void)toy_walk(t, i, version, true);
}

// Elements that are not what toy_fill(version) puts there.
__attribute__((unused)) static int64_t toy_wrong(toy *t, uint64_t version)
{
  int64_t wrong = 0;
  for (int i = 0; i < t->state.n_arrays; i++) {
    const tri_ckpt_array *a = &t->arrays[i];
    const size_t bytes = (size_t)tri_box_elements(&a->box) * tri_dtype_size(a->dtype);
    wrong += toy_walk(t, i, version, false);
    wrong += ((const unsigned char *)t->data[i])[bytes] != 0xa5; // the guard
  }
  return wrong;
}

static void toy_free(toy *t)
{
  for (int i = 0; i < t->state.n_arrays; i++)
    tri_free(t->data[i]);
}
