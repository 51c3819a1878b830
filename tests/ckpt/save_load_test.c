// ranks: 1 2 3 4
//
// Checkpoints and the state digest do not depend on the layout: saved on some ranks, loaded on
// others, in any layouts; every element is written once; errors reach all ranks and leave nothing.
#include "toy.h"
#include "trireme/base/file.h"
#include "trireme/comm/comm.h"

static tri_comm *world;
static char folder[512];
static const char attributes[] =
    "{\"step\": 3, \"rng\": [1, 2.5, 18446744], \"note\": \"\\u00e9\\n\"}";

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

static void make(toy *t, tri_comm *comm, toy_layout layout)
{
  toy_make(t, layout, tri_comm_rank(comm), tri_comm_size(comm));
}

static int64_t sum_over_ranks(int64_t value)
{
  int64_t all[16], sum = 0;
  EXPECT_OK(tri_comm_all_gather(world, "test sum", &value, sizeof value, all));
  for (int i = 0; i < n_ranks(); i++)
    sum += all[i];
  return sum;
}

// The digest of a version held by one rank alone: taken once, by rank 0.
static tri_digest digest_alone(uint64_t version)
{
  static tri_digest known[16];
  static bool is_known[16];
  if (is_known[version]) return known[version];
  tri_comm *self = first_ranks(1);
  if (self != NULL) {
    toy t;
    make(&t, self, TOY_REPLICATED);
    toy_fill(&t, version);
    EXPECT_OK(tri_ckpt_digest(self, &t.state, attributes, &known[version]));
    toy_free(&t);
    tri_comm_destroy(&self);
  }
  EXPECT_OK(tri_comm_broadcast(world, "digest", &known[version], sizeof known[version], 0));
  is_known[version] = true;
  return known[version];
}

TEST(digest_is_the_same_in_every_layout)
{
  const tri_digest want = digest_alone(1), other = digest_alone(2);
  EXPECT(memcmp(&want, &other, sizeof want) != 0);
  for (int layout = 0; layout < TOY_LAYOUTS; layout++) {
    toy t;
    tri_digest got;
    make(&t, world, (toy_layout)layout);
    toy_fill(&t, 1);
    EXPECT_OK(tri_ckpt_digest(world, &t.state, attributes, &got));
    EXPECT(memcmp(&want, &got, sizeof want) == 0);
    int64_t fetched = 0;
    for (int i = 0; i < t.state.n_arrays; i++)
      fetched += t.fetched[i];
    int64_t elements = 0;
    for (int k = 0; k < TOY_KINDS; k++)
      elements += tri_shape_elements(&toy_kinds[k].shape);
    EXPECT(sum_over_ranks(fetched) == elements);
    toy_free(&t);
  }
}

static int by_name(const void *a, const void *b)
{
  return strcmp(((const tri_ckpt_array *)a)->name, ((const tri_ckpt_array *)b)->name);
}

// docs/checkpoint-format.md, word by word.
TEST(digest_is_what_the_document_says)
{
  tri_ckpt_array sorted[TOY_KINDS];
  tri_digest_state all;
  tri_digest digest;
  toy t;
  toy_make(&t, TOY_REPLICATED, 0, 1);
  toy_fill(&t, 1);
  for (int i = 0; i < TOY_KINDS; i++) {
    sorted[i] = t.arrays[i];
    sorted[i].replica = i; // where its data are
  }
  qsort(sorted, TOY_KINDS, sizeof sorted[0], by_name);
  tri_digest_begin(&all);
  tri_digest_add(&all, "trireme state 1\n", 16);
  for (int i = 0; i < TOY_KINDS; i++) {
    const tri_ckpt_array *a = &sorted[i];
    char line[200];
    int n = snprintf(line, sizeof line, "%s %s (", a->name, tri_dtype_name(a->dtype));
    for (int axis = 0; axis < a->shape.n_axes; axis++)
      n += snprintf(line + n, sizeof line - (size_t)n, "%s%d", axis > 0 ? ", " : "",
                    (int)a->shape.extent[axis]);
    n += snprintf(line + n, sizeof line - (size_t)n, ")\n");
    tri_digest_add(&all, line, (size_t)n);
    const size_t bytes = (size_t)tri_shape_elements(&a->shape) * tri_dtype_size(a->dtype);
    const size_t chunk = 1048576 * tri_dtype_size(a->dtype);
    for (size_t first = 0; first < bytes; first += chunk) {
      tri_digest_of((char *)t.data[a->replica] + first,
                    bytes - first < chunk ? bytes - first : chunk, &digest);
      tri_digest_add(&all, digest.bytes, sizeof digest.bytes);
    }
  }
  static const char end[] =
      "attributes {\"note\":\"\xc3\xa9\\n\",\"rng\":[1,2.5,18446744],\"step\":3}";
  tri_digest_add(&all, end, sizeof end - 1);
  tri_digest_end(&all, &digest);
  const tri_digest got = digest_alone(1);
  EXPECT(memcmp(&digest, &got, sizeof got) == 0);
  toy_free(&t);
}

TEST(digest_covers_everything)
{
  toy t;
  tri_digest want, got;
  make(&t, world, TOY_ROWS);
  toy_fill(&t, 1);
  EXPECT_OK(tri_ckpt_digest(world, &t.state, "{\"a\":1,\"b\":2}", &want));
  EXPECT_OK(tri_ckpt_digest(world, &t.state, "{ \"b\": 2, \"a\": 1 }", &got));
  EXPECT(memcmp(&want, &got, sizeof want) == 0); // the same attributes
  EXPECT_OK(tri_ckpt_digest(world, &t.state, "{\"a\":1,\"b\":3}", &got));
  EXPECT(memcmp(&want, &got, sizeof want) != 0);
  for (int k = 0; k < TOY_KINDS; k++) { // one bit of the last element of each array
    for (int i = 0; i < t.state.n_arrays; i++) {
      if (strcmp(t.arrays[i].name, toy_kinds[k].name) != 0) continue;
      const int64_t n = tri_box_elements(&t.arrays[i].box);
      if (n > 0) ((char *)t.data[i])[(size_t)(n - 1) * tri_dtype_size(t.arrays[i].dtype)] ^= 1;
    }
    EXPECT_OK(tri_ckpt_digest(world, &t.state, "{\"a\":1,\"b\":2}", &got));
    EXPECT((memcmp(&want, &got, sizeof want) != 0) ==
           (tri_shape_elements(&toy_kinds[k].shape) > 0));
    want = got;
  }
  for (int i = 0; i < t.state.n_arrays; i++) // the type, the bits being the same
    if (strcmp(t.arrays[i].name, "tokens") == 0) t.arrays[i].dtype = TRI_DTYPE_BF16;
  EXPECT_OK(tri_ckpt_digest(world, &t.state, "{\"a\":1,\"b\":2}", &got));
  EXPECT(memcmp(&want, &got, sizeof want) != 0);
  want = got;
  for (int i = 0; i < t.state.n_arrays; i++) // a name
    if (strcmp(t.arrays[i].name, "bias") == 0) memcpy(t.arrays[i].name, "bial", 5);
  EXPECT_OK(tri_ckpt_digest(world, &t.state, "{\"a\":1,\"b\":2}", &got));
  EXPECT(memcmp(&want, &got, sizeof want) != 0);
  toy_free(&t);
}

// Saves `layout` on the first `n` ranks; every element is fetched once.
static void save_on(int n, toy_layout layout, uint64_t version, int64_t step)
{
  toy t;
  int64_t fetched = 0;
  tri_comm *comm = first_ranks(n);
  if (comm != NULL) {
    make(&t, comm, layout);
    toy_fill(&t, version);
    EXPECT_OK(tri_ckpt_save(comm, folder, step, &t.state, attributes));
    for (int i = 0; i < t.state.n_arrays; i++)
      fetched += t.fetched[i];
    toy_free(&t);
    tri_comm_destroy(&comm);
  }
  int64_t elements = 0;
  for (int k = 0; k < TOY_KINDS; k++)
    elements += tri_shape_elements(&toy_kinds[k].shape);
  EXPECT(sum_over_ranks(fetched) == elements);
}

static void load_on(int n, toy_layout layout, uint64_t version, int64_t step)
{
  toy t;
  char path[600];
  tri_ckpt *ckpt = NULL;
  const tri_digest want = digest_alone(version);
  tri_comm *comm = first_ranks(n);
  if (comm == NULL) return;
  snprintf(path, sizeof path, "%s/step-%08d", folder, (int)step);
  make(&t, comm, layout);
  EXPECT_OK(tri_ckpt_open(comm, path, &ckpt));
  if (ckpt != NULL) {
    tri_digest got = {{0}};
    EXPECT(tri_ckpt_step(ckpt) == step);
    EXPECT_OK(tri_ckpt_load(ckpt, comm, &t.state));
    EXPECT(toy_wrong(&t, version) == 0);
    EXPECT_OK(tri_ckpt_digest(comm, &t.state, tri_ckpt_attributes(ckpt), &got));
    EXPECT(memcmp(&want, &got, sizeof want) == 0);
  }
  tri_ckpt_close(&ckpt);
  toy_free(&t);
  tri_comm_destroy(&comm);
}

TEST(saved_on_some_ranks_loaded_on_others)
{
  int64_t step = 1;
  for (int layout = 0; layout < TOY_LAYOUTS; layout++, step++) {
    const int savers = 1 + (layout + 1) % n_ranks(), loaders = 1 + (layout * 2) % n_ranks();
    save_on(savers, (toy_layout)layout, 1 + (uint64_t)layout, step);
    load_on(n_ranks(), (toy_layout)((layout + 1) % TOY_LAYOUTS), 1 + (uint64_t)layout, step);
    load_on(loaders, (toy_layout)((layout + 3) % TOY_LAYOUTS), 1 + (uint64_t)layout, step);
  }
}

TEST(a_step_is_replaced)
{
  save_on(n_ranks(), TOY_ROWS, 5, 77);
  save_on(1, TOY_REPLICATED, 6, 77);
  load_on(n_ranks(), TOY_COLUMNS, 6, 77);
}

TEST(attributes_come_back)
{
  static const char full[] = "{ \"b\" : [1, 2.5, -0.1, 1e-05, 9007199254740993, true, null],\n"
                             "  \"a\" : {\"text\": \"\\u00e9 \\\"\\\\/ \\u0001\"} }";
  toy t;
  tri_ckpt *ckpt = NULL;
  char path[600];
  make(&t, world, TOY_REPLICATED);
  toy_fill(&t, 1);
  EXPECT_OK(tri_ckpt_save(world, folder, 88, &t.state, full));
  snprintf(path, sizeof path, "%s/step-00000088", folder);
  EXPECT_OK(tri_ckpt_open(world, path, &ckpt));
  EXPECT(ckpt != NULL &&
         strcmp(tri_ckpt_attributes(ckpt),
                "{\"a\":{\"text\":\"\xc3\xa9 \\\"\\\\/ \\u0001\"},\"b\":[1,2.5,"
                "-0.10000000000000001,1.0000000000000001e-5,9007199254740993,true,null]}") == 0);
  tri_ckpt_close(&ckpt);
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no JSON object",
               tri_ckpt_save(world, folder, 88, &t.state, "{\"a\":"));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "no object", tri_ckpt_save(world, folder, 88, &t.state, "[1]"));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "there is no step -1",
               tri_ckpt_save(world, folder, -1, &t.state, "{}"));
  if (n_ranks() > 1)
    EXPECT_ERROR(TRI_ERR_ARGUMENT, "given by rank 1",
                 tri_ckpt_save(world, folder, 88, &t.state,
                               tri_comm_rank(world) == 1 ? "{\"a\":1}" : "{\"a\":2}"));
  toy_free(&t);
}

TEST(a_checkpoint_of_another_model_is_refused)
{
  toy t;
  tri_ckpt *ckpt = NULL;
  char path[600];
  const int last = n_ranks() - 1;
  const bool culprit = tri_comm_rank(world) == last;
  snprintf(path, sizeof path, "%s/step-00000077", folder);
  EXPECT_OK(tri_ckpt_open(world, path, &ckpt));
  if (ckpt == NULL) return;
  for (int change = 0; change < 4; change++) {
    make(&t, world, TOY_REPLICATED);
    static const char *const messages[] = {"holds no array biaz", "has shape (33) there, (32) here",
                                           "is f32 there, i32 here", "no memory to store"};
    for (int i = 0; i < t.state.n_arrays && culprit; i++) {
      if (strcmp(t.arrays[i].name, "bias") != 0) continue;
      if (change == 0) memcpy(t.arrays[i].name, "biaz", 5);
      if (change == 1) t.arrays[i].shape.extent[0] = t.arrays[i].box.count[0] = 32;
      if (change == 2) t.arrays[i].dtype = TRI_DTYPE_I32;
      if (change == 3) t.fail_store = i;
    }
    // Every rank fails; the one at fault with its own status, and the text reaches all.
    const tri_status own = change == 3 ? TRI_ERR_MEMORY : TRI_ERR_CONFIG;
    EXPECT_ERROR(culprit ? own : TRI_ERR_PEER, messages[change],
                 tri_ckpt_load(ckpt, world, &t.state));
    if (change < 3) // and nothing was stored anywhere
      for (int i = 0; i < t.state.n_arrays; i++)
        EXPECT(*(unsigned char *)t.data[i] == 0xa5);
    toy_free(&t);
  }
  tri_ckpt_close(&ckpt);
}

// Entries of the folder whose name begins so.
static int count_names(const char *start)
{
  char command[700];
  int n = -1;
  snprintf(command, sizeof command, "ls -A '%s' | grep -c '^%s'", folder, start);
  FILE *pipe = popen(command, "r");
  if (pipe == NULL || fscanf(pipe, "%d", &n) != 1) n = -1;
  if (pipe != NULL) pclose(pipe);
  return n;
}

static tri_ckpt_array *array_of(toy *t, const char *name)
{
  for (int i = 0; i < t->state.n_arrays; i++)
    if (strcmp(t->arrays[i].name, name) == 0) return &t->arrays[i];
  return NULL;
}

// Rank 0 misses the first token.
static void make_hole(toy *t)
{
  if (tri_comm_rank(world) != 0) return;
  array_of(t, "tokens")->box.start[0]++;
  array_of(t, "tokens")->box.count[0]--;
}

typedef enum fault { NO_MEMORY, TWICE, HOLE, TYPE, NAME, FAULTS } fault;

static void break_state(toy *t, fault what)
{
  const bool culprit = tri_comm_rank(world) == n_ranks() - 1;
  switch (what) {
  case NO_MEMORY:
    if (culprit) t->fail_fetch = (int)(array_of(t, "big") - t->arrays);
    break;
  case TWICE: // everybody says that it alone holds the scalar
    array_of(t, "scalar")->replica = 0;
    array_of(t, "scalar")->n_replicas = 1;
    break;
  case HOLE: make_hole(t); break;
  case TYPE:
    if (culprit) array_of(t, "tokens")->dtype = TRI_DTYPE_BF16;
    break;
  default:
    if (culprit) memcpy(array_of(t, "tokens")->name, "../x", 5);
  }
}

TEST(a_failed_save_leaves_nothing)
{
  static const char *const messages[] = {
      "no memory to fetch", "array scalar: elements [0, 1), the first at (), are held ",
      "array tokens: elements [0, 1), the first at (0), are held by no rank",
      "array tokens has another type or shape", "'../x' is no name for an array"};
  static const tri_status statuses[] = {TRI_ERR_MEMORY, TRI_ERR_ARGUMENT, TRI_ERR_ARGUMENT,
                                        TRI_ERR_ARGUMENT, TRI_ERR_ARGUMENT};
  const int last = n_ranks() - 1;
  for (int what = 0; what < FAULTS; what++) {
    toy t;
    // Type: rank 1 of two holds nothing of the rows, and then nobody minds.
    if ((what == TWICE && last == 0) || (what == TYPE && last <= 1)) continue;
    make(&t, world, what == NO_MEMORY || what == TWICE ? TOY_REPLICATED : TOY_ROWS);
    toy_fill(&t, 1);
    break_state(&t, (fault)what);
    const int culprit = what == NO_MEMORY || what == NAME ? last : 0; // root finds the others
    EXPECT_ERROR(tri_comm_rank(world) == culprit ? statuses[what] : TRI_ERR_PEER, messages[what],
                 tri_ckpt_save(world, folder, 99, &t.state, attributes));
    EXPECT_OK(tri_comm_barrier(world, "test"));
    EXPECT(count_names("step-00000099") == 0);
    EXPECT(count_names(".step") == 0);
    EXPECT_OK(tri_comm_barrier(world, "test"));
    toy_free(&t);
  }
}

TEST(digest_refuses_holes)
{
  toy t;
  tri_digest digest;
  make(&t, world, TOY_COLUMNS);
  toy_fill(&t, 1);
  t.fail_fetch = tri_comm_rank(world) == 0 ? 0 : -1;
  EXPECT(tri_ckpt_digest(world, &t.state, "{}", &digest) ==
         (tri_comm_rank(world) == 0 ? TRI_ERR_MEMORY : TRI_ERR_PEER));
  t.fail_fetch = -1;
  make_hole(&t);
  EXPECT_ERROR(tri_comm_rank(world) == 0 || n_ranks() > 1 ? TRI_ERR_ARGUMENT : TRI_ERR_PEER,
               "array tokens: elements [0, 1), the first at (0), are held by no rank",
               tri_ckpt_digest(world, &t.state, "{}", &digest));
  toy_free(&t);
}

TEST(an_empty_state_is_a_checkpoint)
{
  const tri_ckpt_state none = {0};
  tri_ckpt *ckpt = NULL;
  char path[600];
  EXPECT_OK(tri_ckpt_save(world, folder, 100, &none, "{}"));
  snprintf(path, sizeof path, "%s/step-00000100", folder);
  EXPECT_OK(tri_ckpt_open(world, path, &ckpt));
  if (ckpt != NULL) EXPECT_OK(tri_ckpt_load(ckpt, world, &none));
  tri_ckpt_close(&ckpt);
}

int main(void)
{
  if (tri_comm_create_world(30, &world) != TRI_OK) return 1;
  snprintf(folder, sizeof folder, "%s/save-load-%d", test_scratch(), n_ranks());
  TEST_RUN(digest_is_the_same_in_every_layout);
  TEST_RUN(digest_is_what_the_document_says);
  TEST_RUN(digest_covers_everything);
  TEST_RUN(saved_on_some_ranks_loaded_on_others);
  TEST_RUN(a_step_is_replaced);
  TEST_RUN(attributes_come_back);
  TEST_RUN(a_checkpoint_of_another_model_is_refused);
  TEST_RUN(a_failed_save_leaves_nothing);
  TEST_RUN(digest_refuses_holes);
  TEST_RUN(an_empty_state_is_a_checkpoint);
  if (tri_memory_blocks(TRI_MODULE_CKPT) != 0) {
    printf("not ok memory: %lld blocks are left\n", (long long)tri_memory_blocks(TRI_MODULE_CKPT));
    return 1;
  }
  tri_comm_destroy(&world);
  tri_comm_finish();
  return test_end();
}
