// Encoding a long text part by part, with the work space kept from one part to the next. Local; one
// encoder is used by one thread at a time.
#pragma once

#include <stdbool.h>

#include "trireme/data/tokenizer.h"

typedef struct tri_encoder tri_encoder;

// tokenizer borrowed: must outlive the encoder. *out owned.
TRI_MUST_CHECK tri_status tri_encoder_create(const tri_tokenizer *tokenizer, tri_encoder **out);
void tri_encoder_destroy(tri_encoder **encoder);

// Encodes as much of the head of `text` as does not depend on what follows (`last`: nothing
// follows, all is encoded), so that parts cut anywhere give the tokens of the whole: the next part
// begins with the bytes that were not consumed. Nothing is consumed when the part is shorter than
// one piece of the pre-tokenizer: then a longer part is needed.
//   ids              room for size_bytes numbers
//   n_ids, consumed  written on success
TRI_MUST_CHECK tri_status tri_encoder_encode(tri_encoder *encoder, const void *text,
                                             size_t size_bytes, bool last, int32_t *ids,
                                             int64_t *n_ids, size_t *consumed);
