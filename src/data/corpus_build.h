// The corpus builder with its block size open, for tests. Local.
#pragma once

#include "trireme/data/corpus.h"

// tri_corpus_build, reading the text `block_bytes` at a time (more where one piece of the
// pre-tokenizer is longer). The tokens do not depend on block_bytes, >= 1.
TRI_MUST_CHECK tri_status tri_corpus_build_in_blocks(const char *const *paths, int n_paths,
                                                     const tri_tokenizer *tokenizer,
                                                     double validation_fraction,
                                                     const char *out_path, size_t block_bytes);
