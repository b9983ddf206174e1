#include "sched/static_policy.h"

namespace headrace {

// A batch forms in the plan that finds no row taken, whatever its prompts cost: they are computed
// over the next steps. A preempted row comes back into its batch.
bool StaticPolicy::admits(const BatchView& batch) const {
  return batch.rows_at_start == 0 || batch.resumes;
}

}  // namespace headrace
