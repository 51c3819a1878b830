#include "trireme/job/train.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "job/train_run.h"
#include "trireme/base/log.h"
#include "trireme/telemetry/clock.h"
#include "trireme/telemetry/report.h"

// What the end of a step calls for, decided from numbers that are equal on all ranks.
typedef struct step_plan {
  bool validate, save, stop;
} step_plan;

static bool every(int64_t interval, int64_t step)
{
  return interval > 0 && step % interval == 0;
}

static tri_status plan_step_end(tri_train *train, step_plan *plan)
{
  const tri_job *job = train->job;
  const bool last = train->step == job->train.steps;
  int64_t signal = 0;
  TRI_CALL(tri_comm_max(train->comm, "signals", tri_runtime_signal(), &signal));
  plan->stop = signal != 0;
  plan->validate =
      train->validation != NULL && (last || every(job->train.validate_every, train->step));
  plan->save = last || plan->stop || every(job->checkpoint.every, train->step);
  return TRI_OK;
}

static tri_status end_step(tri_train *train, const step_plan *plan, tri_step_metrics *metrics)
{
  if (plan->validate) {
    TRI_CALL(tri_train_validate(train, &metrics->validation_loss));
    const tri_corpus_facts *facts = &train->corpus_facts;
    metrics->validation_loss_per_byte = metrics->validation_loss *
                                        (double)facts->n_tokens[TRI_SPLIT_VALIDATION] /
                                        (double)facts->n_bytes[TRI_SPLIT_VALIDATION];
  }
  // The line first: whatever step a checkpoint says, its lines are there to go on from.
  metrics->checkpoint_seconds = train->checkpoint_seconds;
  if (train->metrics != NULL) TRI_CALL(tri_metrics_write(train->metrics, metrics));
  train->checkpoint_seconds = 0.0;
  if (plan->save) {
    const double began = tri_clock_seconds();
    TRI_CALL(tri_train_save(train));
    train->checkpoint_seconds = tri_clock_seconds() - began;
  }
  return TRI_OK;
}

static tri_status loop(tri_train *train)
{
  const tri_job *job = train->job;
  tri_progress progress;
  tri_progress_begin(&progress, "train", train->step, job->train.steps);
  TRI_CALL(tri_train_prefetch(train));
  bool stopped = false;
  while (train->step < job->train.steps && !stopped) {
    tri_step_metrics metrics = {.validation_loss = NAN, .validation_loss_per_byte = NAN};
    tri_step_times times = {0};
    step_plan plan;
    TRI_CALL(tri_train_step(train, &metrics, &times));
    TRI_CALL(plan_step_end(train, &plan));
    TRI_CALL(end_step(train, &plan, &metrics));
    const bool first = train->step == progress.first + 1;
    if (train->rank == 0 &&
        (first || plan.validate || plan.save || every(job->log.every, train->step))) {
      tri_train_report_step(&progress, &metrics);
    }
    stopped = plan.stop;
  }
  TRI_CALL(tri_train_report_end(train, &progress));
  TRI_CALL(tri_train_finish_layout(train));
  TRI_CHECK(
      !stopped || train->step == job->train.steps, TRI_ERR_INTERRUPTED,
      "stopped by signal %d after step %lld, state saved in %s; run the same command to go on",
      tri_runtime_signal(), (long long)train->step, train->checkpoint_dir);
  return TRI_OK;
}

static tri_status run_opened(tri_train *train)
{
  bool resumed = false;
  TRI_CALL(tri_train_resume(train, &resumed));
  if (!resumed) TRI_CALL(tri_train_initialize(train));
  TRI_CALL(tri_train_round_weights(train));
  TRI_CALL(tri_train_report_header(train));
  return loop(train);
}

tri_status tri_train_run(tri_runtime *runtime, const tri_job *job)
{
  tri_train train = {.log_fd = -1, .last_saved_step = -1};
  tri_status status = tri_runtime_catch_signals();
  if (status == TRI_OK) status = tri_train_open(&train, runtime, job);
  if (status == TRI_OK) status = run_opened(&train);
  tri_train_close(&train);
  return status;
}
