// trireme run JOB.yaml [key.path=value …]: what a job file says, on all ranks.
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include "trireme/job/job.h"
#include "trireme/job/train.h"
#include "trireme/runtime/runtime.h"

// Until the job's own parallel.limit_seconds is known.
static const double start_limit_seconds = 60.0;

// Root's job file, read and checked there alone, so that a slow shared file system sees one reader
// and an error is said once; the others get the resolved job as text. Collective, errors agree.
static tri_status load_on_all(tri_comm *comm, const char *path, const char *const *overrides,
                              int n_overrides, tri_job **out)
{
  char *yaml = NULL;
  uint64_t size_bytes = 0;
  tri_job *job = NULL;
  tri_status status = TRI_OK;
  const bool root = tri_comm_rank(comm) == 0;
  if (root) status = tri_job_load(path, overrides, n_overrides, &job);
  if (root && status == TRI_OK) status = tri_job_to_yaml(job, &yaml);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "job file", status));
  if (root) size_bytes = strlen(yaml);
  TRI_CALL_GOTO(done,
                tri_comm_broadcast(comm, "size of the job", &size_bytes, sizeof size_bytes, 0));
  if (!root) status = TRI_NEW(TRI_MODULE_CLI, size_bytes, &yaml);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "room for the job", status));
  TRI_CALL_GOTO(done, tri_comm_broadcast(comm, "job", yaml, size_bytes, 0));
  if (!root) status = tri_job_parse(yaml, size_bytes, path, NULL, 0, &job);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "job on all ranks", status));
  *out = job;
  job = NULL;

done:
  tri_job_free(&job);
  tri_free(yaml);
  return status;
}

static tri_status run_job(tri_runtime *runtime, const char *path, const char *const *overrides,
                          int n_overrides)
{
  tri_job *job = NULL;
  TRI_CALL(load_on_all(tri_runtime_world(runtime), path, overrides, n_overrides, &job));
  const tri_status status = tri_train_run(runtime, job);
  tri_job_free(&job);
  TRI_CALL(status);
  return TRI_OK;
}

// What can be seen to be wrong before ranks meet.
static tri_status check_words(char *const *words, int n_words)
{
  TRI_CHECK(n_words > 0, TRI_ERR_USAGE,
            "run wants a job file: trireme run JOB.yaml [key.path=value …]");
  for (int i = 1; i < n_words; i++)
    TRI_CHECK(strchr(words[i], '=') != NULL, TRI_ERR_USAGE,
              "run takes one job file and key.path=value behind it, found %s", words[i]);
  return TRI_OK;
}

tri_status tri_cli_run(int argc, char **argv)
{
  int n_words = 0;
  tri_runtime *runtime = NULL;
  TRI_CALL(tri_cli_parse(NULL, 0, argc, argv, &n_words));
  TRI_CALL(check_words(argv, n_words));
  // The lines of a run are its output: they go where the user sends them.
  tri_log_info_to(STDOUT_FILENO);
  tri_status status = tri_runtime_start(start_limit_seconds, &runtime);
  if (status == TRI_OK)
    status = run_job(runtime, argv[0], (const char *const *)argv + 1, n_words - 1);
  return tri_cli_finish(&runtime, status);
}
