// trireme COMMAND …: finds the command, runs it, and turns its status into the exit code.
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "trireme/base/memory.h"

static bool is_help(const char *word)
{
  return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

// "--help" anywhere before "--" asks for help, whatever else is there.
static bool asks_help(int argc, char **argv)
{
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (is_help(argv[i])) return true;
  }
  return false;
}

static tri_status dispatch(int argc, char **argv)
{
  if (argc < 2 || is_help(argv[1])) {
    tri_cli_print_overview();
    return TRI_OK;
  }
  if (strcmp(argv[1], "--version") == 0) {
    tri_cli_print_version();
    return TRI_OK;
  }
  const tri_cli_command *command = NULL;
  TRI_CALL(tri_cli_known(argv[1], &command));
  if (asks_help(argc - 1, argv + 1)) {
    tri_cli_print_help(command);
    return TRI_OK;
  }
  TRI_CALL(command->run(argc - 1, argv + 1));
  return TRI_OK;
}

int main(int argc, char **argv)
{
  tri_status status = dispatch(argc, argv);
  if (fflush(stdout) != 0 && status == TRI_OK)
    status = TRI_ERROR(TRI_ERR_IO, "standard output cannot be written");
  if (status != TRI_OK && tri_error_message()[0] != '\0')
    fprintf(stderr, "trireme: %s: %s\n", tri_status_name(status), tri_error_message());
  TRI_ASSERT(status != TRI_OK || tri_memory_check_balance() == TRI_OK);
  return (int)status;
}
