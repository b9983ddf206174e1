#include "sched/openppl_policy.h"

namespace headrace {

bool OpenPplPolicy::admits(const BatchView& batch) const {
  return batch.token_budget_left > 0 && batch.sequences_prefilling < prefilling_max_;
}

int32_t OpenPplPolicy::reserved_length(Sequence& sequence) { return sequence.length_max(); }

}  // namespace headrace
