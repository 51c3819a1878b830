#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "trireme/base/words.h"

enum { MAX_OPTIONS = 32 };

static tri_status unknown_option(const tri_cli_option *options, int n_options, const char *command,
                                 const char *word, size_t n)
{
  const char *names[MAX_OPTIONS];
  char name[TRI_WORD_BYTES];
  for (int i = 0; i < n_options; i++)
    names[i] = options[i].name;
  if (n >= sizeof name) n = sizeof name - 1;
  memcpy(name, word, n);
  name[n] = '\0';
  const int nearest = tri_word_nearest(name, names, n_options);
  if (nearest < 0)
    return TRI_ERROR(TRI_ERR_USAGE, "unknown option %s: `trireme help %s` lists them", name,
                     command);
  return TRI_ERROR(TRI_ERR_USAGE, "unknown option %s: did you mean %s?", name, names[nearest]);
}

// The option that the first n bytes of a word name, NULL when there is none.
static const tri_cli_option *find_option(const tri_cli_option *options, int n_options,
                                         const char *word, size_t n)
{
  for (int i = 0; i < n_options; i++) {
    const tri_cli_option *option = &options[i];
    if (strlen(option->name) == n && strncmp(option->name, word, n) == 0) return option;
    if (option->letter != NULL && strlen(option->letter) == n &&
        strncmp(option->letter, word, n) == 0)
      return option;
  }
  return NULL;
}

// One option at argv[*at], and its value, which may be the next word.
// `seen` has a bit for each option met before.
static tri_status take_option(const char *command, const tri_cli_option *options, int n_options,
                              int argc, char **argv, int *at, uint32_t *seen)
{
  const char *word = argv[*at];
  const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
  const size_t n = equals == NULL ? strlen(word) : (size_t)(equals - word);
  const tri_cli_option *option = find_option(options, n_options, word, n);
  if (option == NULL) return unknown_option(options, n_options, command, word, n);
  const uint32_t bit = 1u << (option - options);
  TRI_CHECK((*seen & bit) == 0, TRI_ERR_USAGE, "option %s is given twice", option->name);
  *seen |= bit;
  if (option->value == NULL) {
    TRI_CHECK(equals == NULL, TRI_ERR_USAGE, "option %s takes no value", option->name);
    *option->flag = true;
    return TRI_OK;
  }
  if (equals != NULL) {
    *option->value = equals + 1;
    return TRI_OK;
  }
  TRI_CHECK(*at + 1 < argc, TRI_ERR_USAGE, "option %s has no value", option->name);
  *option->value = argv[++*at];
  return TRI_OK;
}

tri_status tri_cli_parse(const tri_cli_option *options, int n_options, int argc, char **argv,
                         int *n_words)
{
  const char *const command = argv[0];
  TRI_CHECK(n_options <= MAX_OPTIONS, TRI_ERR_INTERNAL, "%d options", n_options);
  bool only_words = false;
  uint32_t seen = 0;
  *n_words = 0;
  for (int i = 1; i < argc; i++) {
    if (!only_words && strcmp(argv[i], "--") == 0) {
      only_words = true;
    } else if (!only_words && argv[i][0] == '-' && argv[i][1] != '\0') {
      TRI_CALL(take_option(command, options, n_options, argc, argv, &i, &seen));
    } else {
      argv[(*n_words)++] = argv[i];
    }
  }
  return TRI_OK;
}

tri_status tri_cli_integer(const char *option, const char *text, long long low, long long high,
                           long long *out)
{
  char *end = NULL;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  TRI_CHECK(end != text && *end == '\0' && errno == 0 && value >= low && value <= high,
            TRI_ERR_USAGE, "option %s wants an integer in [%lld, %lld], found '%s'", option, low,
            high, text);
  *out = value;
  return TRI_OK;
}

tri_status tri_cli_number(const char *option, const char *text, double low, double high,
                          double *out)
{
  char *end = NULL;
  const double value = strtod(text, &end);
  TRI_CHECK(end != text && *end == '\0' && isfinite(value) && value >= low && value <= high,
            TRI_ERR_USAGE, "option %s wants a number in [%g, %g], found '%s'", option, low, high,
            text);
  *out = value;
  return TRI_OK;
}
