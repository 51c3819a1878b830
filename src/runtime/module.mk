libtrireme_a_SOURCES += \
  src/runtime/binding.c \
  src/runtime/runtime.c \
  src/runtime/runtime_private.h \
  src/runtime/signals.c
