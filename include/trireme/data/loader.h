// Which sample is next, and having it ready. Local; knows no ranks.
//
// A split of n tokens holds (n - 1) / T samples, sample s being tokens s T .. s T + T with targets
// one later. The training run consumes samples by ordinal 0, 1, 2, …: ordinal o is sample
// permute(key of epoch o / n_samples, n_samples, o % n_samples). So the whole position in the data
// is one number, whatever the number of ranks, and nothing is stored. In order (validation): sample
// o itself.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/base/status.h"
#include "trireme/data/corpus.h"

typedef struct tri_loader tri_loader;

typedef struct tri_loader_options {
  tri_split split;
  int T;           // tokens a sample
  int max_samples; // of one request
  int depth;       // requests that may be under way, >= 1
  bool shuffled;
  uint64_t seed;
} tri_loader_options;

// Starts the reading thread. corpus borrowed: must outlive the loader. TRI_ERR_CONFIG when the
// split holds less than one sample. *out owned.
TRI_MUST_CHECK tri_status tri_loader_create(const tri_corpus *corpus,
                                            const tri_loader_options *options, tri_loader **out);
void tri_loader_destroy(tri_loader **loader);

int64_t tri_loader_samples(const tri_loader *loader); // a pass over the split

// The sample that an ordinal stands for. Pure.
int64_t tri_loader_sample_of(const tri_loader *loader, uint64_t ordinal);

// Asks for samples [first, first + n) to be read in the background. TRI_ERR_ARGUMENT when `depth`
// requests are open.
TRI_MUST_CHECK tri_status tri_loader_request(tri_loader *loader, uint64_t first_ordinal,
                                             int n_samples);

// Waits for the oldest request and copies it out: tokens and targets (n_samples, T). Errors of its
// reading come here.
TRI_MUST_CHECK tri_status tri_loader_take(tri_loader *loader, int32_t *tokens, int32_t *targets);
