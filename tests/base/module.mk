check_PROGRAMS += \
  tests/base/random_test
