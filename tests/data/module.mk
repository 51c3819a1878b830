check_PROGRAMS += \
  tests/data/corpus_test \
  tests/data/loader_test
EXTRA_DIST += tests/data/corpus_test.h
