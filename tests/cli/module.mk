dist_check_SCRIPTS += \
  tests/cli/checkpoint_test.sh \
  tests/cli/generate_test.sh \
  tests/cli/help_test.sh \
  tests/cli/info_test.sh \
  tests/cli/job_errors_test.sh \
  tests/cli/schedule_test.sh
