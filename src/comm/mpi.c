// MPI itself: its errors, its end.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm_private.h"
#include "comm/exit_timer.h"

enum { ABORT_SECONDS = 10 };

tri_status tri_comm_mpi_error(int code, const char *call, const char *function, const char *file,
                              int line)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
  const int name_length = (int)strcspn(call, "(");
  return tri_error_set(TRI_ERR_COMM, function, file, line, "%.*s failed: %s (code %d)", name_length,
                       call, text[0] == '\0' ? "unknown MPI error" : text, code);
}

const char *tri_comm_library(void)
{
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown MPI library";
  text[strcspn(text, "\n")] = '\0';
  return text;
}

static bool mpi_is_running(void)
{
  int started = 0, ended = 0;
  return MPI_Initialized(&started) == MPI_SUCCESS && started != 0 &&
         MPI_Finalized(&ended) == MPI_SUCCESS && ended == 0;
}

void tri_comm_finish(void)
{
  if (mpi_is_running()) (void)MPI_Finalize();
}

_Noreturn void tri_comm_abort(int exit_code)
{
  fflush(NULL);
  if (mpi_is_running()) {
    // MPI_Abort talks to its launcher, which may be what is broken.
    tri_exit_timer timer;
    tri_exit_timer_start(&timer, NULL, ABORT_SECONDS, exit_code);
    (void)MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  _exit(exit_code);
}
