// trireme generate RUN|CHECKPOINT --prompt TEXT …: continues a text with a trained model.
//
// When the context is full, the cache is begun again with the last half of a context, so a text of
// any length goes on, each token seeing at least the half context before it.
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/trained.h"
#include "trireme/base/memory.h"
#include "trireme/base/random.h"

typedef struct wishes {
  const char *path, *prompt;
  int64_t n_tokens;
  float temperature;
  int top_k;
  uint64_t seed;
} wishes;

// A text that grows.
typedef struct generation {
  const tri_cli_trained *trained;
  tri_gpt_decoder *decoder;
  int32_t *text; // all tokens so far
  int64_t n;     // how many they are
  float *logits; // of what follows them
} generation;

static const char usage[] =
    "trireme generate RUN|CHECKPOINT --prompt TEXT [--tokens N] [--temperature T] [--top-k K] "
    "[--seed S]";

static tri_status read_wishes(int argc, char **argv, wishes *out)
{
  const char *tokens = "256", *temperature = "0.8", *top_k = "0", *seed = "0";
  const tri_cli_option options[] = {
      {"--prompt", "-p", &out->prompt, NULL},
      {"--tokens", "-n", &tokens, NULL},
      {"--temperature", NULL, &temperature, NULL},
      {"--top-k", NULL, &top_k, NULL},
      {"--seed", NULL, &seed, NULL},
  };
  int n_words = 0;
  long long value;
  double number;
  TRI_CALL(tri_cli_parse(options, sizeof options / sizeof options[0], argc, argv, &n_words));
  TRI_CHECK(n_words == 1, TRI_ERR_USAGE, "generate takes one folder, %d were given: %s", n_words,
            usage);
  out->path = argv[0];
  TRI_CHECK(out->prompt != NULL && out->prompt[0] != '\0', TRI_ERR_USAGE,
            "generate wants a text to go on from, of at least one character: --prompt TEXT");
  TRI_CALL(tri_cli_integer("--tokens", tokens, 0, 1000000000, &value));
  out->n_tokens = value;
  TRI_CALL(tri_cli_number("--temperature", temperature, 0.0, 1000.0, &number));
  out->temperature = (float)number;
  TRI_CALL(tri_cli_integer("--top-k", top_k, 0, INT32_MAX, &value));
  out->top_k = (int)value;
  TRI_CALL(tri_cli_integer("--seed", seed, 0, INT64_MAX, &value));
  out->seed = (uint64_t)value;
  return TRI_OK;
}

// Feeds token `at` of the text, and before it, when the context is full, the half context before
// it again.
static tri_status feed(generation *g, int64_t at)
{
  const int context = g->trained->model->max_context;
  if (tri_gpt_decoder_position(g->decoder) == context) {
    tri_gpt_decoder_restart(g->decoder);
    for (int64_t i = at - context / 2; i < at; i++)
      TRI_CALL(tri_gpt_decoder_step(g->decoder, g->text[i], g->logits));
  }
  TRI_CALL(tri_gpt_decoder_step(g->decoder, g->text[at], g->logits));
  return TRI_OK;
}

static tri_status print_token(const tri_tokenizer *tokenizer, int32_t token)
{
  char *bytes = NULL;
  size_t n = 0;
  TRI_CALL(tri_tokenizer_decode(tokenizer, &token, 1, &bytes, &n));
  const bool written = fwrite(bytes, 1, n, stdout) == n && fflush(stdout) == 0;
  tri_free(bytes);
  TRI_CHECK(written, TRI_ERR_IO, "standard output cannot be written");
  return TRI_OK;
}

static tri_status go_on(generation *g, const wishes *want)
{
  const tri_tokenizer *tokenizer = g->trained->tokenizer;
  const uint64_t key = tri_random_key(want->seed, "generate");
  // A model may have more tokens than its tokenizer; those mean nothing.
  const int vocab = tri_tokenizer_vocab_size(tokenizer) < g->trained->model->vocab_size
                        ? tri_tokenizer_vocab_size(tokenizer)
                        : g->trained->model->vocab_size;
  for (int64_t i = 0; i < want->n_tokens; i++) {
    const int32_t token = tri_sample_token(g->logits, vocab, want->temperature, want->top_k,
                                           tri_random_uniform(key, (uint64_t)i));
    g->text[g->n++] = token;
    TRI_CALL(print_token(tokenizer, token));
    if (i + 1 < want->n_tokens) TRI_CALL(feed(g, g->n - 1));
  }
  putchar('\n');
  return TRI_OK;
}

static tri_status continue_text(const tri_cli_trained *trained, const wishes *want)
{
  generation g = {.trained = trained};
  int32_t *prompt = NULL;
  tri_status status = TRI_OK;
  TRI_CALL(
      tri_tokenizer_encode(trained->tokenizer, want->prompt, strlen(want->prompt), &prompt, &g.n));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CLI, g.n + want->n_tokens, &g.text));
  TRI_CALL_GOTO(done, tri_device_alloc_host(trained->device,
                                            (size_t)trained->model->vocab_size * sizeof(float),
                                            (void **)&g.logits));
  TRI_CALL_GOTO(
      done, tri_gpt_decoder_create(trained->model, trained->stream, trained->weights, &g.decoder));
  memcpy(g.text, prompt, (size_t)g.n * sizeof *prompt);
  fputs(want->prompt, stdout);
  fflush(stdout);
  for (int64_t i = 0; i < g.n; i++)
    TRI_CALL_GOTO(done, feed(&g, i));
  TRI_CALL_GOTO(done, go_on(&g, want));

done:
  tri_gpt_decoder_destroy(&g.decoder);
  tri_device_free_host(trained->device, (void **)&g.logits);
  tri_free(g.text);
  tri_free(prompt);
  return status;
}

static tri_status generate(tri_runtime *runtime, const wishes *want)
{
  tri_cli_trained trained = {0};
  tri_status status = TRI_OK;
  const int n_ranks = tri_comm_size(tri_runtime_world(runtime));
  TRI_CHECK(n_ranks == 1, TRI_ERR_USAGE, "generate runs on one rank, not on %d", n_ranks);
  TRI_CALL_GOTO(done, tri_cli_trained_open(runtime, want->path, &trained));
  TRI_CALL_GOTO(done, continue_text(&trained, want));

done:
  tri_cli_trained_close(&trained);
  return status;
}

tri_status tri_cli_generate(int argc, char **argv)
{
  wishes want = {0};
  tri_runtime *runtime = NULL;
  TRI_CALL(read_wishes(argc, argv, &want));
  tri_status status = tri_runtime_start(60.0, &runtime);
  if (status == TRI_OK) status = generate(runtime, &want);
  return tri_cli_finish(&runtime, status);
}
