trireme_SOURCES = \
  src/cli/commands.c \
  src/cli/help.c \
  src/cli/main.c \
  src/cli/options.c \
  src/cli/report.c
