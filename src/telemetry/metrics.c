#define _GNU_SOURCE
#include "trireme/telemetry/metrics.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base/file.h"
#include "trireme/base/memory.h"

struct tri_metrics {
  FILE *file;
  char *path;
};

// The numbers of a line by name, so that writing and reading cannot disagree.
static const struct {
  const char *key;
  size_t offset;
} number_fields[] = {
    {"loss", offsetof(tri_step_metrics, loss)},
    {"grad_norm", offsetof(tri_step_metrics, grad_norm)},
    {"lr", offsetof(tri_step_metrics, lr)},
    {"step_seconds", offsetof(tri_step_metrics, step_seconds)},
    {"compute_seconds", offsetof(tri_step_metrics, compute_seconds)},
    {"communication_seconds", offsetof(tri_step_metrics, communication_seconds)},
    {"data_seconds", offsetof(tri_step_metrics, data_seconds)},
    {"checkpoint_seconds", offsetof(tri_step_metrics, checkpoint_seconds)},
    {"tokens_per_second", offsetof(tri_step_metrics, tokens_per_second)},
    {"model_flops_per_second", offsetof(tri_step_metrics, model_flops_per_second)},
    {"mfu", offsetof(tri_step_metrics, mfu)},
    {"validation_loss", offsetof(tri_step_metrics, validation_loss)},
    {"validation_loss_per_byte", offsetof(tri_step_metrics, validation_loss_per_byte)},
};
enum { N_NUMBERS = sizeof number_fields / sizeof number_fields[0], FILE_LIMIT = 1 << 30 };

static double *number_of(tri_step_metrics *step, int field)
{
  return (double *)((char *)step + number_fields[field].offset);
}

// The step of a line; -1 for a header or a broken line.
static int64_t step_of_line(const char *line, size_t size, tri_step_metrics *step)
{
  json_t *root = json_loadb(line, size, 0, NULL);
  const json_t *number = json_object_get(root, "step");
  int64_t found = -1;
  if (json_is_integer(number)) {
    found = json_integer_value(number);
    step->step = found;
    step->tokens = json_integer_value(json_object_get(root, "tokens"));
    for (int f = 0; f < N_NUMBERS; f++) {
      const json_t *value = json_object_get(root, number_fields[f].key);
      *number_of(step, f) = json_is_number(value) ? json_number_value(value) : NAN;
    }
  }
  json_decref(root);
  return found;
}

// Keeps the whole lines of steps up to `resume_step`; drops headers too, a resumed run writes its
// own.
static tri_status drop_later_lines(const char *path, int64_t resume_step)
{
  char *text = NULL;
  size_t size = 0, kept = 0;
  if (!tri_file_exists(path)) return TRI_OK;
  TRI_CALL(tri_file_read(path, FILE_LIMIT, &text, &size));
  for (size_t at = 0; at < size;) {
    const char *end = memchr(text + at, '\n', size - at);
    if (end == NULL) break;
    const size_t length = (size_t)(end - (text + at)) + 1;
    tri_step_metrics step;
    const int64_t number = step_of_line(text + at, length - 1, &step);
    if (number >= 0 && number <= resume_step) {
      memmove(text + kept, text + at, length);
      kept += length;
    }
    at += length;
  }
  const tri_status status = tri_file_write_atomic(path, text, kept);
  TRI_FREE(&text);
  return status;
}

tri_status tri_metrics_open(const char *path, int64_t resume_step, tri_metrics **out)
{
  tri_metrics *metrics = NULL;
  tri_status status = TRI_OK;
  if (resume_step >= 0) TRI_CALL(drop_later_lines(path, resume_step));
  TRI_CALL(TRI_NEW(TRI_MODULE_TELEMETRY, 1, &metrics));
  metrics->path = tri_strdup(TRI_MODULE_TELEMETRY, path);
  TRI_CHECK_GOTO(err_free, metrics->path != NULL, TRI_ERR_MEMORY, "no memory for a path");
  metrics->file = fopen(path, "ae");
  TRI_CHECK_GOTO(err_free, metrics->file != NULL, TRI_ERR_IO, "%s: cannot be opened: %s", path,
                 strerror(errno));
  *out = metrics;
  return TRI_OK;

err_free:
  TRI_FREE(&metrics->path);
  TRI_FREE(&metrics);
  return status;
}

tri_status tri_metrics_close(tri_metrics **metrics)
{
  tri_metrics *m = *metrics;
  if (m == NULL) return TRI_OK;
  tri_status status = TRI_OK;
  if (fclose(m->file) != 0) {
    status = TRI_ERROR(TRI_ERR_IO, "%s: closing failed: %s", m->path, strerror(errno));
  }
  TRI_FREE(&m->path);
  TRI_FREE(metrics);
  return status;
}

// One line, flushed. Takes over the reference to `line`.
static tri_status write_line(tri_metrics *metrics, json_t *line)
{
  char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
  json_decref(line);
  TRI_CHECK(text != NULL, TRI_ERR_MEMORY, "no memory for a line of %s", metrics->path);
  const int bad = fprintf(metrics->file, "%s\n", text) < 0 || fflush(metrics->file) != 0;
  free(text);
  TRI_CHECK(!bad, TRI_ERR_IO, "%s: writing failed: %s", metrics->path, strerror(errno));
  return TRI_OK;
}

tri_status tri_metrics_header(tri_metrics *metrics, const char *flop_convention,
                              double flops_per_token, const char *peak_name, double peak_flops,
                              int n_ranks)
{
  json_t *line = json_pack("{s:{s:s, s:f, s:s, s:f, s:i}}", "header", "flop_convention",
                           flop_convention, "flops_per_token", flops_per_token, "peak", peak_name,
                           "peak_flops_per_rank", peak_flops, "ranks", n_ranks);
  TRI_CHECK(line != NULL, TRI_ERR_MEMORY, "no memory for the head of %s", metrics->path);
  return write_line(metrics, line);
}

tri_status tri_metrics_write(tri_metrics *metrics, const tri_step_metrics *step)
{
  tri_step_metrics copy = *step;
  json_t *line =
      json_pack("{s:I, s:I}", "step", (json_int_t)step->step, "tokens", (json_int_t)step->tokens);
  TRI_CHECK(line != NULL, TRI_ERR_MEMORY, "no memory for a line of %s", metrics->path);
  for (int f = 0; f < N_NUMBERS; f++) {
    const double value = *number_of(&copy, f);
    // JSON has no NaN: what was not measured is null.
    (void)json_object_set_new(line, number_fields[f].key,
                              isfinite(value) ? json_real(value) : json_null());
  }
  return write_line(metrics, line);
}

static int64_t count_lines(const char *text, size_t size)
{
  int64_t n = 0;
  for (size_t i = 0; i < size; i++)
    n += text[i] == '\n';
  return n;
}

tri_status tri_metrics_read(const char *path, tri_step_metrics **steps, int64_t *n_steps)
{
  char *text = NULL;
  size_t size = 0;
  tri_step_metrics *list = NULL;
  int64_t n = 0;
  TRI_CALL(tri_file_read(path, FILE_LIMIT, &text, &size));
  const tri_status status = TRI_NEW(TRI_MODULE_TELEMETRY, count_lines(text, size) + 1, &list);
  for (size_t at = 0; status == TRI_OK && at < size;) {
    const char *end = memchr(text + at, '\n', size - at);
    if (end == NULL) break;
    if (step_of_line(text + at, (size_t)(end - (text + at)), &list[n]) >= 0) n++;
    at = (size_t)(end - text) + 1;
  }
  TRI_FREE(&text);
  TRI_CALL(status);
  *steps = list;
  *n_steps = n;
  return TRI_OK;
}
