libtrireme_a_SOURCES += \
  src/nn/gpt.c \
  src/nn/gpt_block.c \
  src/nn/gpt_decode.c \
  src/nn/gpt_head.c \
  src/nn/gpt_model.h \
  src/nn/model.c \
  src/nn/parameter.c \
  src/nn/sample.c
