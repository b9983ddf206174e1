// One request at a time, the baseline without batching.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class OneAtATimePolicy final : public QueuePolicy {
 public:
  bool admits(const BatchView& batch) const override;
};

}  // namespace headrace
