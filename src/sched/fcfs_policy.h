// Continuous batching (Orca, OSDI 2022): requests join and leave at every step, first come first
// served inside a priority.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class FcfsPolicy final : public QueuePolicy {
 public:
  bool admits(const BatchView& batch) const override;
};

}  // namespace headrace
