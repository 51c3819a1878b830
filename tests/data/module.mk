check_PROGRAMS += \
  tests/data/bpe_test \
  tests/data/corpus_test \
  tests/data/loader_test \
  tests/data/tokenizer_test
dist_check_SCRIPTS += tests/data/command_test.sh
EXTRA_DIST += \
  tests/data/corpus_test.h \
  tests/data/tokenizer_test.h \
  tests/data/reference/gpt2-kjv.ids \
  tests/data/reference/gpt2-mixed.ids \
  tests/data/reference/kjv.ids \
  tests/data/reference/kjv.txt \
  tests/data/reference/make.py \
  tests/data/reference/merges.txt \
  tests/data/reference/mixed.ids \
  tests/data/reference/mixed.txt \
  tests/data/reference/tokenizer.json \
  tests/data/reference/vocab.json
