libtrireme_a_SOURCES += \
  src/device/arena.c \
  src/device/device.c \
  src/device/cpu/adamw.c \
  src/device/cpu/attention.c \
  src/device/cpu/check.c \
  src/device/cpu/cpu.c \
  src/device/cpu/cross_entropy.c \
  src/device/cpu/elementwise.c \
  src/device/cpu/embedding.c \
  src/device/cpu/isa.c \
  src/device/cpu/layernorm.c \
  src/device/cpu/linear.c \
  src/device/cpu/memory.c \
  src/device/cpu/reference.c \
  src/device/cpu/residual.c
