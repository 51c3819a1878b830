libtrireme_a_SOURCES += \
  src/base/digest.c \
  src/base/file.c \
  src/base/hdf5_error.c \
  src/base/log.c \
  src/base/memory.c \
  src/base/random.c \
  src/base/status.c \
  src/base/words.c
