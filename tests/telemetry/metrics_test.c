// What is written is what is read; a resumed run drops the lines it will write again; a broken last
// line costs itself only.
#include "trireme/telemetry/metrics.h"

#include <math.h>
#include <unistd.h>

#include "test.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"

static char path[4096];

static tri_step_metrics invented(int64_t step)
{
  const double x = (double)step;
  return (tri_step_metrics){.step = step,
                            .tokens = step * 100,
                            .loss = 1 / x,
                            .grad_norm = x,
                            .lr = 1e-4 * x,
                            .step_seconds = 0.5,
                            .compute_seconds = 0.25,
                            .communication_seconds = 0.125,
                            .data_seconds = 0.0625,
                            .checkpoint_seconds = 0,
                            .tokens_per_second = 200,
                            .model_flops_per_second = 3e12,
                            .mfu = 0.5,
                            .validation_loss = step % 2 == 0 ? 2.5 : NAN,
                            .validation_loss_per_byte = NAN};
}

static void write_steps(int64_t resume_step, int64_t first, int64_t end)
{
  tri_metrics *metrics = NULL;
  EXPECT_OK(tri_metrics_open(path, resume_step, &metrics));
  EXPECT_OK(tri_metrics_header(metrics, "6N", 1e6, "measured", 1e11, 2));
  for (int64_t s = first; s < end; s++) {
    const tri_step_metrics step = invented(s);
    EXPECT_OK(tri_metrics_write(metrics, &step));
  }
  EXPECT_OK(tri_metrics_close(&metrics));
  EXPECT(metrics == NULL);
}

static bool same(double a, double b)
{
  return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-8 * fabs(b);
}

static void expect_steps(int64_t n_wanted)
{
  tri_step_metrics *steps = NULL;
  int64_t n = 0;
  EXPECT_OK(tri_metrics_read(path, &steps, &n));
  EXPECT(n == n_wanted);
  for (int64_t i = 0; i < n; i++) {
    const tri_step_metrics want = invented(i + 1);
    EXPECT(steps[i].step == want.step && steps[i].tokens == want.tokens);
    EXPECT(same(steps[i].loss, want.loss) && same(steps[i].mfu, want.mfu));
    EXPECT(same(steps[i].validation_loss, want.validation_loss));
    EXPECT(same(steps[i].model_flops_per_second, want.model_flops_per_second));
  }
  tri_free(steps);
}

TEST(what_is_written_is_read)
{
  unlink(path);
  write_steps(0, 1, 20);
  expect_steps(19);
}

TEST(a_resumed_run_writes_its_lines_again)
{
  unlink(path);
  write_steps(0, 1, 20);
  write_steps(7, 8, 12);
  expect_steps(11);
  write_steps(0, 1, 3);
  expect_steps(2);
}

TEST(a_broken_last_line_is_left_out)
{
  unlink(path);
  write_steps(0, 1, 6);
  int64_t size = 0;
  EXPECT_OK(tri_file_size(path, &size));
  EXPECT(truncate(path, size - 5) == 0);
  expect_steps(4);
  write_steps(5, 5, 6);
  expect_steps(5);
}

TEST(errors_name_the_file)
{
  tri_metrics *metrics = NULL;
  tri_step_metrics *steps = NULL;
  int64_t n = 0;
  EXPECT_ERROR(TRI_ERR_IO, "/nowhere/m.jsonl", tri_metrics_open("/nowhere/m.jsonl", -1, &metrics));
  EXPECT_ERROR(TRI_ERR_IO, "/nowhere/m.jsonl", tri_metrics_read("/nowhere/m.jsonl", &steps, &n));
}

int main(void)
{
  snprintf(path, sizeof path, "%s/metrics.jsonl", test_scratch());
  TEST_RUN(what_is_written_is_read);
  TEST_RUN(a_resumed_run_writes_its_lines_again);
  TEST_RUN(a_broken_last_line_is_left_out);
  TEST_RUN(errors_name_the_file);
  EXPECT_OK(tri_memory_check_balance());
  return test_end();
}
