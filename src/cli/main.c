// trireme COMMAND …: finds the command, runs it, and turns its status into the exit code.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "trireme/base/memory.h"

// The rank that the launcher gave this process, known before MPI starts; 0 without a launcher.
static int launched_rank(void)
{
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                      "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *rank = getenv(names[i]);
    if (rank != NULL) return atoi(rank);
  }
  return 0;
}

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

// What every rank would say alike is said by rank 0.
static tri_status dispatch(int argc, char **argv)
{
  const bool speaks = launched_rank() == 0;
  if (argc < 2 || is_help(argv[1])) {
    if (speaks) tri_cli_print_overview();
    return TRI_OK;
  }
  if (strcmp(argv[1], "--version") == 0) {
    if (speaks) tri_cli_print_version();
    return TRI_OK;
  }
  const tri_cli_command *command = NULL;
  TRI_CALL(tri_cli_known(argv[1], &command));
  if (asks_help(argc - 1, argv + 1)) {
    if (speaks) tri_cli_print_help(command);
    return TRI_OK;
  }
  TRI_CALL(command->run(argc - 1, argv + 1));
  return TRI_OK;
}

int main(int argc, char **argv)
{
  // A file above the limit of its size is an error like any other, not the end of the program.
  signal(SIGXFSZ, SIG_IGN);
  tri_status status = dispatch(argc, argv);
  if (fflush(stdout) != 0 && status == TRI_OK)
    status = TRI_ERROR(TRI_ERR_IO, "standard output cannot be written");
  const bool speaks = status != TRI_ERR_USAGE || launched_rank() == 0;
  if (status != TRI_OK && speaks && tri_error_message()[0] != '\0')
    fprintf(stderr, "trireme: %s: %s\n", tri_status_name(status), tri_error_message());
  TRI_ASSERT(status != TRI_OK || tri_memory_check_balance() == TRI_OK);
  return (int)status;
}
