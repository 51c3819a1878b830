#include "cli/commands.h"

#include <stddef.h>

static const tri_cli_command commands[] = {
    {"help", "[COMMAND | job]", "explain a command, or every key of the job file",
     "With the name of a command, explains its arguments and options. With `job`,\n"
     "lists every key of the job file with its type, default, range and meaning.\n",
     tri_cli_help},
    {"report", "RUN", "draw the curves of a run",
     "Draws RUN/loss.svg and RUN/report.html, one self-contained page with loss,\n"
     "throughput, time-split and gradient-norm curves, from RUN/metrics.jsonl.\n"
     "Needs gnuplot on the PATH.\n",
     tri_cli_report},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

const tri_cli_command *tri_cli_at(int index)
{
  return index < 0 || index >= N_COMMANDS ? NULL : &commands[index];
}
