check_PROGRAMS += \
  tests/ckpt/catalog_test \
  tests/ckpt/disk_full_test \
  tests/ckpt/manifest_test \
  tests/ckpt/pieces_test \
  tests/ckpt/ranges_test \
  tests/ckpt/save_load_test \
  tests/ckpt/save_loop
dist_check_SCRIPTS += \
  tests/ckpt/disk_full.sh \
  tests/ckpt/kill_test.sh
EXTRA_DIST += tests/ckpt/toy.h
