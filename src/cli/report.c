// trireme report RUN: draws a run's curves again, and one page with all of them.
#include <stdio.h>

#include "cli/commands.h"
#include "trireme/telemetry/report.h"

static tri_status report(const char *run_folder)
{
  TRI_CALL(tri_report_loss_svg(run_folder));
  TRI_CALL(tri_report_html(run_folder));
  printf("%s/loss.svg\n%s/report.html\n", run_folder, run_folder);
  return TRI_OK;
}

tri_status tri_cli_report(int argc, char **argv)
{
  int n_words = 0;
  TRI_CALL(tri_cli_parse(NULL, 0, argc, argv, &n_words));
  TRI_CHECK(n_words == 1, TRI_ERR_USAGE,
            "report takes one run folder, %d were given: trireme report RUN", n_words);
  return report(argv[0]);
}
