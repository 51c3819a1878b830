// trireme report RUN: draws a run's curves again, and one page with all of them.
#include <stdio.h>

#include "cli/commands.h"
#include "trireme/base/memory.h"
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
  const char **words = NULL;
  int n_words = 0;
  tri_status status = TRI_OK;
  TRI_CALL(TRI_NEW(TRI_MODULE_CLI, argc, &words));
  TRI_CALL_GOTO(done, tri_cli_parse(NULL, 0, argc, argv, words, &n_words));
  TRI_CHECK_GOTO(done, n_words == 1, TRI_ERR_USAGE,
                 "report takes one run folder, %d were given: trireme report RUN", n_words);
  TRI_CALL_GOTO(done, report(words[0]));

done:
  TRI_FREE(&words);
  return status;
}
