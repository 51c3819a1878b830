libtrireme_a_SOURCES += \
  src/runtime/binding.c \
  src/runtime/device_share.c \
  src/runtime/device_share.h \
  src/runtime/devices.c \
  src/runtime/runtime.c \
  src/runtime/runtime_private.h \
  src/runtime/signals.c
