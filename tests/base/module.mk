check_PROGRAMS += \
  tests/base/file_test \
  tests/base/words_test \
  tests/base/random_test
