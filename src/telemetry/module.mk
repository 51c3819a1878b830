libtrireme_a_SOURCES += \
  src/telemetry/clock.c \
  src/telemetry/metrics.c \
  src/telemetry/progress.c \
  src/telemetry/report.c
