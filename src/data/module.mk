libtrireme_a_SOURCES += \
  src/data/bpe.c \
  src/data/bpe.h \
  src/data/bpe_json.c \
  src/data/bpe_merge.c \
  src/data/bpe_merge.h \
  src/data/bpe_print.c \
  src/data/byte_alphabet.c \
  src/data/byte_alphabet.h \
  src/data/corpus.c \
  src/data/corpus_build.c \
  src/data/corpus_build.h \
  src/data/corpus_file.c \
  src/data/corpus_file.h \
  src/data/corpus_write.c \
  src/data/corpus_write.h \
  src/data/encoder.c \
  src/data/encoder.h \
  src/data/loader.c \
  src/data/pretokenizer.c \
  src/data/pretokenizer.h \
  src/data/text_source.c \
  src/data/text_source.h \
  src/data/tokenizer.c \
  src/data/tokenizer_parts.h \
  src/data/tokenizer_path.c \
  src/data/utf8.c \
  src/data/utf8.h
