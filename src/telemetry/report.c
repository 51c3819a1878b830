#define _GNU_SOURCE
#include "trireme/telemetry/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/telemetry/metrics.h"

extern char **environ;

// A curve: one number of the metrics over steps. A line through all points, or marks where it was
// measured.
typedef struct curve {
  const char *title;
  size_t offset;
  double scale;
  const char *style;
} curve;

typedef struct picture {
  const char *name, *title, *unit;
  const curve *curves;
  int n_curves;
} picture;

#define FIELD(name) offsetof(tri_step_metrics, name)
static const curve loss_curves[] = {
    {"training loss", FIELD(loss), 1, "lines lw 1.5 lc rgb '#4477aa'"},
    {"validation loss", FIELD(validation_loss), 1,
     "linespoints lw 2 pt 7 ps 0.6 lc rgb '#ee6677'"}};
static const curve rate_curves[] = {
    {"tokens/s", FIELD(tokens_per_second), 1, "lines lw 1.5 lc rgb '#228833'"}};
static const curve time_curves[] = {
    {"compute", FIELD(compute_seconds), 1, "lines lw 1.5 lc rgb '#4477aa'"},
    {"exposed communication", FIELD(communication_seconds), 1, "lines lw 1.5 lc rgb '#ee6677'"},
    {"data", FIELD(data_seconds), 1, "lines lw 1.5 lc rgb '#ccbb44'"},
    {"checkpoint", FIELD(checkpoint_seconds), 1, "impulses lw 2 lc rgb '#aa3377'"}};
static const curve norm_curves[] = {
    {"gradient norm", FIELD(grad_norm), 1, "lines lw 1.5 lc rgb '#66ccee'"}};
static const picture pictures[] = {{"loss", "Loss", "nats a token", loss_curves, 2},
                                   {"throughput", "Throughput", "tokens/s", rate_curves, 1},
                                   {"time", "Time of a step on rank 0", "seconds", time_curves, 4},
                                   {"norm", "Gradient norm before clipping", "", norm_curves, 1}};
enum { N_PICTURES = sizeof pictures / sizeof pictures[0] };

static double value_of(const tri_step_metrics *step, const curve *c)
{
  return c->scale * *(const double *)((const char *)step + c->offset);
}

// gnuplot's input: settings, one plot command, the points inline. Paths never go through a shell or
// into gnuplot text.
static void write_script(FILE *out, const picture *p, const tri_step_metrics *steps, int64_t n)
{
  fprintf(out, "set terminal svg size 900,420 dynamic background rgb 'white' font 'sans,13'\n"
               "set grid lc rgb '#dddddd'\nset key top right\nset xlabel 'step'\n");
  fprintf(out, "set title '%s'\nset ylabel '%s'\nset yrange [*:*]\n", p->title, p->unit);
  fprintf(out, "plot ");
  for (int c = 0; c < p->n_curves; c++) {
    fprintf(out, "%s'-' using 1:2 with %s title '%s'", c == 0 ? "" : ", ", p->curves[c].style,
            p->curves[c].title);
  }
  fprintf(out, "\n");
  for (int c = 0; c < p->n_curves; c++) {
    int64_t points = 0;
    for (int64_t i = 0; i < n; i++) {
      const double y = value_of(&steps[i], &p->curves[c]);
      if (!isfinite(y)) continue;
      fprintf(out, "%lld %.9g\n", (long long)steps[i].step, y);
      points++;
    }
    if (points == 0) fprintf(out, "%lld NaN\n", n > 0 ? (long long)steps[0].step : 0LL);
    fprintf(out, "e\n");
  }
}

static tri_status start_gnuplot(int output, int messages, FILE **input, pid_t *child)
{
  int ends[2];
  posix_spawn_file_actions_t actions;
  TRI_CHECK(pipe2(ends, O_CLOEXEC) == 0, TRI_ERR_IO, "no pipe for gnuplot: %s", strerror(errno));
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO);
  char program[] = "gnuplot";
  char *const argv[] = {program, NULL};
  const int failed = posix_spawnp(child, "gnuplot", &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[0]);
  if (failed != 0) close(ends[1]);
  TRI_CHECK(failed == 0, TRI_ERR_UNSUPPORTED,
            "gnuplot cannot be started (%s): install it (gnuplot-nox) and run 'trireme report RUN' "
            "on any "
            "machine that sees the run folder",
            strerror(failed));
  *input = fdopen(ends[1], "w");
  if (*input == NULL) close(ends[1]);
  TRI_CHECK(*input != NULL, TRI_ERR_MEMORY, "no memory for a stream");
  return TRI_OK;
}

// Draws into an open file. What gnuplot says (it warns of a curve that is flat) goes to another,
// and from there into the error when it fails.
static tri_status run_gnuplot(const picture *p, const tri_step_metrics *steps, int64_t n,
                              FILE *output, FILE *messages)
{
  char said[200] = "";
  FILE *input = NULL;
  pid_t child;
  int code = 0;
  // A gnuplot that dies early must be an error, not the end of the run.
  void (*const old)(int) = signal(SIGPIPE, SIG_IGN);
  const tri_status status = start_gnuplot(fileno(output), fileno(messages), &input, &child);
  if (status == TRI_OK) {
    write_script(input, p, steps, n);
    fclose(input);
    while (waitpid(child, &code, 0) < 0 && errno == EINTR)
      continue;
  }
  signal(SIGPIPE, old);
  TRI_CALL(status);
  if (WIFEXITED(code) && WEXITSTATUS(code) == 0) return TRI_OK;
  rewind(messages);
  said[fread(said, 1, sizeof said - 1, messages)] = '\0';
  return TRI_ERROR(TRI_ERR_UNSUPPORTED, "gnuplot failed with status %d: %s", code, said);
}

// The picture as SVG text; *svg owned by the caller.
static tri_status draw(const picture *p, const tri_step_metrics *steps, int64_t n, char **svg,
                       size_t *size)
{
  tri_status status = TRI_OK;
  FILE *file = tmpfile(), *messages = tmpfile();
  TRI_CHECK_GOTO(done, file != NULL && messages != NULL, TRI_ERR_IO,
                 "no temporary file for a picture: %s", strerror(errno));
  status = run_gnuplot(p, steps, n, file, messages);
  if (status == TRI_OK) {
    fseek(file, 0, SEEK_END);
    const long end = ftell(file);
    rewind(file);
    status = TRI_NEW(TRI_MODULE_TELEMETRY, end + 1, svg);
    if (status == TRI_OK) *size = fread(*svg, 1, (size_t)end, file);
  }

done:
  if (messages != NULL) fclose(messages);
  if (file != NULL) fclose(file);
  return status;
}

static tri_status read_run(const char *run_folder, tri_step_metrics **steps, int64_t *n)
{
  char path[PATH_MAX];
  TRI_CALL(tri_path_join(path, sizeof path, run_folder, "metrics.jsonl"));
  return tri_metrics_read(path, steps, n);
}

tri_status tri_report_loss_svg(const char *run_folder)
{
  char path[PATH_MAX];
  tri_step_metrics *steps = NULL;
  int64_t n = 0;
  char *svg = NULL;
  size_t size = 0;
  TRI_CALL(tri_path_join(path, sizeof path, run_folder, "loss.svg"));
  TRI_CALL(read_run(run_folder, &steps, &n));
  tri_status status = TRI_OK;
  if (n == 0) status = TRI_ERROR(TRI_ERR_FORMAT, "%s/metrics.jsonl holds no step yet", run_folder);
  if (status == TRI_OK) status = draw(&pictures[0], steps, n, &svg, &size);
  if (status == TRI_OK) status = tri_file_write_atomic(path, svg, size);
  TRI_FREE(&svg);
  TRI_FREE(&steps);
  return status;
}

// --- the page

static void write_escaped(FILE *out, const char *text)
{
  for (; *text != '\0'; text++) {
    switch (*text) {
    case '&': fputs("&amp;", out); break;
    case '<': fputs("&lt;", out); break;
    case '>': fputs("&gt;", out); break;
    default: fputc(*text, out);
    }
  }
}

static void write_summary(FILE *out, const tri_step_metrics *steps, int64_t n)
{
  const tri_step_metrics *last = &steps[n - 1];
  double seconds = 0, waited = 0, validation = NAN;
  for (int64_t i = 0; i < n; i++) {
    seconds += steps[i].step_seconds;
    waited += steps[i].communication_seconds;
    if (isfinite(steps[i].validation_loss_per_byte)) validation = steps[i].validation_loss_per_byte;
  }
  fprintf(out, "<table><tr><th>steps</th><td>%lld</td></tr><tr><th>tokens</th><td>%lld</td></tr>",
          (long long)last->step, (long long)last->tokens);
  fprintf(out, "<tr><th>training loss</th><td>%.4f nats a token</td></tr>", last->loss);
  if (isfinite(validation)) {
    fprintf(out, "<tr><th>validation loss</th><td>%.4f nats a byte</td></tr>", validation);
  }
  fprintf(out,
          "<tr><th>training time</th><td>%.1f s, %.1f %% of it exposed communication</td></tr>",
          seconds, 100.0 * waited / seconds);
  fprintf(out, "<tr><th>MFU at the end</th><td>%.1f %%</td></tr></table>\n", 100.0 * last->mfu);
}

static tri_status write_page(FILE *out, const char *run_folder, const tri_step_metrics *steps,
                             int64_t n)
{
  fputs("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>", out);
  write_escaped(out, run_folder);
  fputs("</title><style>body{font:16px sans-serif;max-width:960px;margin:2em auto;padding:0 1em}"
        "svg{max-width:100%;height:auto}th{text-align:left;padding-right:2em}"
        "pre{background:#f4f4f4;padding:1em;overflow:auto}</style></head><body><h1>",
        out);
  write_escaped(out, run_folder);
  fputs("</h1>\n", out);
  write_summary(out, steps, n);
  for (int i = 0; i < N_PICTURES; i++) {
    char *svg = NULL;
    size_t size = 0;
    TRI_CALL(draw(&pictures[i], steps, n, &svg, &size));
    const char *body = strstr(svg, "<svg");
    fprintf(out, "<h2>%s</h2>\n%s\n", pictures[i].title, body == NULL ? svg : body);
    TRI_FREE(&svg);
  }
  return TRI_OK;
}

static void write_job(FILE *out, const char *run_folder)
{
  char path[PATH_MAX];
  char *text = NULL;
  size_t size = 0;
  if (tri_path_join(path, sizeof path, run_folder, "job.yaml") != TRI_OK ||
      tri_file_read(path, 1 << 20, &text, &size) != TRI_OK) {
    tri_error_clear(); // a run folder without its job file still has curves
    return;
  }
  fputs("<h2>Job</h2><pre>", out);
  write_escaped(out, text);
  fputs("</pre>", out);
  TRI_FREE(&text);
}

tri_status tri_report_html(const char *run_folder)
{
  char path[PATH_MAX];
  tri_step_metrics *steps = NULL;
  int64_t n = 0;
  char *page = NULL;
  size_t size = 0;
  TRI_CALL(tri_path_join(path, sizeof path, run_folder, "report.html"));
  TRI_CALL(read_run(run_folder, &steps, &n));
  tri_status status = TRI_OK;
  FILE *out = NULL;
  TRI_CHECK_GOTO(done, n > 0, TRI_ERR_FORMAT, "%s/metrics.jsonl holds no step yet", run_folder);
  out = open_memstream(&page, &size);
  TRI_CHECK_GOTO(done, out != NULL, TRI_ERR_MEMORY, "no memory for the page");
  status = write_page(out, run_folder, steps, n);
  if (status == TRI_OK) write_job(out, run_folder);
  fputs("</body></html>\n", out);
  fclose(out);
  TRI_CALL_GOTO(done, status);
  TRI_CALL_GOTO(done, tri_file_write_atomic(path, page, size));

done:
  free(page);
  TRI_FREE(&steps);
  return status;
}
