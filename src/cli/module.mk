trireme_SOURCES = \
  src/cli/checkpoint.c \
  src/cli/commands.c \
  src/cli/commands.h \
  src/cli/data.c \
  src/cli/finish.c \
  src/cli/generate.c \
  src/cli/help.c \
  src/cli/info.c \
  src/cli/main.c \
  src/cli/options.c \
  src/cli/report.c \
  src/cli/run.c \
  src/cli/schedule.c \
  src/cli/schedule.h \
  src/cli/schedule_picture.c \
  src/cli/trained.c \
  src/cli/trained.h
