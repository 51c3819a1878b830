#include "trireme/optim/schedule.h"

#include <math.h>

float tri_schedule_rate(const tri_schedule *schedule, int64_t step)
{
  if (step > schedule->steps) step = schedule->steps;
  if (step < schedule->warmup_steps)
    return (float)((double)schedule->lr * (double)step / (double)schedule->warmup_steps);
  if (schedule->kind == TRI_SCHEDULE_CONSTANT || step <= schedule->warmup_steps)
    return schedule->lr;
  // The way from the end of the warm-up to the last step.
  const double way =
      (double)(step - schedule->warmup_steps) / (double)(schedule->steps - schedule->warmup_steps);
  const double share =
      schedule->kind == TRI_SCHEDULE_LINEAR ? 1.0 - way : 0.5 * (1.0 + cos(acos(-1.0) * way));
  return (float)(schedule->min_lr + share * ((double)schedule->lr - schedule->min_lr));
}
