check_PROGRAMS += \
  tests/job/docs_test \
  tests/job/fuzz_test \
  tests/job/job_test

check_PROGRAMS += tests/job/step_test
dist_check_SCRIPTS += \
  tests/job/edges_test.sh \
  tests/job/hang_test.sh \
  tests/job/invariance_test.sh \
  tests/job/layouts_test.sh \
  tests/job/resume_test.sh \
  tests/job/train_errors_test.sh
EXTRA_DIST += tests/job/train_test_lib.sh tests/layouts
