libtrireme_a_SOURCES += \
  src/data/corpus.c \
  src/data/corpus_build.c \
  src/data/corpus_build.h \
  src/data/corpus_file.c \
  src/data/corpus_file.h \
  src/data/corpus_write.c \
  src/data/corpus_write.h \
  src/data/encoder.c \
  src/data/encoder.h \
  src/data/hdf5_error.c \
  src/data/hdf5_error.h \
  src/data/loader.c \
  src/data/text_source.c \
  src/data/text_source.h \
  src/data/tokenizer.c \
  src/data/tokenizer_json.c \
  src/data/tokenizer_parts.h
