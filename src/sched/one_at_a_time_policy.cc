#include "sched/one_at_a_time_policy.h"

namespace headrace {

// A preempted choice belongs to the one request that runs.
bool OneAtATimePolicy::admits(const BatchView& batch) const {
  return batch.requests_running == 0 || batch.resumes;
}

}  // namespace headrace
