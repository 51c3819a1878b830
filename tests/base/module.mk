check_PROGRAMS += \
  tests/base/words_test \
  tests/base/random_test
