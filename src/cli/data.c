// trireme data …: corpora and tokenizers.
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "trireme/base/memory.h"
#include "trireme/data/corpus.h"
#include "trireme/data/tokenizer.h"

// What was given behind `trireme data`; NULL: not given.
typedef struct data_arguments {
  const char *tokenizer, *output, *validation;
  const char *const *words; // behind the name of the action
  int n_words;
} data_arguments;

static tri_status no_option(const char *action, const char *option, const char *value)
{
  TRI_CHECK(value == NULL, TRI_ERR_USAGE, "data %s takes no option %s", action, option);
  return TRI_OK;
}

static tri_status open_tokenizer(const data_arguments *arguments, tri_tokenizer **out)
{
  return tri_tokenizer_open(arguments->tokenizer == NULL ? "bytes" : arguments->tokenizer, out);
}

static tri_status tokenize(const data_arguments *arguments)
{
  tri_tokenizer *tokenizer = NULL;
  double validation = 0.05;
  TRI_CHECK(arguments->n_words >= 1, TRI_ERR_USAGE, "data tokenize wants at least one text file");
  TRI_CHECK(arguments->output != NULL, TRI_ERR_USAGE,
            "data tokenize wants --output: the corpus to write");
  if (arguments->validation != NULL)
    TRI_CALL(tri_cli_number("--validation", arguments->validation, 0, 0.99, &validation));
  TRI_CALL(open_tokenizer(arguments, &tokenizer));
  const tri_status status = tri_corpus_build(arguments->words, arguments->n_words, tokenizer,
                                             validation, arguments->output);
  tri_tokenizer_close(&tokenizer);
  TRI_CALL(status);
  return TRI_OK;
}

static tri_status print_facts(const data_arguments *arguments)
{
  tri_corpus *corpus = NULL;
  tri_corpus_facts facts;
  char hex[TRI_DIGEST_HEX_BYTES];
  TRI_CALL(no_option("info", "--tokenizer", arguments->tokenizer));
  TRI_CALL(no_option("info", "--output", arguments->output));
  TRI_CALL(no_option("info", "--validation", arguments->validation));
  TRI_CHECK(arguments->n_words == 1, TRI_ERR_USAGE, "data info wants one corpus, found %d words",
            arguments->n_words);
  TRI_CALL(tri_corpus_open(arguments->words[0], &corpus));
  tri_corpus_get_facts(corpus, &facts);
  tri_corpus_close(&corpus);
  tri_digest_hex(&facts.tokenizer_digest, hex);
  printf("tokenizer %s\ntokenizer_digest %s\nvocab_size %d\n", facts.tokenizer_name, hex,
         facts.vocab_size);
  printf("train_tokens %lld\ntrain_bytes %lld\n", (long long)facts.n_tokens[TRI_SPLIT_TRAIN],
         (long long)facts.n_bytes[TRI_SPLIT_TRAIN]);
  printf("validation_tokens %lld\nvalidation_bytes %lld\n",
         (long long)facts.n_tokens[TRI_SPLIT_VALIDATION],
         (long long)facts.n_bytes[TRI_SPLIT_VALIDATION]);
  return TRI_OK;
}

// All of standard input, zero-terminated beyond *n; owned by the caller (tri_free).
static tri_status read_input(char **out, size_t *n)
{
  tri_status status = TRI_OK;
  char *text = NULL;
  size_t used = 0, room = 1 << 16;
  TRI_CALL(TRI_NEW(TRI_MODULE_CLI, room + 1, &text));
  for (;;) {
    used += fread(text + used, 1, room - used, stdin);
    if (used < room) break;
    char *longer = NULL;
    TRI_CALL_GOTO(err_free, TRI_NEW(TRI_MODULE_CLI, 2 * room + 1, &longer));
    memcpy(longer, text, used);
    tri_free(text);
    text = longer;
    room *= 2;
  }
  TRI_CHECK_GOTO(err_free, ferror(stdin) == 0, TRI_ERR_IO, "standard input cannot be read: %s",
                 strerror(errno));
  *out = text;
  *n = used;
  return TRI_OK;

err_free:
  tri_free(text);
  return status;
}

static tri_status encode(const tri_tokenizer *tokenizer, const char *text, size_t size_bytes)
{
  int32_t *ids = NULL;
  int64_t n_ids = 0;
  TRI_CALL(tri_tokenizer_encode(tokenizer, text, size_bytes, &ids, &n_ids));
  for (int64_t i = 0; i < n_ids; i++)
    printf("%d\n", ids[i]);
  tri_free(ids);
  return TRI_OK;
}

// Numbers with white space between them; as many as there can be fit into `ids`.
static tri_status parse_numbers(const char *text, const char *end, int32_t *ids, int64_t *n_ids)
{
  int64_t n = 0;
  for (;;) {
    while (text < end && isspace((unsigned char)*text))
      text++;
    if (text == end) break;
    char *next = NULL;
    errno = 0;
    const long id = strtol(text, &next, 10);
    TRI_CHECK(next != text && errno == 0 && id >= 0 && id <= INT32_MAX, TRI_ERR_FORMAT,
              "standard input: word %lld, '%.20s', is no token number", (long long)n + 1, text);
    ids[n++] = (int32_t)id;
    text = next;
  }
  *n_ids = n;
  return TRI_OK;
}

static tri_status decode(const tri_tokenizer *tokenizer, const char *numbers, size_t size_bytes)
{
  tri_status status = TRI_OK;
  int32_t *ids = NULL;
  int64_t n_ids = 0;
  char *text = NULL;
  size_t n = 0;
  TRI_CALL(TRI_NEW(TRI_MODULE_CLI, size_bytes / 2 + 1, &ids));
  TRI_CALL_GOTO(done, parse_numbers(numbers, numbers + size_bytes, ids, &n_ids));
  status = tri_tokenizer_decode(tokenizer, ids, n_ids, &text, &n);
  if (status == TRI_ERR_ARGUMENT)
    status = TRI_ERROR(TRI_ERR_FORMAT, "standard input: %s", tri_error_message());
  TRI_CALL_GOTO(done, status);
  TRI_CHECK_GOTO(done, fwrite(text, 1, n, stdout) == n, TRI_ERR_IO,
                 "standard output cannot be written: %s", strerror(errno));
done:
  tri_free(text);
  tri_free(ids);
  return status;
}

static tri_status pipe_through(const data_arguments *arguments, const char *action,
                               tri_status (*turn)(const tri_tokenizer *, const char *, size_t))
{
  tri_status status = TRI_OK;
  tri_tokenizer *tokenizer = NULL;
  char *input = NULL;
  size_t n = 0;
  TRI_CALL(no_option(action, "--output", arguments->output));
  TRI_CALL(no_option(action, "--validation", arguments->validation));
  TRI_CHECK(arguments->n_words == 0, TRI_ERR_USAGE, "data %s reads standard input, found %s",
            action, arguments->words[0]);
  TRI_CALL(open_tokenizer(arguments, &tokenizer));
  TRI_CALL_GOTO(done, read_input(&input, &n));
  TRI_CALL_GOTO(done, turn(tokenizer, input, n));
done:
  tri_free(input);
  tri_tokenizer_close(&tokenizer);
  return status;
}

static tri_status act(const char *action, const data_arguments *arguments)
{
  if (strcmp(action, "tokenize") == 0) return tokenize(arguments);
  if (strcmp(action, "info") == 0) return print_facts(arguments);
  if (strcmp(action, "encode") == 0) return pipe_through(arguments, "encode", encode);
  if (strcmp(action, "decode") == 0) return pipe_through(arguments, "decode", decode);
  return TRI_ERROR(TRI_ERR_USAGE, "data wants tokenize, info, encode or decode, found %s", action);
}

tri_status tri_cli_data(int argc, char **argv)
{
  data_arguments arguments = {0};
  const tri_cli_option options[] = {
      {"--tokenizer", "-t", &arguments.tokenizer, NULL},
      {"--output", "-o", &arguments.output, NULL},
      {"--validation", NULL, &arguments.validation, NULL},
  };
  int n_words = 0;
  TRI_CALL(tri_cli_parse(options, sizeof options / sizeof options[0], argc, argv, &n_words));
  TRI_CHECK(n_words >= 1, TRI_ERR_USAGE,
            "data wants tokenize, info, encode or decode: `trireme help data` explains them");
  arguments.words = (const char *const *)argv + 1;
  arguments.n_words = n_words - 1;
  return act(argv[0], &arguments);
}
