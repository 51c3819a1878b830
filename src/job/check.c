#include "job/check.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Is `value` in an interval such as "[0, 1)"? "" holds everything.
static bool in_range(const char *range, double value)
{
  char left = '(', right = ')';
  double low = -INFINITY, high = INFINITY;
  if (range[0] == '\0') return true;
  const int n = sscanf(range, "%c%lf, %lf%c", &left, &low, &high, &right);
  TRI_ASSERT(n == 4);
  (void)n;
  const bool above = left == '[' ? value >= low : value > low;
  return above && (right == ']' ? value <= high : value < high);
}

static tri_status wrong(const job_document *document, int key, const char *found)
{
  char place[JOB_PLACE_BYTES], wanted[JOB_WANTED_BYTES];
  return TRI_ERROR(TRI_ERR_CONFIG, "%s: %s wants %s, found '%.100s'",
                   tri_job_place(document, key, place), tri_job_table[key].facts.path,
                   tri_job_key_wanted(&tri_job_table[key], wanted), found);
}

static tri_status check_integer(job_document *document, int key)
{
  job_value *value = &document->values[key];
  const char *text = value->texts[0];
  char *end = NULL;
  errno = 0;
  const long long number = strtoll(text, &end, 10);
  const bool whole = text[0] != '\0' && text[strspn(text, "+-0123456789")] == '\0' && *end == '\0';
  if (!whole || errno != 0) return wrong(document, key, text);
  const job_key *row = &tri_job_table[key];
  const bool fits = row->size > sizeof(int) || (number >= INT_MIN && number <= INT_MAX);
  if (value->given && (!fits || !in_range(row->facts.range, (double)number)))
    return wrong(document, key, text);
  // libcyaml reads 010 as octal.
  char decimal[32];
  snprintf(decimal, sizeof decimal, "%lld", number);
  TRI_CALL(tri_job_value_set(value, decimal));
  return TRI_OK;
}

static tri_status check_number(job_document *document, int key)
{
  const job_value *value = &document->values[key];
  const char *text = value->texts[0];
  char *end = NULL;
  const double number = strtod(text, &end);
  // No hexadecimal, inf or nan.
  const bool whole =
      text[0] != '\0' && text[strspn(text, "+-.0123456789eE")] == '\0' && *end == '\0';
  if (!whole || !isfinite(number)) return wrong(document, key, text);
  if (value->given && !in_range(tri_job_table[key].facts.range, number))
    return wrong(document, key, text);
  // A float is checked as the float it becomes: 1e-60 is 0 there.
  if (value->given && tri_job_table[key].size == sizeof(float) &&
      !in_range(tri_job_table[key].facts.range, strtof(text, NULL)))
    return wrong(document, key, text);
  return TRI_OK;
}

static tri_status check_bool(job_document *document, int key)
{
  static const char *const words[2][3] = {{"false", "no", "off"}, {"true", "yes", "on"}};
  job_value *value = &document->values[key];
  for (int truth = 0; truth < 2; truth++) {
    for (int w = 0; w < 3; w++) {
      if (strcmp(value->texts[0], words[truth][w]) == 0)
        return tri_job_value_set(value, words[truth][0]);
    }
  }
  return wrong(document, key, value->texts[0]);
}

static tri_status check_choice(job_document *document, int key)
{
  job_value *value = &document->values[key];
  const int place = tri_job_choice_find(tri_job_table[key].facts.type, value->texts[0]);
  if (place < 0) return wrong(document, key, value->texts[0]);
  char number[16];
  snprintf(number, sizeof number, "%d", place);
  return tri_job_value_set(value, number);
}

static tri_status check_text(const job_document *document, int key)
{
  const job_key *row = &tri_job_table[key];
  const char *text = document->values[key].texts[0];
  const bool any = strcmp(row->facts.type, "text") == 0;
  if (any ? text[0] == '\0' && !row->derived : tri_job_choice_find(row->facts.type, text) < 0)
    return wrong(document, key, text);
  return TRI_OK;
}

static tri_status check_list(const job_document *document, int key)
{
  const job_value *value = &document->values[key];
  for (int i = 0; i < value->n_texts; i++) {
    if (value->texts[i][0] == '\0') return wrong(document, key, "[…, '', …]");
  }
  return TRI_OK;
}

static tri_status fill_default(job_document *document, int key)
{
  const job_key *row = &tri_job_table[key];
  job_value *value = &document->values[key];
  if (row->storage == JOB_LIST) return TRI_OK;
  if (row->derived) return tri_job_value_set(value, row->storage == JOB_TEXT ? "" : "0");
  TRI_CHECK(row->facts.default_value[0] != '\0', TRI_ERR_CONFIG,
            "%s: %s is missing (%s): it has no default", document->name, row->facts.path,
            row->facts.meaning);
  return tri_job_value_set(value, row->facts.default_value);
}

static tri_status check_value(job_document *document, int key)
{
  job_value *value = &document->values[key];
  switch (tri_job_table[key].storage) {
  case JOB_AUTO_OR_INTEGER:
    if (strcmp(value->texts[0], "auto") == 0) return tri_job_value_set(value, "0");
    return check_integer(document, key);
  case JOB_INTEGER: return check_integer(document, key);
  case JOB_NUMBER: return check_number(document, key);
  case JOB_BOOL: return check_bool(document, key);
  case JOB_CHOICE: return check_choice(document, key);
  case JOB_TEXT: return check_text(document, key);
  case JOB_LIST: return check_list(document, key);
  }
  return TRI_OK;
}

tri_status tri_job_check_values(job_document *document)
{
  // Wrong values first: a missing key is less surprising than a mistyped one.
  for (int k = 0; k < JOB_N_KEYS; k++) {
    if (document->values[k].given) TRI_CALL(check_value(document, k));
  }
  for (int k = 0; k < JOB_N_KEYS; k++) {
    if (document->values[k].given) continue;
    TRI_CALL(fill_default(document, k));
    TRI_CALL(check_value(document, k));
  }
  return TRI_OK;
}
