libtrireme_a_SOURCES += \
  src/job/check.c \
  src/job/check.h \
  src/job/document.c \
  src/job/document.h \
  src/job/keys.c \
  src/job/keys.h \
  src/job/load.c \
  src/job/prepare_corpus.c \
  src/job/rules.c \
  src/job/train.c \
  src/job/train_batch.c \
  src/job/train_chunk.c \
  src/job/train_layout.c \
  src/job/train_memory.c \
  src/job/train_report.c \
  src/job/train_run.h \
  src/job/train_setup.c \
  src/job/train_state.c \
  src/job/train_step.c \
  src/job/train_validate.c \
  src/job/write.c
