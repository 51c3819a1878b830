check_PROGRAMS += \
  tests/comm/collectives_test \
  tests/comm/exchange_test \
  tests/comm/transport_test
dist_check_SCRIPTS += \
  tests/comm/timeout.sh
