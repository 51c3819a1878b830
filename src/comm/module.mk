libtrireme_a_SOURCES += \
  src/comm/collectives.c \
  src/comm/comm.c \
  src/comm/comm_private.h \
  src/comm/exchange.c \
  src/comm/exit_timer.c \
  src/comm/exit_timer.h \
  src/comm/farewell.c \
  src/comm/mpi.c \
  src/comm/report.c \
  src/comm/side.c \
  src/comm/staged.c \
  src/comm/transport.c \
  src/comm/transport_private.h \
  src/comm/wait.c

if TRI_CUDA
libtrireme_a_SOURCES += \
  src/comm/nccl.c \
  src/comm/nccl.h
endif
