check_PROGRAMS += \
  tests/telemetry/metrics_test \
  tests/telemetry/report_test
