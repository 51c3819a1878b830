libtrireme_a_SOURCES += \
  src/ckpt/agree.c \
  src/ckpt/catalog.c \
  src/ckpt/chunk.c \
  src/ckpt/cover.c \
  src/ckpt/folder.c \
  src/ckpt/load.c \
  src/ckpt/manifest_read.c \
  src/ckpt/manifest_write.c \
  src/ckpt/pieces.c \
  src/ckpt/read_plan.c \
  src/ckpt/replicas.c \
  src/ckpt/save.c \
  src/ckpt/shard.c \
  src/ckpt/split_chunks.c \
  src/ckpt/state_digest.c \
  src/ckpt/steady_file.c

EXTRA_DIST += \
  src/ckpt/agree.h \
  src/ckpt/chunk.h \
  src/ckpt/cover.h \
  src/ckpt/folder.h \
  src/ckpt/manifest.h \
  src/ckpt/pieces.h \
  src/ckpt/read_plan.h \
  src/ckpt/replicas.h \
  src/ckpt/shard.h \
  src/ckpt/split_chunks.h \
  src/ckpt/steady_file.h
