trireme_SOURCES = src/cli/main.c
