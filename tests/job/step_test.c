// ranks: 1 2 3
// Inside a training step nothing is allocated, and a loss that is not finite ends all ranks alike.
#include <math.h>

#include "job/train_run.h"
#include "test.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"

enum { TEXT_BYTES = 20000 };

static tri_runtime *runtime;
static char job_text[4096];

static void write_text(void)
{
  char path[2048], *text = calloc(1, TEXT_BYTES);
  snprintf(path, sizeof path, "%s/text", test_scratch());
  for (int i = 0; i < TEXT_BYTES; i++)
    text[i] = i % 61 == 60 ? '\n' : (char)('a' + i * i % 17);
  if (test_rank() == 0) EXPECT_OK(tri_file_write_atomic(path, text, TEXT_BYTES));
  free(text);
  snprintf(job_text, sizeof job_text,
           "kind: train\nname: t\nrun: {dir: %s/run}\nmodel: {layers: 2, heads: 3, width: 24, "
           "context: 17, dropout: 0.1}\ndata: {corpus: %s/c.h5, text: [%s/text]}\n"
           "train: {steps: 9, global_batch: 6, microbatch: 2, lr: 1e-2}\n"
           "log: {peak_gflops: 1}\n",
           test_scratch(), test_scratch(), test_scratch());
}

static tri_job *load(const char *override)
{
  tri_job *job = NULL;
  EXPECT_OK(
      tri_job_parse(job_text, strlen(job_text), "t", &override, override == NULL ? 0 : 1, &job));
  return job;
}

static void run_steps(const char *override)
{
  tri_train train = {.log_fd = -1, .last_saved_step = -1};
  tri_job *job = load(override);
  EXPECT_OK(tri_train_open(&train, runtime, job));
  EXPECT_OK(tri_train_initialize(&train));
  EXPECT_OK(tri_train_round_weights(&train));
  EXPECT_OK(tri_train_prefetch(&train));
  double losses[4] = {0};
  for (int s = 0; s < 4; s++) {
    tri_step_metrics metrics;
    tri_step_times times = {0};
    const int64_t before = tri_memory_allocations();
    EXPECT_OK(tri_train_step(&train, &metrics, &times));
    EXPECT(tri_memory_allocations() == before);
    losses[s] = metrics.loss;
  }
  EXPECT(losses[3] < losses[0]);
  EXPECT(train.samples == 24 && train.step == 4);
  tri_train_close(&train);
  tri_job_free(&job);
}

TEST(a_step_allocates_nothing)
{
  run_steps(NULL);
  run_steps("train.precision=bf16");
  run_steps("cpu.kernels=reference");
  run_steps("parallel.overlap=false");
}

TEST(a_loss_that_is_not_finite_ends_all_ranks)
{
  tri_train train = {.log_fd = -1, .last_saved_step = -1};
  tri_job *job = load(NULL);
  EXPECT_OK(tri_train_open(&train, runtime, job));
  EXPECT_OK(tri_train_initialize(&train));
  EXPECT_OK(tri_train_prefetch(&train));
  const tri_parameter *norm = tri_parameters_find(&train.model->parameters, "ln_f.weight");
  EXPECT(norm != NULL);
  EXPECT_OK(train.kernels->fill(train.stream, train.parameters + norm->offset, INFINITY, 1));
  tri_step_metrics metrics;
  tri_step_times times = {0};
  EXPECT_ERROR(TRI_ERR_NUMERIC, "step 1: the loss is", tri_train_step(&train, &metrics, &times));
  tri_train_close(&train);
  tri_job_free(&job);
}

int main(void)
{
  if (tri_runtime_start(60, &runtime) != TRI_OK) {
    printf("not ok start: %s\n", tri_error_message());
    return 1;
  }
  tri_log_configure(TRI_LOG_ERROR, test_rank());
  write_text();
  TEST_RUN(a_step_allocates_nothing);
  TEST_RUN(a_loss_that_is_not_finite_ends_all_ranks);
  const int failed = test_end();
  return tri_runtime_finish(&runtime, TRI_OK) != 0 || failed;
}
