#include "sched/fcfs_policy.h"

namespace headrace {

bool FcfsPolicy::admits(const BatchView& batch) const { return batch.token_budget_left > 0; }

}  // namespace headrace
