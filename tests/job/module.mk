check_PROGRAMS += \
  tests/job/docs_test \
  tests/job/fuzz_test \
  tests/job/job_test
