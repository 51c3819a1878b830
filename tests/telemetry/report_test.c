// Pictures are drawn with gnuplot, and its absence is a clear status, not an end.
#include "trireme/telemetry/report.h"

#include <math.h>

#include "test.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/telemetry/metrics.h"

static char folder[2048], metrics_path[4096];

static void write_run(int n)
{
  tri_metrics *metrics = NULL;
  EXPECT_OK(tri_file_remove(folder));
  EXPECT_OK(tri_file_make_folder(folder));
  EXPECT_OK(tri_metrics_open(metrics_path, 0, &metrics));
  for (int s = 1; s <= n; s++) {
    const tri_step_metrics step = {.step = s,
                                   .loss = 5.0 / s,
                                   .step_seconds = 1,
                                   .validation_loss = s % 5 == 0 ? 5.5 / s : NAN,
                                   .validation_loss_per_byte = NAN};
    EXPECT_OK(tri_metrics_write(metrics, &step));
  }
  EXPECT_OK(tri_metrics_close(&metrics));
}

static bool file_holds(const char *name, const char *text)
{
  char path[4096], *content = NULL;
  size_t size = 0;
  EXPECT_OK(tri_path_join(path, sizeof path, folder, name));
  if (tri_file_read(path, 1 << 24, &content, &size) != TRI_OK) return false;
  const bool found = strstr(content, text) != NULL;
  tri_free(content);
  return found;
}

static bool gnuplot_is_here(void)
{
  return tri_file_exists("/usr/bin/gnuplot");
}

TEST(loss_is_drawn)
{
  if (!gnuplot_is_here()) return;
  write_run(20);
  EXPECT_OK(tri_report_loss_svg(folder));
  EXPECT(file_holds("loss.svg", "<svg") && file_holds("loss.svg", "validation loss"));
}

TEST(the_page_stands_alone)
{
  if (!gnuplot_is_here()) return;
  write_run(20);
  EXPECT_OK(tri_report_html(folder));
  EXPECT(file_holds("report.html", "exposed communication"));
  EXPECT(file_holds("report.html", "Throughput"));
  EXPECT(!file_holds("report.html", "<link") && !file_holds("report.html", "<script src"));
}

TEST(no_gnuplot_is_a_status)
{
  char *old = strdup(getenv("PATH") == NULL ? "" : getenv("PATH"));
  write_run(3);
  EXPECT(setenv("PATH", "/nowhere", 1) == 0);
  EXPECT_ERROR(TRI_ERR_UNSUPPORTED, "trireme report", tri_report_loss_svg(folder));
  EXPECT(setenv("PATH", old, 1) == 0);
  EXPECT(!file_holds("loss.svg", "<svg"));
  tri_error_clear();
  free(old);
}

TEST(an_empty_run_is_named)
{
  write_run(0);
  EXPECT_ERROR(TRI_ERR_FORMAT, "holds no step yet", tri_report_html(folder));
  EXPECT_ERROR(TRI_ERR_FORMAT, "holds no step yet", tri_report_loss_svg(folder));
  EXPECT_ERROR(TRI_ERR_IO, "metrics.jsonl", tri_report_html("/nowhere"));
}

int main(void)
{
  snprintf(folder, sizeof folder, "%s/run", test_scratch());
  snprintf(metrics_path, sizeof metrics_path, "%s/metrics.jsonl", folder);
  TEST_RUN(loss_is_drawn);
  TEST_RUN(the_page_stands_alone);
  TEST_RUN(no_gnuplot_is_a_status);
  TEST_RUN(an_empty_run_is_named);
  EXPECT_OK(tri_memory_check_balance());
  return test_end();
}
