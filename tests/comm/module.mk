check_PROGRAMS += \
  tests/comm/collectives_test \
  tests/comm/exchange_test
