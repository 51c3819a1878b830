check_PROGRAMS += \
  tests/ckpt/pieces_test \
  tests/ckpt/save_load_test
EXTRA_DIST += tests/ckpt/toy.h
