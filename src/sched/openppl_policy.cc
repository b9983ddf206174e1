#include "sched/openppl_policy.h"

#include <algorithm>

namespace headrace {

bool OpenPplPolicy::admits(const BatchView& batch) const {
  if (batch.requests_joined >= joining_max_ || batch.token_budget_left <= 0) return false;
  return batch.token_budget_left >= batch.prompt_left || batch.prompt_left > step_tokens_max_;
}

int32_t OpenPplPolicy::reserved_length(Sequence& sequence) { return sequence.length_max(); }

}  // namespace headrace
