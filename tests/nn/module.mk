check_PROGRAMS += \
  tests/nn/decoder_test \
  tests/nn/gpt_reference_test \
  tests/nn/gpt_test \
  tests/nn/parameter_test
EXTRA_DIST += \
  tests/nn/gpt_rig.h \
  tests/reference/gpt_step.f32 \
  tests/reference/gpt_step.py \
  tests/reference/gpt_step.txt
