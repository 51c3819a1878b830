// Job files: what they mean, what is refused and with which words, overrides, writing and reading
// back.
#include "trireme/job/job.h"

#include "test.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"

// Line numbers in the tests below count from the first line of this.
static const char good[] = "kind: train\n"        // 1
                           "data:\n"              // 2
                           "  corpus: a.h5\n"     // 3
                           "model:\n"             // 4
                           "  layers: 2\n"        // 5
                           "  heads: 4\n"         // 6
                           "  width: 64\n"        // 7
                           "  context: 32\n"      // 8
                           "train:\n"             // 9
                           "  steps: 100\n"       // 10
                           "  global_batch: 12\n" // 11
                           "  microbatch: 2\n";   // 12

static tri_status parse(const char *yaml, const char *override, tri_job **out)
{
  return tri_job_parse(yaml, strlen(yaml), "jobs/small.yaml", &override, override != NULL, out);
}

// `good` with `more` after it fails so.
#define EXPECT_REFUSED(part, more) \
  do { \
    char yaml_[8192]; \
    tri_job *job_ = NULL; \
    snprintf(yaml_, sizeof yaml_, "%s%s", good, more); \
    EXPECT_ERROR(TRI_ERR_CONFIG, part, parse(yaml_, NULL, &job_)); \
    EXPECT(job_ == NULL); \
  } while (0)

#define EXPECT_OVERRIDE_REFUSED(part, override) \
  do { \
    tri_job *job_ = NULL; \
    EXPECT_ERROR(TRI_ERR_CONFIG, "override " override, parse(good, override, &job_)); \
    EXPECT_ERROR(TRI_ERR_CONFIG, part, parse(good, override, &job_)); \
    EXPECT(job_ == NULL); \
  } while (0)

static tri_job *load_good(const char *override)
{
  tri_job *job = NULL;
  EXPECT_OK(parse(good, override, &job));
  if (job == NULL) exit(1);
  return job;
}

TEST(defaults_are_the_documented_ones)
{
  tri_job *job = load_good(NULL);
  EXPECT(job->kind == TRI_JOB_TRAIN && job->device == TRI_JOB_DEVICE_CPU);
  EXPECT(strcmp(job->name, "small") == 0);
  EXPECT(strcmp(job->run.dir, "runs/small") == 0);
  EXPECT(strcmp(job->checkpoint.dir, "runs/small/checkpoints") == 0);
  EXPECT(job->seed == 1337 && job->log.every == 10 && job->log.peak_gflops == 0.0);
  EXPECT(strcmp(job->cpu.isa, "auto") == 0 && strcmp(job->cpu.kernels, "tuned") == 0);
  EXPECT(job->cpu.threads == 0);
  EXPECT(job->model.layers == 2 && job->model.heads == 4 && job->model.width == 64);
  EXPECT(job->model.context == 32 && job->model.vocab_size == 0);
  EXPECT(job->model.vocab_multiple == 64 && job->model.dropout == 0.0f);
  EXPECT(strcmp(job->data.corpus, "a.h5") == 0 && strcmp(job->data.tokenizer, "bytes") == 0);
  EXPECT(job->data.text_count == 0 && job->data.text_command_count == 0);
  EXPECT(job->data.validation == 0.05);
  EXPECT(job->train.steps == 100 && job->train.global_batch == 12 && job->train.microbatch == 2);
  EXPECT(job->train.sum_group == 1 && job->train.context == 32);
  EXPECT(job->train.precision == TRI_DTYPE_F32 && job->train.schedule == TRI_SCHEDULE_COSINE);
  EXPECT(job->train.lr == 6e-4f && job->train.min_lr == 6e-4f / 10.0f);
  EXPECT(job->train.warmup_steps == 0 && job->train.beta1 == 0.9f && job->train.beta2 == 0.95f);
  EXPECT(job->train.eps == 1e-8f && job->train.weight_decay == 0.1f && job->train.clip == 1.0f);
  EXPECT(job->train.validate_every == 0 && job->train.validate_samples == 0);
  EXPECT(job->parallel.data == 0 && job->parallel.overlap && job->parallel.bucket_mib == 8.0);
  EXPECT(job->parallel.in_flight == 4 && job->parallel.limit_seconds == 60.0);
  EXPECT(strcmp(job->parallel.transport, "auto") == 0);
  EXPECT(job->parallel.reduce == TRI_JOB_REDUCE_EXACT);
  EXPECT(job->checkpoint.every == 0 && job->checkpoint.keep == 2);
  EXPECT(strcmp(job->checkpoint.resume, "auto") == 0);
  tri_job_free(&job);
  EXPECT(job == NULL);
}

TEST(published_models_fill_the_shape)
{
  static const struct {
    const char *override;
    int layers, heads, width;
  } sizes[] = {{"model.name=gpt2-124M", 12, 12, 768},
               {"model.name=gpt2-355M", 24, 16, 1024},
               {"model.name=gpt2-774M", 36, 20, 1280},
               {"model.name=gpt2-1558M", 48, 25, 1600}};
  static const char yaml[] = "{kind: train, data: {corpus: c.h5}, train: {steps: 1, global_batch: "
                             "1, microbatch: 1}}";
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    tri_job *job = NULL;
    EXPECT_OK(parse(yaml, sizes[s].override, &job));
    if (job == NULL) continue;
    EXPECT(job->model.layers == sizes[s].layers && job->model.heads == sizes[s].heads);
    EXPECT(job->model.width == sizes[s].width && job->model.context == 1024);
    EXPECT(job->model.vocab_size == 50257 && job->train.context == 1024);
    tri_job_free(&job);
  }
  tri_job *job = NULL;
  EXPECT_ERROR(TRI_ERR_CONFIG, "jobs/small.yaml: model.layers is missing", parse(yaml, NULL, &job));
  EXPECT_OVERRIDE_REFUSED("model.name wants gpt | gpt2-124M", "model.name=gpt3");
  EXPECT_ERROR(TRI_ERR_CONFIG,
               "jobs/small.yaml:5: model.layers is 2, but model.name gpt2-124M has 12",
               parse(good, "model.name=gpt2-124M", &job));
}

TEST(every_type_is_read)
{
  tri_job *job = NULL;
  static const char yaml[] =
      "kind: train\nname: 'a b'\nseed: 9223372036854775807\n"
      "log:\n" // a section whose keys are commented out
      "cpu: {isa: avx2, kernels: reference, threads: +3}\n"
      "model: {layers: 010, heads: 1, width: 8, context: 4, dropout: 1.5e-1}\n"
      "data:\n  corpus: \"x\\ty\"\n  text: [a, 'b c']\n"
      "train: {steps: 1, global_batch: 1, microbatch: 1, precision: bf16, "
      "schedule: linear, lr: 1, min_lr: .5, context: 3}\n"
      "parallel: {overlap: off, data: 1, limit_seconds: 0.25}\n"
      "checkpoint: {dir: /c, resume: never}\n";
  EXPECT_OK(parse(yaml, NULL, &job));
  if (job == NULL) return;
  EXPECT(strcmp(job->name, "a b") == 0 && strcmp(job->run.dir, "runs/a b") == 0);
  EXPECT(job->seed == INT64_MAX && job->log.every == 10);
  EXPECT(strcmp(job->cpu.isa, "avx2") == 0 && job->cpu.threads == 3);
  EXPECT(job->model.layers == 10 && job->model.dropout == 0.15f); // no octal
  EXPECT(strcmp(job->data.corpus, "x\ty") == 0 && job->data.text_count == 2);
  EXPECT(strcmp(job->data.text[0], "a") == 0 && strcmp(job->data.text[1], "b c") == 0);
  EXPECT(job->train.precision == TRI_DTYPE_BF16 && job->train.schedule == TRI_SCHEDULE_LINEAR);
  EXPECT(job->train.lr == 1.0f && job->train.min_lr == 0.5f && job->train.context == 3);
  EXPECT(!job->parallel.overlap && job->parallel.data == 1);
  EXPECT(job->parallel.limit_seconds == 0.25);
  EXPECT(strcmp(job->checkpoint.dir, "/c") == 0 && strcmp(job->checkpoint.resume, "never") == 0);
  tri_job_free(&job);
}

TEST(unknown_keys_lead_to_known_ones)
{
  EXPECT_REFUSED("jobs/small.yaml:13: unknown key train.stepz: did you mean train.steps?",
                 "  stepz: 4\n");
  EXPECT_REFUSED("jobs/small.yaml:13: unknown key steps: did you mean train.steps?", "steps: 4\n");
  EXPECT_REFUSED("jobs/small.yaml:13: unknown key paralel: did you mean parallel?",
                 "paralel:\n  data: 1\n");
  EXPECT_REFUSED("jobs/small.yaml:14: unknown key log.evry: did you mean log.every?",
                 "log:\n  evry: 1\n");
  EXPECT_REFUSED("jobs/small.yaml:15: unknown key log.lr: did you mean train.lr?",
                 "log:\n\n  lr: 1\n");
  EXPECT_REFUSED(":13: unknown key zzzzzzzzzzzz: `trireme help job` lists all keys",
                 "zzzzzzzzzzzz: 4\n");
  EXPECT_REFUSED(":13: unknown key", "'': 4\n");
  EXPECT_OVERRIDE_REFUSED("unknown key train.learning_rate: `trireme help job`",
                          "train.learning_rate=1");
  EXPECT_OVERRIDE_REFUSED("unknown key trian.lr: did you mean train.lr?", "trian.lr=1");
  EXPECT_OVERRIDE_REFUSED("train is a section", "train=1");
}

TEST(wrong_types_are_refused)
{
  EXPECT_REFUSED("jobs/small.yaml:13: train.lr wants a number in (0, 1000], found 'fast'",
                 "  lr: fast\n");
  EXPECT_REFUSED(":13: train.lr wants a number", "  lr: 0x10\n");
  EXPECT_REFUSED(":13: train.lr wants a number", "  lr: nan\n");
  EXPECT_REFUSED(":13: train.lr wants a number", "  lr: .inf\n");
  EXPECT_REFUSED(":13: train.lr wants a number", "  lr: 1 000\n");
  EXPECT_REFUSED(":13: train.lr wants a number in (0, 1000], found a list", "  lr: [1]\n");
  EXPECT_REFUSED(":13: train.lr wants a number in (0, 1000], found a section", "  lr: {a: 1}\n");
  EXPECT_REFUSED(":13: train.lr has no value", "  lr:\n");
  EXPECT_REFUSED(":13: train.warmup_steps wants an integer in [0, 1000000000000], found '1.5'",
                 "  warmup_steps: 1.5\n");
  EXPECT_REFUSED(":13: train.warmup_steps wants an integer", "  warmup_steps: 1e3\n");
  EXPECT_REFUSED(":13: train.warmup_steps wants an integer",
                 "  warmup_steps: 99999999999999999999\n");
  EXPECT_REFUSED(":13: train.precision wants f32 | bf16, found 'fp16'", "  precision: fp16\n");
  EXPECT_REFUSED(":14: parallel.overlap wants true | false, found 'maybe'",
                 "parallel:\n  overlap: maybe\n");
  EXPECT_REFUSED(":13: device wants cpu | cuda, found 'gpu'", "device: gpu\n");
  EXPECT_REFUSED(":14: parallel.data wants auto | integer in [0, 1048576], found 'many'",
                 "parallel:\n  data: many\n");
  EXPECT_REFUSED(":13: log is a section", "log: 5\n");
  EXPECT_REFUSED(":14: log is a section", "log:\n  - every\n");
  EXPECT_REFUSED(":13: train.schedule wants constant | linear | cosine, found ''",
                 "  schedule: ''\n");
  tri_job *job = NULL;
  EXPECT_ERROR(TRI_ERR_CONFIG, "x.yaml:2: data.text wants a list of text: write [a.txt]",
               tri_job_parse("data:\n  text: a.txt\n", 20, "x.yaml", NULL, 0, &job));
  EXPECT_ERROR(TRI_ERR_CONFIG, "x.yaml:3: data.text wants a list of text, found a list in a list",
               tri_job_parse("data:\n  text:\n  - [a]\n", 22, "x.yaml", NULL, 0, &job));
}

TEST(ranges_are_kept)
{
  EXPECT_REFUSED(":13: train.lr wants a number in (0, 1000], found '0'", "  lr: 0\n");
  EXPECT_REFUSED(":13: train.lr wants", "  lr: 1e-60\n"); // 0 as a float
  EXPECT_REFUSED(":13: train.lr wants", "  lr: 1e999\n");
  EXPECT_REFUSED(":13: train.beta1 wants a number in [0, 1), found '1'", "  beta1: 1\n");
  EXPECT_REFUSED(":13: train.beta1 wants", "  beta1: 0.9999999999\n"); // 1 as a float
  EXPECT_REFUSED(":14: cpu.threads wants an integer in [0, 4096], found '-1'",
                 "cpu:\n  threads: -1\n");
  EXPECT_REFUSED(":14: checkpoint.keep wants", "checkpoint:\n  keep: 4294967296\n");
  EXPECT_REFUSED(":13: seed wants an integer", "seed: -1\n");
  EXPECT_OVERRIDE_REFUSED("train.steps wants an integer in [1, ", "train.steps=0");
  EXPECT_OVERRIDE_REFUSED("model.layers wants an integer in [1, ", "model.layers=0");
}

TEST(doubled_and_missing_keys_are_refused)
{
  EXPECT_REFUSED("jobs/small.yaml:13: train.steps is given twice, first on line 10",
                 "  steps: 4\n");
  EXPECT_REFUSED(":13: train is given twice, first on line 9", "train:\n  lr: 1\n");
  EXPECT_REFUSED(":13: kind is given twice, first on line 1", "kind: train\n");
  tri_job *job = NULL;
  EXPECT_ERROR(TRI_ERR_CONFIG, "jobs/small.yaml: data.corpus is missing",
               parse("kind: train\n", NULL, &job));
  EXPECT_ERROR(TRI_ERR_CONFIG, "jobs/small.yaml: kind is missing",
               parse("log: {every: 1}\n", NULL, &job));
}

TEST(what_is_not_yaml_is_refused)
{
  tri_job *job = NULL;
  EXPECT_REFUSED("that began on line 13", "  lr: 'open\n");
  EXPECT_REFUSED("jobs/small.yaml:13: not valid YAML", "\tlr: 1\n");
  EXPECT_REFUSED("jobs/small.yaml:13: not valid YAML", "  lr: \"1\" 2\n");
  EXPECT_REFUSED("jobs/small.yaml:14: not valid YAML: invalid leading UTF-8 octet",
                 "#\nname: \xff\n");
  EXPECT_REFUSED(":13: a zero byte", "name: \"a\\0b\"\n");
  EXPECT_REFUSED(":13: anchors and aliases", "name: &a b\n");
  EXPECT_REFUSED(":13: anchors and aliases", "name: *a\n");
  EXPECT_REFUSED(":13: the tag", "name: !!str b\n");
  EXPECT_REFUSED(":13: unknown key <<", "<<: {a: b}\n");
  EXPECT_REFUSED(":13: a key must be a word", "[a, b]: c\n");
  EXPECT_REFUSED(":13: a second document", "---\nkind: train\n");
  EXPECT_ERROR(TRI_ERR_CONFIG, "jobs/small.yaml: the job file is empty", parse("", NULL, &job));
  EXPECT_ERROR(TRI_ERR_CONFIG, "jobs/small.yaml: the job file is empty",
               parse("# nothing\n\n", NULL, &job));
  EXPECT_ERROR(TRI_ERR_CONFIG, "jobs/small.yaml: the job file is empty",
               parse("---\n", NULL, &job));
  EXPECT_ERROR(TRI_ERR_CONFIG, "jobs/small.yaml:1: a job file holds keys and values",
               parse("- a\n", NULL, &job));
  EXPECT_ERROR(TRI_ERR_CONFIG, "jobs/small.yaml:1: a job file holds keys and values",
               parse("text\n", NULL, &job));
}

// Deep nesting, long lists and long files end early and in little memory.
TEST(bombs_are_refused)
{
  enum { N = TRI_JOB_MAX_BYTES };
  tri_job *job = NULL;
  char *text = malloc(N + 2);
  memset(text, '[', N);
  EXPECT_ERROR(TRI_ERR_CONFIG, "bomb", tri_job_parse(text, N, "bomb", NULL, 0, &job));
  memset(text, '{', N);
  EXPECT_ERROR(TRI_ERR_CONFIG, "bomb", tri_job_parse(text, N, "bomb", NULL, 0, &job));
  memcpy(text, "data: {text: [", 14);
  for (int i = 14; i < N; i++)
    text[i] = i % 2 == 0 ? 'a' : ',';
  EXPECT_ERROR(TRI_ERR_CONFIG, "data.text has more than 4096 entries",
               tri_job_parse(text, N, "bomb", NULL, 0, &job));
  EXPECT_ERROR(TRI_ERR_CONFIG, "bomb: 1048577 bytes are too many",
               tri_job_parse(text, N + 1, "bomb", NULL, 0, &job));
  memset(text, 'k', N);
  EXPECT_ERROR(TRI_ERR_CONFIG, "bomb:1:", tri_job_parse(text, N, "bomb", NULL, 0, &job));
  free(text);
}

TEST(rules_between_values)
{
  EXPECT_OVERRIDE_REFUSED("train.microbatch 5 does not divide train.global_batch 12",
                          "train.microbatch=5");
  EXPECT_OVERRIDE_REFUSED("model.heads 3 does not divide model.width 64", "model.heads=3");
  EXPECT_OVERRIDE_REFUSED("train.context 33 is more than the 32 positions", "train.context=33");
  EXPECT_OVERRIDE_REFUSED("train.warmup_steps 101 is more than train.steps 100",
                          "train.warmup_steps=101");
  EXPECT_OVERRIDE_REFUSED("train.min_lr 1 is more than train.lr", "train.min_lr=1");
  EXPECT_OVERRIDE_REFUSED("parallel.reduce fast is NCCL's all-reduce, which needs device cuda",
                          "parallel.reduce=fast");
  static const char *const fast[] = {"device=cuda", "parallel.reduce=fast",
                                     "parallel.transport=staged"};
  tri_job *fast_job = NULL;
  EXPECT_ERROR(TRI_ERR_CONFIG, "but parallel.transport is staged",
               tri_job_parse(good, strlen(good), "x", fast, 3, &fast_job));
  EXPECT_OVERRIDE_REFUSED("cannot name a folder", "name=a/b");
  EXPECT_OVERRIDE_REFUSED("cannot name a folder", "name=..");
  static const char *const both[] = {"data.text=[a]", "data.text_command=[b]"};
  tri_job *job = NULL;
  EXPECT_ERROR(TRI_ERR_CONFIG, "override data.text_command=[b]: data.text and data.text_command",
               tri_job_parse(good, strlen(good), "x", both, 2, &job));
  // In the file, the line is that of the key to change.
  EXPECT_REFUSED("jobs/small.yaml:14: train.warmup_steps 101 is more",
                 "  lr: 1\n  warmup_steps: 101\n");
}

TEST(overrides_win)
{
  static const char *const overrides[] = {"train.steps=7", "data.text=[a, 'b,c']",
                                          "train.steps=8", "parallel.overlap=no",
                                          "run.dir=",      "name=x",
                                          "cpu.isa=avx2"};
  enum { N = sizeof overrides / sizeof overrides[0] };
  tri_job *job = NULL;
  EXPECT_OK(tri_job_parse(good, strlen(good), "jobs/small.yaml", overrides, N, &job));
  if (job == NULL) return;
  EXPECT(job->train.steps == 8 && !job->parallel.overlap);
  EXPECT(job->data.text_count == 2 && strcmp(job->data.text[1], "b,c") == 0);
  EXPECT(strcmp(job->run.dir, "runs/x") == 0 && strcmp(job->cpu.isa, "avx2") == 0);
  tri_job_free(&job);
  job = load_good("train.min_lr=0"); // given, so not derived
  EXPECT(job->train.min_lr == 0.0f);
  tri_job_free(&job);
  EXPECT_OVERRIDE_REFUSED("train.lr wants a number in (0, 1000], found 'abc'", "train.lr=abc");
  EXPECT_OVERRIDE_REFUSED("train.lr wants a number in (0, 1000], found ''", "train.lr=");
  EXPECT_OVERRIDE_REFUSED("the value is a comment", "name=#1");
  EXPECT_OVERRIDE_REFUSED("not valid YAML", "name='x");
  EXPECT_OVERRIDE_REFUSED("name wants text, found a section", "name=a: b");
  EXPECT_OVERRIDE_REFUSED("data.text wants a list of text", "data.text=a");
  EXPECT_ERROR(TRI_ERR_CONFIG, "override train.steps has no '='", parse(good, "train.steps", &job));
  EXPECT_ERROR(TRI_ERR_CONFIG, "unknown key", parse(good, "=", &job));
}

// A job written and read back is written the same, and every number is the same to the bit.
static void check_round_trip(const char *const *overrides, int n)
{
  tri_job *job = NULL, *again = NULL;
  char *yaml = NULL, *yaml_again = NULL;
  EXPECT_OK(tri_job_parse(good, strlen(good), "jobs/small.yaml", overrides, n, &job));
  if (job == NULL) return;
  EXPECT_OK(tri_job_to_yaml(job, &yaml));
  // Another name: everything that comes from it must be in the text.
  EXPECT_OK(tri_job_parse(yaml, strlen(yaml), "else.yaml", NULL, 0, &again));
  if (again != NULL) {
    EXPECT_OK(tri_job_to_yaml(again, &yaml_again));
    EXPECT(strcmp(yaml, yaml_again) == 0);
    EXPECT(memcmp(&job->train, &again->train, sizeof job->train) == 0);
    EXPECT(job->parallel.data == again->parallel.data);
    EXPECT(job->parallel.bucket_mib == again->parallel.bucket_mib);
    EXPECT(job->parallel.limit_seconds == again->parallel.limit_seconds);
    EXPECT(job->model.dropout == again->model.dropout && job->seed == again->seed);
    EXPECT(job->log.peak_gflops == again->log.peak_gflops);
    EXPECT(job->data.validation == again->data.validation);
    EXPECT(job->data.text_count == again->data.text_count);
    for (unsigned i = 0; i < job->data.text_count && i < again->data.text_count; i++)
      EXPECT(strcmp(job->data.text[i], again->data.text[i]) == 0);
    EXPECT(strcmp(job->run.dir, again->run.dir) == 0 && strcmp(job->name, again->name) == 0);
  }
  tri_free(yaml);
  tri_free(yaml_again);
  tri_job_free(&job);
  tri_job_free(&again);
}

TEST(written_jobs_read_back)
{
  check_round_trip(NULL, 0);
  static const char *const edges[] = {
      "data.text=['[', 'a: b', \"x\\ny\", '#', ' ', 'é', '~', \"\\a\", '-', '''', '\"', \"\\\\\"]",
      "name='123'",
      "run.dir='- true'",
      "train.lr=3.4028234e-38",
      "train.min_lr=1e-45",
      "train.beta1=0.99999994",
      "train.clip=1.17549435e-38",
      "train.schedule=linear",
      "train.precision=bf16",
      "train.steps=999999999999",
      "seed=9223372036854775807",
      "log.peak_gflops=4.9406564584124654e-324",
      "parallel.bucket_mib=0.1",
      "parallel.limit_seconds=123456789.123456789",
      "parallel.data=6",
      "parallel.overlap=false",
      "data.validation=0.33333333333333331",
      "device=cuda",
      "parallel.transport=nccl",
      "parallel.reduce=fast",
      "checkpoint.resume=runs/x/checkpoints/step-00000001",
  };
  check_round_trip(edges, sizeof edges / sizeof edges[0]);
  for (uint32_t i = 1; i < 200; i++) {
    char lr[64], dropout[64];
    snprintf(lr, sizeof lr, "train.lr=%.9g", (double)(1.0f / (float)(i * 7919u)));
    snprintf(dropout, sizeof dropout, "model.dropout=%.9g", (double)((float)i / 200.0f));
    const char *const overrides[] = {lr, dropout};
    check_round_trip(overrides, 2);
  }
}

TEST(published_sizes_read_back)
{
  static const char *const overrides[] = {"model.name=gpt2-124M"};
  static const char yaml[] = "{kind: train, data: {corpus: c.h5}, train: {steps: 1, global_batch: "
                             "1, microbatch: 1}}";
  tri_job *job = NULL, *again = NULL;
  char *written = NULL;
  EXPECT_OK(tri_job_parse(yaml, strlen(yaml), "x", overrides, 1, &job));
  EXPECT_OK(tri_job_to_yaml(job, &written));
  EXPECT_OK(tri_job_parse(written, strlen(written), "x", NULL, 0, &again));
  EXPECT(again != NULL && again->model.layers == 12 && again->model.vocab_size == 50257);
  tri_free(written);
  tri_job_free(&job);
  tri_job_free(&again);
}

TEST(files_are_loaded)
{
  char path[512];
  tri_job *job = NULL;
  EXPECT_ERROR(TRI_ERR_IO, "no/such.yaml: cannot be opened",
               tri_job_load("no/such.yaml", NULL, 0, &job));
  EXPECT_ERROR(TRI_ERR_IO, "is not a regular file", tri_job_load("/", NULL, 0, &job));
  EXPECT_OK(tri_path_join(path, sizeof path, test_scratch(), "some.job.yaml"));
  EXPECT_OK(tri_file_write_atomic(path, good, strlen(good)));
  EXPECT_OK(tri_job_load(path, NULL, 0, &job));
  EXPECT(job != NULL && strcmp(job->name, "some.job") == 0);
  tri_job_free(&job);
  EXPECT_OK(tri_file_remove(path));
}

static int lines_that_differ(const char *a, const char *b)
{
  int n = 0;
  while (*a != '\0' && *b != '\0') {
    const size_t length_a = strcspn(a, "\n"), length_b = strcspn(b, "\n");
    n += length_a != length_b || memcmp(a, b, length_a) != 0;
    a += length_a + (a[length_a] == '\n');
    b += length_b + (b[length_b] == '\n');
  }
  return *a == '\0' && *b == '\0' ? n : -1;
}

// The library and the table agree on where every value lies: a key changes what is written in its
// own place and nowhere else.
TEST(every_key_has_a_place_of_its_own)
{
  static const char *const changes[][2] = {{"train.beta2=0.5", "beta2: 0.5"},
                                           {"train.eps=0.25", "eps: 0.25"},
                                           {"train.sum_group=9", "sum_group: 9"},
                                           {"train.validate_samples=9", "validate_samples: 9"},
                                           {"log.every=9", "every: 9"},
                                           {"checkpoint.keep=9", "keep: 9"},
                                           {"cpu.threads=9", "threads: 9"},
                                           {"model.vocab_multiple=9", "vocab_multiple: 9"},
                                           {"parallel.in_flight=9", "in_flight: 9"},
                                           {"data.tokenizer=x", "tokenizer: x"},
                                           {"train.weight_decay=9", "weight_decay: 9"}};
  char *before = NULL;
  tri_job *job = load_good(NULL);
  EXPECT_OK(tri_job_to_yaml(job, &before));
  tri_job_free(&job);
  for (size_t c = 0; c < sizeof changes / sizeof changes[0]; c++) {
    char *after = NULL;
    job = load_good(changes[c][0]);
    EXPECT_OK(tri_job_to_yaml(job, &after));
    EXPECT(strstr(before, changes[c][1]) == NULL && strstr(after, changes[c][1]) != NULL);
    EXPECT(lines_that_differ(before, after) == 1);
    tri_free(after);
    tri_job_free(&job);
  }
  tri_free(before);
}

TEST(nothing_is_leaked)
{
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  TEST_RUN(defaults_are_the_documented_ones);
  TEST_RUN(published_models_fill_the_shape);
  TEST_RUN(every_type_is_read);
  TEST_RUN(unknown_keys_lead_to_known_ones);
  TEST_RUN(wrong_types_are_refused);
  TEST_RUN(ranges_are_kept);
  TEST_RUN(doubled_and_missing_keys_are_refused);
  TEST_RUN(what_is_not_yaml_is_refused);
  TEST_RUN(bombs_are_refused);
  TEST_RUN(rules_between_values);
  TEST_RUN(overrides_win);
  TEST_RUN(written_jobs_read_back);
  TEST_RUN(published_sizes_read_back);
  TEST_RUN(files_are_loaded);
  TEST_RUN(every_key_has_a_place_of_its_own);
  TEST_RUN(nothing_is_leaked);
  return test_end();
}
