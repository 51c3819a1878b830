# Programs that compare two kernel tables, case by case, are linked with kernel_cases.
KERNEL_CASES = \
  tests/device/kernel_arrays.c \
  tests/device/kernel_cases.c \
  tests/device/kernel_cases_matrix.c \
  tests/device/kernel_cases_norm.c \
  tests/device/kernel_cases_refusals.c
EXTRA_DIST += \
  tests/device/kernel_arrays.h \
  tests/device/kernel_cases.h \
  tests/device/kernel_cases_common.h

check_PROGRAMS += \
  tests/device/device_test \
  tests/device/gradient_test \
  tests/device/reference_test \
  tests/device/reference_threads_test
tests_device_reference_threads_test_SOURCES = tests/device/reference_threads_test.c $(KERNEL_CASES)

check_PROGRAMS += \
  tests/device/linear_test
tests_device_linear_test_SOURCES = tests/device/linear_test.c $(KERNEL_CASES)
