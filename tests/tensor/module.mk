check_PROGRAMS += \
  tests/tensor/box_test
