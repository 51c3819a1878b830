#include "trireme/data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "trireme/base/memory.h"
#include "trireme/base/random.h"

enum { MESSAGE_BYTES = 512 };

// One request, and what was read for it.
typedef struct loader_request {
  uint64_t first_ordinal;
  int n_samples;
  int32_t *rows; // (max_samples, T + 1)
  tri_status status;
  char message[MESSAGE_BYTES];
} loader_request;

// Requests lie in a ring: numbers count upwards for ever, request r is in place r % depth, and
// n_taken <= n_read <= n_asked <= n_taken + depth.
struct tri_loader {
  const tri_corpus *corpus;
  tri_loader_options options;
  int64_t n_samples;
  uint64_t key;
  loader_request *ring;
  uint64_t n_asked, n_read, n_taken; // under lock
  bool ending;                       // under lock
  pthread_mutex_t lock;
  pthread_cond_t asked, read;
  pthread_t thread;
  bool started;
};

int64_t tri_loader_samples(const tri_loader *loader)
{
  return loader->n_samples;
}

int64_t tri_loader_sample_of(const tri_loader *loader, uint64_t ordinal)
{
  const uint64_t n = (uint64_t)loader->n_samples;
  if (!loader->options.shuffled) return (int64_t)ordinal;
  const uint64_t epoch_key = tri_random_u64(loader->key, ordinal / n);
  return (int64_t)tri_random_permute(epoch_key, n, ordinal % n);
}

static tri_status read_samples(const tri_loader *loader, loader_request *request)
{
  const int T = loader->options.T;
  for (int i = 0; i < request->n_samples; i++) {
    const int64_t sample = tri_loader_sample_of(loader, request->first_ordinal + (uint64_t)i);
    TRI_CALL(tri_corpus_read(loader->corpus, loader->options.split, sample * T, T + 1,
                             request->rows + (int64_t)i * (T + 1)));
  }
  return TRI_OK;
}

// The error text belongs to the reading thread: it is kept in the request for the thread that
// takes.
static void fill_request(const tri_loader *loader, loader_request *request)
{
  request->status = read_samples(loader, request);
  if (request->status != TRI_OK)
    snprintf(request->message, sizeof request->message, "%s", tri_error_message());
}

static void *read_requests(void *data)
{
  tri_loader *loader = data;
  pthread_mutex_lock(&loader->lock);
  while (!loader->ending) {
    if (loader->n_read == loader->n_asked) {
      pthread_cond_wait(&loader->asked, &loader->lock);
      continue;
    }
    loader_request *request = &loader->ring[loader->n_read % (uint64_t)loader->options.depth];
    pthread_mutex_unlock(&loader->lock);
    fill_request(loader, request);
    pthread_mutex_lock(&loader->lock);
    loader->n_read++;
    pthread_cond_signal(&loader->read);
  }
  pthread_mutex_unlock(&loader->lock);
  return NULL;
}

// Signals belong to the main thread, which alone acts on them.
static tri_status start_thread(tri_loader *loader)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&loader->thread, NULL, read_requests, loader);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  TRI_CHECK(failed == 0, TRI_ERR_MEMORY, "the thread that reads the corpus cannot be started: %s",
            strerror(failed));
  loader->started = true;
  return TRI_OK;
}

static tri_status check_options(const tri_corpus *corpus, const tri_loader_options *options,
                                int64_t *n_samples)
{
  tri_corpus_facts facts;
  TRI_CHECK(options->T >= 1 && options->max_samples >= 1 && options->depth >= 1, TRI_ERR_ARGUMENT,
            "a loader needs T, max_samples and depth of at least 1, not %d, %d and %d", options->T,
            options->max_samples, options->depth);
  tri_corpus_get_facts(corpus, &facts);
  const int64_t n_tokens = facts.n_tokens[options->split];
  *n_samples = n_tokens > 0 ? (n_tokens - 1) / options->T : 0;
  TRI_CHECK(*n_samples >= 1, TRI_ERR_CONFIG,
            "the %s split of the corpus has %lld tokens, less than one sample of %d + 1: use more "
            "text or a shorter context",
            options->split == TRI_SPLIT_TRAIN ? "train" : "validation", (long long)n_tokens,
            options->T);
  return TRI_OK;
}

tri_status tri_loader_create(const tri_corpus *corpus, const tri_loader_options *options,
                             tri_loader **out)
{
  tri_status status = TRI_OK;
  tri_loader *loader = NULL;
  int64_t n_samples = 0;
  TRI_CALL(check_options(corpus, options, &n_samples));
  TRI_CALL(TRI_NEW(TRI_MODULE_DATA, 1, &loader));
  loader->corpus = corpus;
  loader->options = *options;
  loader->n_samples = n_samples;
  loader->key = tri_random_key(options->seed, "data.order");
  pthread_mutex_init(&loader->lock, NULL);
  pthread_cond_init(&loader->asked, NULL);
  pthread_cond_init(&loader->read, NULL);
  TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_DATA, options->depth, &loader->ring));
  for (int r = 0; r < options->depth; r++) {
    const size_t n_tokens = (size_t)options->max_samples * ((size_t)options->T + 1);
    TRI_CALL_GOTO(err_destroy, TRI_NEW(TRI_MODULE_DATA, n_tokens, &loader->ring[r].rows));
  }
  TRI_CALL_GOTO(err_destroy, start_thread(loader));
  *out = loader;
  return TRI_OK;

err_destroy:
  tri_loader_destroy(&loader);
  return status;
}

void tri_loader_destroy(tri_loader **loader)
{
  tri_loader *old = *loader;
  if (old == NULL) return;
  if (old->started) {
    pthread_mutex_lock(&old->lock);
    old->ending = true;
    pthread_cond_signal(&old->asked);
    pthread_mutex_unlock(&old->lock);
    pthread_join(old->thread, NULL);
  }
  for (int r = 0; old->ring != NULL && r < old->options.depth; r++)
    tri_free(old->ring[r].rows);
  tri_free(old->ring);
  pthread_cond_destroy(&old->read);
  pthread_cond_destroy(&old->asked);
  pthread_mutex_destroy(&old->lock);
  TRI_FREE(loader);
}

static tri_status check_request(const tri_loader *loader, uint64_t first_ordinal, int n_samples)
{
  const tri_loader_options *options = &loader->options;
  TRI_CHECK(n_samples >= 0 && n_samples <= options->max_samples, TRI_ERR_ARGUMENT,
            "%d samples are asked for at once, the loader was made for %d", n_samples,
            options->max_samples);
  const uint64_t n = (uint64_t)loader->n_samples;
  TRI_CHECK(options->shuffled || (first_ordinal <= n && (uint64_t)n_samples <= n - first_ordinal),
            TRI_ERR_ARGUMENT, "samples %llu to %llu are asked for in order, the split has %lld",
            (unsigned long long)first_ordinal, (unsigned long long)first_ordinal + n_samples,
            (long long)loader->n_samples);
  return TRI_OK;
}

tri_status tri_loader_request(tri_loader *loader, uint64_t first_ordinal, int n_samples)
{
  tri_status status = TRI_OK;
  TRI_CALL(check_request(loader, first_ordinal, n_samples));
  pthread_mutex_lock(&loader->lock);
  TRI_CHECK_GOTO(done, loader->n_asked - loader->n_taken < (uint64_t)loader->options.depth,
                 TRI_ERR_ARGUMENT, "%d requests are open already: take one first",
                 loader->options.depth);
  loader_request *request = &loader->ring[loader->n_asked % (uint64_t)loader->options.depth];
  request->first_ordinal = first_ordinal;
  request->n_samples = n_samples;
  loader->n_asked++;
  pthread_cond_signal(&loader->asked);
done:
  pthread_mutex_unlock(&loader->lock);
  return status;
}

static void copy_out(const tri_loader *loader, const loader_request *request, int32_t *tokens,
                     int32_t *targets)
{
  const int64_t T = loader->options.T;
  for (int64_t i = 0; i < request->n_samples; i++) {
    const int32_t *row = request->rows + i * (T + 1);
    memcpy(tokens + i * T, row, (size_t)T * sizeof *tokens);
    memcpy(targets + i * T, row + 1, (size_t)T * sizeof *targets);
  }
}

tri_status tri_loader_take(tri_loader *loader, int32_t *tokens, int32_t *targets)
{
  tri_status status = TRI_OK;
  pthread_mutex_lock(&loader->lock);
  TRI_CHECK_GOTO(done, loader->n_asked > loader->n_taken, TRI_ERR_ARGUMENT,
                 "a batch is taken that was never asked for");
  while (loader->n_read == loader->n_taken)
    pthread_cond_wait(&loader->read, &loader->lock);
  const loader_request *request = &loader->ring[loader->n_taken % (uint64_t)loader->options.depth];
  if (request->status == TRI_OK) {
    copy_out(loader, request, tokens, targets);
  } else {
    status = TRI_ERROR(request->status, "%s", request->message);
  }
  loader->n_taken++;
done:
  pthread_mutex_unlock(&loader->lock);
  return status;
}
