libtrireme_a_SOURCES += \
  src/tensor/box.c \
  src/tensor/dtype.c
