#include "cli/commands.h"

tri_status tri_cli_finish(tri_runtime **runtime, tri_status status)
{
  const int exit_code = tri_runtime_finish(runtime, status);
  tri_error_clear();
  return (tri_status)exit_code;
}
