libtrireme_a_SOURCES += \
  src/optim/adamw.c \
  src/optim/norm.c \
  src/optim/schedule.c
