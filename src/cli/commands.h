// The commands of the program, one file each. Private to cli.
//
// A command gets its arguments, argv[0] being its own name; --help has been dealt with before. It
// returns the program's exit code as a status. What went wrong is left in the error text, which
// main prints as "trireme: <status name>: <message>"; a command that runs on ranks leaves that to
// tri_runtime_finish by ending with tri_cli_finish.
//
// A new command: its function here, its row in commands.c, its section in docs/trireme.1.
#pragma once

#include <stdbool.h>

#include "trireme/base/status.h"
#include "trireme/runtime/runtime.h"

typedef struct tri_cli_command {
  const char *name;
  const char *arguments; // "JOB.yaml [key.path=value …]"
  const char *summary;   // one line
  const char *details;   // options and what they do, lines of at most 80 columns
  tri_status (*run)(int argc, char **argv);
} tri_cli_command;

// Row `index` of the table, NULL past the last.
const tri_cli_command *tri_cli_at(int index);

// The row of `name`; TRI_ERR_USAGE names the nearest known command.
TRI_MUST_CHECK tri_status tri_cli_known(const char *name, const tri_cli_command **out);

TRI_MUST_CHECK tri_status tri_cli_run(int argc, char **argv);
TRI_MUST_CHECK tri_status tri_cli_data(int argc, char **argv);
TRI_MUST_CHECK tri_status tri_cli_generate(int argc, char **argv);
TRI_MUST_CHECK tri_status tri_cli_checkpoint(int argc, char **argv);
TRI_MUST_CHECK tri_status tri_cli_info(int argc, char **argv);
TRI_MUST_CHECK tri_status tri_cli_report(int argc, char **argv);
TRI_MUST_CHECK tri_status tri_cli_help(int argc, char **argv);

// Ends the runtime (NULL: it did not start) after what could not be done is said, and gives the
// exit code as a status. Collective.
TRI_MUST_CHECK tri_status tri_cli_finish(tri_runtime **runtime, tri_status status);

// Prints what `trireme help COMMAND` prints.
void tri_cli_print_help(const tri_cli_command *command);
// What `trireme` alone prints.
void tri_cli_print_overview(void);
// What `trireme --version` prints: version, build, every library with its version.
void tri_cli_print_version(void);

// An option of a command: its names ("--output", "-o" or NULL), and where its value goes or, for
// one without a value (`value` NULL), the flag that it sets.
typedef struct tri_cli_option {
  const char *name;
  const char *letter;
  const char **value;
  bool *flag;
} tri_cli_option;

// Sorts argv[1] … into options and words (what is not an option, and everything after "--"): the
// words are moved to argv[0] … argv[*n_words - 1]. "--name value" and "--name=value" are the same.
// TRI_ERR_USAGE names an unknown option and the nearest known one, a missing value, or an option
// that is given twice.
TRI_MUST_CHECK tri_status tri_cli_parse(const tri_cli_option *options, int n_options, int argc,
                                        char **argv, int *n_words);

// Numbers from the command line: TRI_ERR_USAGE names the option and the range.
TRI_MUST_CHECK tri_status tri_cli_integer(const char *option, const char *text, long long low,
                                          long long high, long long *out);
TRI_MUST_CHECK tri_status tri_cli_number(const char *option, const char *text, double low,
                                         double high, double *out);
