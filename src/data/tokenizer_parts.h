// What a tokenizer is made of; shared by the files of this module. Local.
#pragma once

#include "trireme/data/tokenizer.h"

enum { TRI_TOKENIZER_NAME_BYTES = 128 };

struct tri_tokenizer {
  char name[TRI_TOKENIZER_NAME_BYTES];
  int vocab_size;
  tri_digest digest;
};
