check_PROGRAMS += \
  tests/optim/optim_test
