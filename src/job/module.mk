libtrireme_a_SOURCES += \
  src/job/check.c \
  src/job/document.c \
  src/job/keys.c \
  src/job/load.c \
  src/job/rules.c \
  src/job/write.c
