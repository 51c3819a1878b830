#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/runtime_private.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"

// The rank that aborts the job has this long to do so before the others do it as well.
enum { SECOND_ABORT_SECONDS = 3 };

tri_status tri_runtime_count_sharing(tri_runtime *runtime)
{
  tri_status status;
  tri_binding *all = NULL;
  const int size = tri_comm_size(runtime->world);
  TRI_CALL(TRI_NEW(TRI_MODULE_RUNTIME, size, &all));
  TRI_CALL_GOTO(done, tri_comm_all_gather(runtime->world, "binding", &runtime->binding,
                                          sizeof runtime->binding, all));
  runtime->n_sharing = 0;
  for (int rank = 0; rank < size; rank++)
    runtime->n_sharing += strcmp(all[rank].host, runtime->binding.host) == 0 &&
                          strcmp(all[rank].units, runtime->binding.units) == 0;

done:
  TRI_FREE(&all);
  return status;
}

tri_status tri_runtime_start(double limit_seconds, tri_runtime **out)
{
  tri_status status;
  tri_runtime *runtime = NULL;
  TRI_CALL(TRI_NEW(TRI_MODULE_RUNTIME, 1, &runtime));
  TRI_CALL_GOTO(err_free, tri_comm_create_world(limit_seconds, &runtime->world));
  tri_log_configure(TRI_LOG_INFO, tri_comm_rank(runtime->world));
  TRI_CALL_GOTO(err_free,
                TRI_NEW(TRI_MODULE_RUNTIME, tri_comm_size(runtime->world), &runtime->statuses));
  status = tri_binding_read(&runtime->binding);
  TRI_CALL_GOTO(err_free, tri_comm_agree(runtime->world, "binding", status));
  TRI_CALL_GOTO(err_free, tri_runtime_count_sharing(runtime));
  *out = runtime;
  return TRI_OK;

err_free:
  tri_comm_destroy(&runtime->world);
  TRI_FREE(&runtime->statuses);
  TRI_FREE(&runtime);
  return status;
}

tri_comm *tri_runtime_world(tri_runtime *runtime)
{
  return runtime->world;
}

const tri_binding *tri_runtime_binding(const tri_runtime *runtime)
{
  return &runtime->binding;
}

int tri_runtime_threads(const tri_runtime *runtime, int wanted)
{
  if (wanted > 0) return wanted;
  const int threads = runtime->binding.n_processing_units / runtime->n_sharing;
  return threads > 1 ? threads : 1;
}

// Which of two ranks' statuses says more about what happened.
static int weight_of(int status)
{
  switch (status) {
  case -1:
  case TRI_OK: return 0;
  case TRI_ERR_INTERRUPTED: return 1;
  case TRI_ERR_PEER: return 2;
  case TRI_ERR_TIMEOUT: return 3;
  default: return 4;
  }
}

tri_status tri_runtime_verdict(const int *statuses, int size, int *out)
{
  int worst = -1;
  for (int rank = 0; rank < size; rank++)
    if (weight_of(statuses[rank]) > (worst < 0 ? 0 : weight_of(statuses[worst]))) worst = rank;
  *out = worst;
  return worst < 0 ? TRI_OK : (tri_status)statuses[worst];
}

static void print_stack(void)
{
#ifndef TRI_DEBUG
  if (getenv("TRIREME_DEBUG") == NULL) return;
#endif
  for (const char *text = tri_error_stack(); *text != '\0';) {
    const int length = (int)strcspn(text, "\n");
    tri_log_rank(TRI_LOG_ERROR, "%.*s", length, text);
    text += length + (text[length] == '\n');
  }
}

// The error text of this thread is still that of `status`.
static void print_error(const char *host, int size, tri_status status)
{
  if (size == 1)
    tri_log(TRI_LOG_ERROR, "%s: %s", tri_status_name(status), tri_error_message());
  else
    tri_log_rank(TRI_LOG_ERROR, "on %s: %s: %s", host, tri_status_name(status),
                 tri_error_message());
  print_stack();
}

// One rank aborts the job, so that it is said once; should that rank be stuck, the others do.
_Noreturn static void abort_job(const int *statuses, int rank, int exit_code)
{
  int first = 0;
  while (first < rank && statuses[first] == -1)
    first++;
  if (first < rank) {
    fflush(NULL);
    const struct timespec pause = {.tv_sec = SECOND_ABORT_SECONDS};
    (void)nanosleep(&pause, NULL);
  }
  tri_comm_abort(exit_code);
}

int tri_runtime_finish(tri_runtime **runtime_pointer, tri_status status)
{
  tri_runtime *runtime = *runtime_pointer;
  if (runtime == NULL) {
    print_error("this host", 1, status);
    tri_comm_abort((int)status);
  }
  const int rank = tri_comm_rank(runtime->world), size = tri_comm_size(runtime->world);
  int *statuses = runtime->statuses, culprit = -1;
  bool orderly = false;
  // An error of this rank's own is said before anything else can go wrong. Of the ranks that miss
  // another, the lowest speaks for all, and it is known only after the meeting.
  const bool speaks = weight_of((int)status) > weight_of(TRI_ERR_TIMEOUT);
  if (speaks) print_error(runtime->binding.host, size, status);
  status = tri_comm_farewell(runtime->world, status, statuses, &orderly);
  const tri_status verdict = tri_runtime_verdict(statuses, size, &culprit);
  if (!speaks && culprit == rank && status != TRI_ERR_INTERRUPTED)
    print_error(runtime->binding.host, size, status);
  if (!orderly) abort_job(statuses, rank, (int)verdict);

  TRI_FREE(&runtime->statuses);
  tri_comm_destroy(&runtime->world);
  TRI_FREE(runtime_pointer);
  tri_comm_finish();
  return (int)verdict;
}
