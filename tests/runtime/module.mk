check_PROGRAMS += \
  tests/runtime/device_share_test \
  tests/runtime/runtime_test \
  tests/runtime/signals_test
EXTRA_PROGRAMS += \
  tests/runtime/trouble
dist_check_SCRIPTS += \
  tests/runtime/ends.sh
EXTRA_DIST += tests/runtime/cases
