// ranks: 1 2 3 4
//
// Several boxes of an array on a rank: random layouts made of flat ranges (ZeRO shards), of row
// ranges of fused parts (tensor splits), of blocks and of flat ranges of blocks, replicated or not,
// with empty and tiny boxes and ranks that hold nothing. Saved in one, loaded in another, the state
// and its digest are those of one rank that holds all; overlaps, gaps and doubles are named.
#include "toy.h"
#include "trireme/base/file.h"
#include "trireme/comm/comm.h"

static tri_comm *world;
static char folder[512];
static const char attributes[] = "{\"step\":3}";

static int n_ranks(void)
{
  return tri_comm_size(world);
}

// The ranks below `n` together; NULL on the others.
static tri_comm *first_ranks(int n)
{
  tri_comm *comm = NULL;
  const bool inside = tri_comm_rank(world) < n;
  EXPECT_OK(tri_comm_split(world, "first ranks", inside ? 0 : 1, 0, &comm));
  if (!inside) tri_comm_destroy(&comm);
  return comm;
}

// --- random layouts: every rank draws the same numbers and keeps what is its own

typedef struct drawing {
  uint64_t seed, counter;
  toy *t;
  int rank, size;
  int idle; // holds nothing; size: none
} drawing;

static int64_t draw(drawing *d, int64_t below)
{
  return (int64_t)(tri_random_u64(d->seed, d->counter++) % (uint64_t)below);
}

// Gives the boxes to `n_replicas` ranks from `first` on, past the idle one.
static void give(drawing *d, int kind, const tri_box *boxes, int n, int first, int n_replicas)
{
  int replica = 0;
  for (int k = 0; replica < n_replicas; k++) {
    const int rank = (first + k) % d->size;
    if (rank == d->idle) continue;
    for (int i = 0; i < n && rank == d->rank; i++) {
      tri_ckpt_array a = toy_array(kind);
      a.box = boxes[i];
      a.replica = replica;
      a.n_replicas = n_replicas;
      toy_add(d->t, &a);
    }
    replica++;
  }
}

static void give_somewhere(drawing *d, int kind, const tri_box *boxes, int n)
{
  const int others = d->size - (d->idle < d->size ? 1 : 0);
  const int n_replicas = draw(d, 3) == 0 ? 1 + (int)draw(d, others) : 1;
  give(d, kind, boxes, n, (int)draw(d, d->size), n_replicas);
}

// Cuts the row-major index of `box` into ranges: single elements, ends of rows, anything.
static void give_ranges(drawing *d, int kind, const tri_box *box)
{
  const int64_t elements = tri_box_elements(box);
  const int64_t row = box->n_axes > 1 ? elements / box->count[0] : 7;
  for (int64_t first = 0, n; first < elements; first += n) {
    switch (draw(d, 4)) {
    case 0: n = 1; break;
    case 1: n = row - first % row; break;
    default: n = 1 + draw(d, 1 + elements / 3);
    }
    if (n > elements - first) n = elements - first;
    tri_box boxes[TRI_RANGE_BOXES];
    give_somewhere(d, kind, boxes, tri_box_cut_range(box, first, n, boxes));
  }
}

// Query, key and value rows, each cut alike: rank r has a row range of each, perhaps an empty one.
static void give_fused_rows(drawing *d, int kind, const tri_box *all)
{
  const int64_t third = all->count[0] / 3, rest = all->count[0] % 3;
  for (int r = 0; r < d->size; r++) {
    tri_box boxes[4];
    for (int k = 0; k < 3; k++) {
      boxes[k] = *all;
      boxes[k].start[0] = k * third + third * r / d->size;
      boxes[k].count[0] = k * third + third * (r + 1) / d->size - boxes[k].start[0];
    }
    boxes[3] = *all;
    boxes[3].start[0] = 3 * third;
    boxes[3].count[0] = rest;
    give(d, kind, boxes, r == 0 ? 4 : 3, r == d->idle ? r + 1 : r, 1);
  }
}

// Halves the box again and again along random axes.
static void give_blocks(drawing *d, int kind, const tri_box *box, int depth, bool as_ranges)
{
  const int axis = (int)draw(d, box->n_axes);
  if (depth > 0 && box->count[axis] > 1) {
    tri_box low = *box, high = *box;
    low.count[axis] = 1 + draw(d, box->count[axis] - 1);
    high.start[axis] += low.count[axis];
    high.count[axis] -= low.count[axis];
    give_blocks(d, kind, &low, depth - 1, as_ranges);
    give_blocks(d, kind, &high, depth - 1, as_ranges);
  } else if (as_ranges) {
    give_ranges(d, kind, box);
  } else {
    give_somewhere(d, kind, box, 1);
  }
}

static void give_array(drawing *d, int kind)
{
  const tri_ckpt_array a = toy_array(kind);
  const int style = (int)draw(d, 5);
  if (a.shape.n_axes == 0 || tri_box_elements(&a.box) == 0 || style == 0)
    give_somewhere(d, kind, &a.box, 1);
  else if (style == 1)
    give_ranges(d, kind, &a.box);
  else if (style == 2)
    give_fused_rows(d, kind, &a.box);
  else
    give_blocks(d, kind, &a.box, 2, style == 3);
  if (a.shape.n_axes == 0 || draw(d, 3) > 0) return;
  tri_box none = a.box; // and twice, on one rank
  none.count[draw(d, a.shape.n_axes)] = 0;
  const tri_box boxes[2] = {none, none};
  give_somewhere(d, kind, boxes, 2);
}

// In an order of its own on every rank.
static void shuffle(drawing *d)
{
  toy *t = d->t;
  d->seed += 1000 + (uint64_t)d->rank;
  for (int i = t->state.n_arrays - 1; i > 0; i--) {
    const int k = (int)draw(d, i + 1);
    const tri_ckpt_array array = t->arrays[i];
    void *data = t->data[i];
    t->arrays[i] = t->arrays[k];
    t->data[i] = t->data[k];
    t->arrays[k] = array;
    t->data[k] = data;
  }
}

static void make_random(toy *t, tri_comm *comm, uint64_t seed, uint64_t order)
{
  toy_begin(t);
  drawing d = {.seed = seed, .t = t, .rank = tri_comm_rank(comm), .size = tri_comm_size(comm)};
  d.idle = d.size > 1 && draw(&d, 3) == 0 ? (int)draw(&d, d.size) : d.size;
  for (int kind = 0; kind < TOY_KINDS; kind++)
    give_array(&d, kind);
  d.counter += order;
  shuffle(&d);
}

static int64_t sum_of_fetched(const toy *t)
{
  int64_t sum = 0;
  for (int i = 0; i < t->state.n_arrays; i++)
    sum += t->fetched[i];
  return sum;
}

static int64_t sum_over(tri_comm *comm, int64_t value)
{
  int64_t all[16], sum = 0;
  EXPECT_OK(tri_comm_all_gather(comm, "test sum", &value, sizeof value, all));
  for (int i = 0; i < tri_comm_size(comm); i++)
    sum += all[i];
  return sum;
}

static int64_t all_elements(void)
{
  int64_t elements = 0;
  for (int k = 0; k < TOY_KINDS; k++)
    elements += tri_shape_elements(&toy_kinds[k].shape);
  return elements;
}

static tri_digest digest_alone(uint64_t version)
{
  tri_digest digest = {{0}};
  tri_comm *self = first_ranks(1);
  if (self != NULL) {
    static toy t;
    toy_make(&t, TOY_REPLICATED, 0, 1);
    toy_fill(&t, version);
    EXPECT_OK(tri_ckpt_digest(self, &t.state, attributes, &digest));
    toy_free(&t);
    tri_comm_destroy(&self);
  }
  EXPECT_OK(tri_comm_broadcast(world, "digest", &digest, sizeof digest, 0));
  return digest;
}

static void expect_digest(tri_comm *comm, toy *t, const tri_digest *want)
{
  tri_digest got = {{0}};
  const int64_t before = sum_of_fetched(t);
  EXPECT_OK(tri_ckpt_digest(comm, &t->state, attributes, &got));
  EXPECT(memcmp(want, &got, sizeof got) == 0);
  EXPECT(sum_over(comm, sum_of_fetched(t) - before) == all_elements());
}

static void save_random(int n, uint64_t seed, uint64_t order, const char *where,
                        const tri_digest *want)
{
  static toy t;
  tri_comm *comm = first_ranks(n);
  if (comm == NULL) return;
  make_random(&t, comm, seed, order);
  toy_fill(&t, 1);
  expect_digest(comm, &t, want);
  const int64_t before = sum_of_fetched(&t);
  EXPECT_OK(tri_ckpt_save(comm, where, 1, &t.state, attributes));
  EXPECT(sum_over(comm, sum_of_fetched(&t) - before) == all_elements());
  toy_free(&t);
  tri_comm_destroy(&comm);
}

static void load_random(int n, uint64_t seed, const tri_digest *want)
{
  static toy t;
  char path[600];
  tri_ckpt *ckpt = NULL;
  tri_comm *comm = first_ranks(n);
  if (comm == NULL) return;
  snprintf(path, sizeof path, "%s/step-00000001", folder);
  make_random(&t, comm, seed, 0);
  EXPECT_OK(tri_ckpt_open(comm, path, &ckpt));
  if (ckpt != NULL) {
    EXPECT_OK(tri_ckpt_load(ckpt, comm, &t.state));
    EXPECT(toy_wrong(&t, 1) == 0);
    expect_digest(comm, &t, want);
  }
  tri_ckpt_close(&ckpt);
  toy_free(&t);
  tri_comm_destroy(&comm);
}

TEST(saved_in_one_layout_loaded_in_another)
{
  const tri_digest want = digest_alone(1);
  for (uint64_t trial = 0; trial < 25; trial++) {
    const int savers = 1 + (int)(trial % (uint64_t)n_ranks());
    const int loaders = 1 + (int)(trial / 2 % (uint64_t)n_ranks());
    save_random(savers, 2 * trial, 0, folder, &want);
    EXPECT_OK(tri_comm_barrier(world, "saved"));
    load_random(loaders, 2 * trial + 1, &want);
  }
}

// One array of 24 MB, cut in three: the middle, all but two elements, goes through the staging
// buffer of 16 MiB several times.
static void make_large(toy *t, tri_comm *comm, bool whole)
{
  const int last = tri_comm_size(comm) - 1;
  tri_ckpt_array a = {.dtype = TRI_DTYPE_F32, .shape = {2, {3, 2000000}}, .n_replicas = 1};
  snprintf(a.name, sizeof a.name, "large");
  const tri_box all = tri_box_all(&a.shape);
  const int64_t ends[] = {0, 1, 5999999, 6000000};
  toy_begin(t);
  for (int i = 0; i < 3 && !whole; i++) {
    tri_box boxes[TRI_RANGE_BOXES];
    const int n = tri_box_cut_range(&all, ends[i], ends[i + 1] - ends[i], boxes);
    for (int k = 0; k < n && tri_comm_rank(comm) == (i == 1 ? 0 : last); k++) {
      a.box = boxes[k];
      toy_add(t, &a);
    }
  }
  a.box = all;
  toy_cut(&a.box, 1, tri_comm_rank(comm), tri_comm_rank(comm) + 1, last + 1);
  if (whole) toy_add(t, &a);
}

TEST(more_than_the_staging_buffer_holds)
{
  static toy t;
  tri_digest digests[2] = {{{1}}, {{2}}};
  tri_ckpt *ckpt = NULL;
  char path[600];
  snprintf(path, sizeof path, "%s/step-00000050", folder);
  make_large(&t, world, false);
  toy_fill(&t, 1);
  EXPECT_OK(tri_ckpt_save(world, folder, 50, &t.state, "{}"));
  EXPECT_OK(tri_ckpt_digest(world, &t.state, "{}", &digests[0]));
  toy_free(&t);
  make_large(&t, world, true);
  EXPECT_OK(tri_ckpt_open(world, path, &ckpt));
  if (ckpt != NULL) EXPECT_OK(tri_ckpt_load(ckpt, world, &t.state));
  EXPECT(toy_wrong(&t, 1) == 0);
  EXPECT_OK(tri_ckpt_digest(world, &t.state, "{}", &digests[1]));
  EXPECT(memcmp(&digests[0], &digests[1], sizeof digests[0]) == 0);
  tri_ckpt_close(&ckpt);
  toy_free(&t);
}

// The manifest has the digests of all files in it.
TEST(the_order_of_boxes_changes_no_byte)
{
  char other[600], path[700], *texts[2] = {NULL, NULL};
  size_t sizes[2] = {0, 0};
  const tri_digest want = digest_alone(1);
  snprintf(other, sizeof other, "%s-other", folder);
  for (uint64_t seed = 100; seed < 103; seed++) {
    for (int i = 0; i < 2; i++)
      save_random(n_ranks(), seed, (uint64_t)i * 1000, i == 0 ? folder : other, &want);
    for (int i = 0; i < 2; i++) {
      snprintf(path, sizeof path, "%s/step-00000001/manifest.json", i == 0 ? folder : other);
      EXPECT_OK(tri_file_read(path, 1 << 24, &texts[i], &sizes[i]));
    }
    EXPECT(sizes[0] == sizes[1] && memcmp(texts[0], texts[1], sizes[0]) == 0);
    tri_free(texts[0]);
    tri_free(texts[1]);
    EXPECT_OK(tri_comm_barrier(world, "compared"));
  }
}

// --- faults

// Of array w.a, (257, 31), rank 0 has elements [0, low_end), the last rank [high_first, 7967).
typedef struct fault {
  int64_t low_end, high_first;
  const char *message; // %d: the last rank
} fault;

static void add_range(toy *t, int kind, int64_t first, int64_t end)
{
  tri_ckpt_array a = toy_array(kind);
  tri_box boxes[TRI_RANGE_BOXES];
  const tri_box all = a.box;
  const int n = tri_box_cut_range(&all, first, end - first, boxes);
  for (int i = 0; i < n; i++) {
    a.box = boxes[i];
    toy_add(t, &a);
  }
}

static void expect_refused(toy *t, int culprit, const char *message)
{
  tri_digest digest;
  const bool at_fault = tri_comm_rank(world) == culprit;
  toy_fill(t, 1);
  EXPECT_ERROR(at_fault ? TRI_ERR_ARGUMENT : TRI_ERR_PEER, message,
               tri_ckpt_save(world, folder, 99, &t->state, attributes));
  const tri_status status = tri_ckpt_digest(world, &t->state, attributes, &digest);
  EXPECT(status == TRI_ERR_ARGUMENT || status == TRI_ERR_PEER);
  EXPECT(strstr(tri_error_message(), message) != NULL);
}

TEST(overlaps_and_gaps_are_named)
{
  static const fault faults[] = {
      {100, 90,
       "array parameter/w.a: elements [90, 100), the first at (2, 28), are held 2 times: "
       "by rank 0, rank %d"},
      {3131, 3130, "elements [3130, 3131), the first at (100, 30), are held 2 times: by rank 0"},
      {7967, 0, "elements [0, 7967), the first at (0, 0), are held 2 times: by rank 0, rank %d"},
      {1000, 3000, "elements [1000, 3000), the first at (32, 8), are held by no rank"},
      {7966, 7967, "elements [7966, 7967), the first at (256, 30), are held by no rank"},
      {0, 62, "elements [0, 62), the first at (0, 0), are held by no rank"},
  };
  const int last = n_ranks() - 1, kind = 1;
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    static toy t;
    char message[200];
    toy_begin(&t);
    if (test_rank() == 0) add_range(&t, kind, 0, faults[i].low_end);
    if (test_rank() == last) add_range(&t, kind, faults[i].high_first, 7967);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(message, sizeof message, faults[i].message, last);
#pragma GCC diagnostic pop
    expect_refused(&t, 0, message);
    toy_free(&t);
  }
}

TEST(a_box_given_twice_by_a_rank_is_named)
{
  const int last = n_ranks() - 1;
  static toy t;
  char message[200];
  toy_begin(&t);
  if (test_rank() == 0) add_range(&t, 1, 0, 7967);
  if (test_rank() == last) add_range(&t, 2, 0, 1500);
  if (test_rank() == last) add_range(&t, 2, 1500, 4000);
  if (test_rank() == last) add_range(&t, 2, 1500, 1501);
  snprintf(message, sizeof message,
           "array parameter/wide: elements [1500, 1501), the first at (1, 500), are held 2 times: "
           "by rank %d, rank %d",
           last, last);
  expect_refused(&t, 0, message);
  toy_free(&t);
}

// Without the check, an array whose first replica is missing would be left out in silence.
TEST(replicas_that_do_not_add_up_are_named)
{
  static const char *const messages[] = {
      "array bias: the box of (13) elements at (20) is said to have %d replicas, of which number 0 "
      "is given by no rank",
      "array bias: the box of (13) elements at (20) is said to have %d replicas, of which number 0 "
      "is given twice",
  };
  if (n_ranks() < 2) return;
  for (int what = 0; what < 2; what++) {
    const int n = n_ranks() + (what == 0 ? 1 : 0);
    static toy t;
    char message[200];
    toy_begin(&t);
    tri_ckpt_array a = toy_array(7);
    a.replica = test_rank() + (what == 0 ? 1 : 0);
    a.n_replicas = n;
    if (what == 1 && test_rank() == n - 1) a.replica = 0;
    a.box.start[0] = 20;
    a.box.count[0] = 13;
    toy_add(&t, &a);
    a.box.start[0] = 0;
    a.box.count[0] = 20;
    a.replica = test_rank();
    a.n_replicas = n_ranks();
    toy_add(&t, &a);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(message, sizeof message, messages[what], n);
#pragma GCC diagnostic pop
    expect_refused(&t, 0, message);
    toy_free(&t);
  }
}

TEST(boxes_of_a_name_have_one_type_and_shape)
{
  const int last = n_ranks() - 1;
  for (int what = 0; what < 2; what++) {
    static toy t;
    toy_begin(&t);
    if (test_rank() == last) {
      add_range(&t, 2, 0, 1500);
      add_range(&t, 2, 1500, 4000);
      tri_ckpt_array *a = &t.arrays[t.state.n_arrays - 1];
      if (what == 0) a->dtype = TRI_DTYPE_U16;
      if (what == 1) a->shape.extent[0]++;
    }
    expect_refused(&t, last, "parameter/wide is given twice on one rank, with different types or");
    toy_free(&t);
  }
}

int main(void)
{
  if (tri_comm_create_world(30, &world) != TRI_OK) return 1;
  snprintf(folder, sizeof folder, "%s/ranges-%d", test_scratch(), n_ranks());
  TEST_RUN(saved_in_one_layout_loaded_in_another);
  TEST_RUN(more_than_the_staging_buffer_holds);
  TEST_RUN(the_order_of_boxes_changes_no_byte);
  TEST_RUN(overlaps_and_gaps_are_named);
  TEST_RUN(a_box_given_twice_by_a_rank_is_named);
  TEST_RUN(replicas_that_do_not_add_up_are_named);
  TEST_RUN(boxes_of_a_name_have_one_type_and_shape);
  if (tri_memory_blocks(TRI_MODULE_CKPT) != 0) {
    printf("not ok memory: %lld blocks are left\n", (long long)tri_memory_blocks(TRI_MODULE_CKPT));
    return 1;
  }
  tri_comm_destroy(&world);
  tri_comm_finish();
  return test_end();
}
